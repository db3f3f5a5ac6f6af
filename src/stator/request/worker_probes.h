// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/ids.h"
#include "stator/inference/pool.h"
#include "stator/inference/request.h"

namespace stator::request {

/// When a shard last heard of its workers, and the probes that it has sent them: requests as small
/// as can be, which nobody else waits for. A pure core: who is to be probed is another's decision.
///
/// B1  A probe ends once: by end(), or with the worker it asked (take_of).
/// B2  At most one or two probes are under way per worker: one as a canary, one of a breaker.
class WorkerProbes {
 public:
  /// For a probe's only token.
  static constexpr Duration kTimeout = std::chrono::seconds(3);

  void heard_from(WorkerId worker, TimePoint now) { heard_[worker] = now; }
  void forget(WorkerId worker) { heard_.erase(worker); }
  /// None: it is not connected.
  std::optional<TimePoint> last_heard(WorkerId worker) const;
  /// Connected workers, sorted.
  std::vector<WorkerId> connected() const;

  /// The request to send, one token in, one out; `pool`: of a model that generates nothing.
  inference::EngineRequest begin(RequestId id, WorkerId worker, const inference::PoolAbility* pool,
                                 TimePoint now);
  /// Whom the probe asked; none: `id` is no probe, or has ended.
  std::optional<WorkerId> end(RequestId id);
  /// Ends all that ask the worker; how many they were.
  size_t end_of(WorkerId worker);
  struct Late {
    RequestId id;
    WorkerId worker;
  };
  /// Those without an answer after kTimeout, sorted; still to be ended.
  std::vector<Late> late(TimePoint now) const;
  size_t under_way() const { return probes_.size(); }

 private:
  struct Probe {
    WorkerId worker;
    TimePoint sent;
  };
  FlatMap<RequestId, Probe> probes_;
  FlatMap<WorkerId, TimePoint> heard_;  // of connected workers
};

}  // namespace stator::request
