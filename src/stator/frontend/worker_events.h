// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/core/flat_map.h"
#include "stator/frontend/active_request.h"
#include "stator/frontend/pooling/pool_service.h"
#include "stator/frontend/request_reporter.h"
#include "stator/frontend/worker_lines.h"
#include "stator/net/shard.h"
#include "stator/request/recovery.h"
#include "stator/session/worker_session.h"

namespace stator::frontend {

class RequestService;

/// What workers say, and their silence, given to the choice, prompt, pooling request or probe it is
/// for. Home loop: the shard's.
class WorkerEvents final : public session::SessionEvents, public WorkerLines::Owner {
 public:
  struct Parts {
    net::Shard& shard;
    FrontendMetrics& metrics;
    WorkerLines& lines;
    RequestReporter& reporter;
    request::Recovery& recovery;
    FlatMap<RequestId, ChoiceRef>& names;  ///< of choices, and of prompts at workers
    RequestService& requests;
  };
  explicit WorkerEvents(const Parts& parts) : parts_(parts) {}

  /// Who else sends to the workers: what is not ours may be theirs.
  void share_with(PoolService& pooling) { pooling_ = &pooling; }

  void on_rejected(WorkerId worker, inference::RequestKey key, Error error) override;
  void on_accepted(WorkerId worker, inference::RequestKey key) override;
  void on_load(WorkerId worker, const engine::LoadReport& load) override;
  void on_step(WorkerId worker, inference::StepOutput output) override;
  void on_draining(WorkerId worker) override { parts_.lines.on_draining(worker); }
  void on_closed(WorkerId worker, Error error) override;
  void on_worker_joined() override;
  void on_engine_lost(WorkerId worker) override;
  /// Gives up workers that have been silent for too long; once a second or so.
  void lose_stalled(TimePoint now);

 private:
  void take(ChoiceRef ref, const inference::Delta& delta, const inference::StepOutput& output);
  void take_prompt(ChoiceRef ref, const inference::Delta& delta, inference::StepOutput& output);
  void lose(WorkerId worker, inference::Failure failure);
  void lose_giver(WorkerId worker, const Error& error);
  template <typename Wanted, typename Event>
  void tell_all(Wanted&& wanted, Event&& event);

  const Parts parts_;
  PoolService* pooling_ = nullptr;
};

}  // namespace stator::frontend
