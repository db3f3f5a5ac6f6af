// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "stator/core/flat_map.h"
#include "stator/frontend/prepare_job.h"
#include "stator/net/compute_pool.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"

namespace stator::frontend {

/// Whoever wants the outcomes of a PreparationQueue. Home loop: the shard's.
class PreparationListener {
 public:
  virtual ~PreparationListener() = default;
  /// The job is done; the exchange is the listener's again, without an observer.
  virtual void on_prepared(net::HttpExchange& exchange, PrepareJob& job) = 0;
  /// The client left first; the exchange is gone.
  virtual void on_client_left(const PrepareJob& job) = 0;
};

/// Where a shard's requests wait while their text is worked on: short ones are done at once on the
/// loop, where handing them over would cost more than they do; long ones by the compute pool.
///
/// D1  Every exchange given to submit() comes back by exactly one of on_prepared and
///     on_client_left, possibly from inside submit().
/// D2  What the client no longer waits for is not started, and stops within milliseconds.
/// D3  While a job's media are being fetched no thread has it but the fetcher's, at the very end.
///
/// The pool must be stopped, and its last messages to the shard handled, before this is destroyed.
class PreparationQueue {
 public:
  PreparationQueue(net::Shard& shard, net::ComputePool& pool, PrepareEnvironment environment,
                   PreparationListener& listener);
  PreparationQueue(const PreparationQueue&) = delete;
  PreparationQueue& operator=(const PreparationQueue&) = delete;
  ~PreparationQueue();

  /// A full queue is an outcome, too: kOverloaded.
  void submit(net::HttpExchange& exchange, std::shared_ptr<PrepareJob> job);
  /// Requests with the pool.
  size_t waiting() const { return waiting_.size(); }
  /// Looks for finished jobs whose message was lost to a full inbox; once a second or so.
  void sweep();
  /// Gives every exchange back with `error`.
  void fail_all(const Error& error);

 private:
  /// An exchange whose job is with the pool or the fetcher.
  struct Waiting final : net::ExchangeObserver {
    void on_client_gone(net::ClientGone) override { queue->client_gone(id); }
    PreparationQueue* queue = nullptr;
    uint64_t id = 0;
    net::HttpExchange* exchange = nullptr;
    std::shared_ptr<PrepareJob> job;             // shared with the pool's task
    std::optional<media::Fetcher::LoadId> load;  // under way
  };

  /// Has the job run by the pool; its exchange waits in `waiting_`.
  Status run_later(uint64_t id, const std::shared_ptr<PrepareJob>& job, net::WorkClient client);
  Waiting& keep(uint64_t id, net::HttpExchange& exchange, std::shared_ptr<PrepareJob> job);
  void fetch(Waiting& waiting);
  void give_up(Waiting& waiting);
  void collect(uint64_t id);
  void client_gone(uint64_t id);
  std::unique_ptr<Waiting> take(uint64_t id);

  net::Shard& shard_;
  net::ComputePool& pool_;
  const PrepareEnvironment environment_;
  PreparationListener& listener_;
  uint64_t last_id_ = 0;
  FlatMap<uint64_t, std::unique_ptr<Waiting>> waiting_;  // bounded by frontend.inflight_max
};

}  // namespace stator::frontend
