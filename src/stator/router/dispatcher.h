// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/router/queue/policy_classes.h"
#include "stator/router/queue/request_queue.h"
#include "stator/router/router.h"

namespace stator::router {

/// What the queue needs to know about a request, beyond what routing does.
struct QueueHints {
  TimePoint arrival{};
  uint32_t strict_priority = 0;
  double priority_jump = 0;
  std::string_view tenant{};
  double tenant_weight = 1;  ///< how much more than others it gets while all wait
  std::optional<TimePoint> deadline;
  std::string_view policy_class{};  ///< that the client wishes, see PolicyConfig::choose
  uint64_t held_bytes = 0;          ///< kept for it elsewhere while it waits: its prompt, above all
};

/// A request that waits: owns what RouteRequest only points at.
struct OwnedRequest {
  std::string request_id;
  std::string model;
  std::string session;
  std::string media_json;
  uint32_t prompt_tokens = 0;
  uint32_t block_size = 0;
  std::vector<blocks::SequenceHash> sequences;
  RouteConstraints constraints;  // its spans are set by view()
  std::vector<WorkerId> allowed;
  std::vector<WorkerKey> excluded;
  std::vector<std::string> required_taints;
  std::vector<std::pair<std::string, float>> preferred_taints;
  CostOverride override;
  bool holds_blocks = true;
  uint32_t shared_blocks = 0;
  std::optional<uint32_t> expected_output_tokens;
  int32_t tier = 0;
  TimePoint arrival{};
  const PolicyClass* policy = nullptr;  ///< of the router's configuration; null: there are none

  RouteRequest view() const;
  uint64_t bytes() const;
};
OwnedRequest own(const RouteRequest& request, TimePoint arrival);

/// Router and queue together: a request is routed at once while nobody waits and a worker has room,
/// else it waits its turn. A pure core; one thread at a time.
///
/// D1  Nobody waits while a worker the request may go to has room, once next() returned none.
/// D2  A request that waits ends exactly once: next(), expire() or remove().
class Dispatcher {
 public:
  using Id = RequestQueue::Id;
  struct Outcome {
    Id id = 0;
    Result<Decision> decision;
    std::optional<Shed> shed{};           ///< why it is not kept
    const PolicyClass* policy = nullptr;  ///< of a request that is not kept; null: it had none
  };

  Dispatcher(std::unique_ptr<Router> router, QueueOrder order);

  Router& router() { return *router_; }
  const Router& router() const { return *router_; }
  const RequestQueue& queue() const { return queue_; }

  /// The decision, or the id to wait for. Errors as of Router::consider, and kOverloaded when the
  /// queue is full; last_shed() then says which limit, and is empty for other errors.
  Result<std::variant<Decision, Id>> submit(const RouteRequest& request, const QueueHints& hints,
                                            WallTime wall);
  /// The next waiting request that can run, routed, or that can never run, with its error. Call
  /// again until none: after a submit that waits, and whenever load or workers changed.
  std::optional<Outcome> next(TimePoint now, WallTime wall);
  /// Those that waited too long, or gave way to a higher priority when submit() found the queue
  /// full, with kOverloaded. After a submit that waits, and as time goes by.
  std::vector<Outcome> expire(TimePoint now);
  /// The client does not want it any more. False when it is not waiting.
  bool remove(Id id);

  std::optional<Shed> last_shed() const { return last_shed_; }
  /// The class of the request that was submitted last; null: there are none.
  const PolicyClass* last_class() const { return last_class_; }
  /// The classes of this model; empty: there are none.
  std::span<const PolicyClass> classes() const;

 private:
  void displace(Id id);
  Result<Id> wait(const RouteRequest& request, const QueueHints& hints,
                  const Router::Outlook& outlook);
  QueueItem item_of(const RouteRequest& request, const QueueHints& hints,
                    const Router::Outlook& outlook) const;

  std::unique_ptr<Router> router_;
  RequestQueue queue_;
  FlatMap<Id, std::unique_ptr<OwnedRequest>> waiting_;
  std::shared_ptr<const PolicyConfig> policies_;  // shared with other models' routers; may be null
  std::optional<Shed> last_shed_;
  const PolicyClass* last_class_ = nullptr;
  std::vector<Outcome> displaced_;
};

}  // namespace stator::router
