// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <expected>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/result.h"

namespace stator::router {

/// Who goes first. The key is made when a request comes and never changes.
enum class QueueOrder : uint8_t {
  kFcfs,      ///< arrival; a priority jump is so many seconds of head start
  kLcfs,      ///< the newest; the same head start
  kWspt,      ///< (1 + jump) / uncached prompt tokens: short work first
  kDeadline,  ///< least slack: deadline less predicted work; the same head start
};
std::vector<std::string> queue_order_names();
/// kInvalidArgument for an unknown name.
Result<QueueOrder> parse_queue_order(std::string_view name);

struct QueueConfig {
  std::string order = "fcfs";
  uint32_t requests_max = 4096;
  uint64_t bytes_max = 256ULL << 20;  ///< of what waiting requests hold, prompts above all
  uint64_t prompt_tokens_max = 0;     ///< sum over waiting requests; 0 = no limit
  uint64_t cached_tokens_max = 0;     ///< the same, of tokens found in a cache; 0 = no limit
  Duration wait_max = std::chrono::seconds(60);  ///< longer: shed; 0 = no limit
  uint32_t quantum_tokens = 2048;  ///< uncached prompt tokens a tenant may send per turn
  uint32_t tenants_max = 1024;     ///< further ones share a turn
  Duration ttft_target = std::chrono::seconds(2);  ///< deadline of requests that bring none
};

/// What may wait at most; nothing: no limit of this kind. Looked at before a request is added, so
/// the one that crosses it is kept.
struct ClassLimits {
  std::optional<uint64_t> requests;
  std::optional<uint64_t> prompt_tokens;
  std::optional<uint64_t> cached_tokens;
};

/// A request as the queue sees it.
struct QueueItem {
  TimePoint arrival{};
  uint32_t strict_priority = 0;  ///< a higher tier always goes first, within a tenant
  double priority_jump = 0;      ///< negative counts as 0
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;  ///< at the best worker it may go to
  uint64_t bytes = 0;
  std::string_view tenant{};
  double tenant_weight = 1;  ///< of its quantum; > 0
  uint64_t lane = 0;         ///< requests that may go to the same workers share one; 0 = any worker
  std::optional<TimePoint> deadline;
  Duration predicted_work{};
  std::optional<QueueOrder> order{};  ///< within its tenant; unset: the queue's
  ClassLimits limits{};               ///< of its tenant alone, beside the queue's
  /// Its `tenant` is a class of requests: shares are as its quantum says, whatever was used before.
  bool is_class = false;
};

/// Why a request was not queued, or not kept.
enum class Shed : uint8_t { kRequests, kBytes, kPromptTokens, kCachedTokens, kWait, kDisplaced };
inline constexpr size_t kShedCount = 6;
/// The label of the metric: request_limit, byte_limit, raw_isl_token_limit, cached_token_limit,
/// wait_limit, displaced.
std::string_view describe(Shed shed);

/// Requests that wait for a worker with room. A pure core; one thread at a time.
///
/// Tenants take turns by deficit round robin (Shreedhar and Varghese 1996) in uncached prompt
/// tokens, so that what a tenant gets does not depend on how much it sends. Those that had more
/// than their share lately (half of their use is forgotten in 20 s) take turns behind the others:
/// a burst of somebody who asks for little meets an idle fleet, not another one's flood. A full
/// queue takes a newcomer in place of the last of who fills it. Within a tenant order is (strict
/// priority, the order's score, arrival). Requests that may only go to certain workers wait in
/// lanes of their own, so that a busy worker holds up nobody else.
///
/// Q1  Sums of requests, bytes and tokens are those of the requests inside, and within the limits.
/// Q2  A tenant that has work and whose head may run is served within one round of the others that
///     had no more than it; use fades, so nobody is behind for good.
/// Q3  A tenant without requests has no deficit and takes no memory.
class RequestQueue {
 public:
  using Id = uint64_t;

  /// The order's name has been checked (parse_queue_order).
  RequestQueue(const QueueConfig& config, QueueOrder order) : config_(config), order_(order) {}

  /// The id, or the limit that is reached.
  std::expected<Id, Shed> push(const QueueItem& item);
  /// For an item that push() refused: takes out the newest of the lowest strict priority below its
  /// own, else the last of the tenant that has the most waiting for its weight, unless that is the
  /// item's own, if that makes it fit. None otherwise.
  std::optional<Id> make_room(const QueueItem& item);
  /// Takes the next request out; none when no head can run. `can_run` is asked once per lane and
  /// call, with that lane's best request.
  std::optional<Id> pop(const std::function<bool(Id)>& can_run);
  /// Takes it out wherever it is; false when it is not here.
  bool remove(Id id);
  /// A tenant got work that did not wait here. None for the tenant without a name.
  void charge(std::string_view tenant, double weight, double tokens, TimePoint now);
  /// Takes out and returns those that have waited longer than wait_max.
  std::vector<Id> expire(TimePoint now);

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  uint64_t bytes() const { return bytes_; }
  uint64_t prompt_tokens() const { return prompt_tokens_; }
  uint64_t cached_tokens() const { return cached_tokens_; }
  size_t tenants() const { return flows_.size(); }
  /// What waits of one tenant.
  struct Backlog {
    uint64_t requests = 0;
    uint64_t prompt_tokens = 0;
    uint64_t cached_tokens = 0;
  };
  Backlog backlog(std::string_view tenant) const;
  const QueueConfig& config() const { return config_; }

 private:
  /// Best first.
  struct Key {
    uint32_t strict_priority = 0;
    double score = 0;
    Id id = 0;
    friend bool operator<(const Key& a, const Key& b) {
      if (a.strict_priority != b.strict_priority) {
        return a.strict_priority > b.strict_priority;
      }
      return a.score != b.score ? a.score > b.score : a.id < b.id;
    }
  };
  struct Flow {
    std::string tenant;
    std::map<uint64_t, std::set<Key>> lanes;  // none is empty
    double deficit = 0;
    double weight = 1;  // of the newest request
    Backlog backlog{};  // sums over its requests
  };
  struct Entry {
    Key key;
    std::string tenant;
    uint64_t lane = 0;
    TimePoint arrival{};
    uint32_t prompt_tokens = 0;
    uint32_t cached_tokens = 0;
    uint64_t bytes = 0;
    bool is_class = false;
  };
  /// What a tenant was given lately, in uncached prompt tokens per weight.
  struct Usage {
    double tokens = 0;
    TimePoint at{};
  };
  using Answers = FlatMap<uint64_t, bool>;  // lane → whether its best request can run

  /// With the request `without` taken out, if any.
  std::optional<Shed> limit_reached(const QueueItem& item, const Entry* without = nullptr) const;
  double score_of(const QueueItem& item) const;
  std::optional<Key> runnable_head(const Flow& flow, const std::function<bool(Id)>& can_run,
                                   Answers& answers) const;
  double cost_of(Id id) const;
  void take_out(Id id);
  double used_lately(const Usage& usage) const;
  double share_lately() const;
  void keep_within_shares(std::vector<std::optional<Key>>& heads) const;
  std::optional<Id> last_of_the_longest(const QueueItem& item) const;

  const QueueConfig config_;
  const QueueOrder order_;
  FlatMap<Id, Entry> entries_;
  std::vector<Flow> flows_;  // in the order of their turns; those with requests
  size_t turn_ = 0;
  bool turn_began_ = false;  // the flow whose turn it is has got its quantum
  std::set<std::pair<TimePoint, Id>> by_arrival_;
  std::map<uint32_t, std::set<Id>> by_priority_;  // strict; none is empty
  Id next_id_ = 1;
  uint64_t bytes_ = 0;
  uint64_t prompt_tokens_ = 0;
  uint64_t cached_tokens_ = 0;
  TimePoint now_{};                   // as far as it was told
  FlatMap<std::string, Usage> used_;  // of tenants that used something lately; at most tenants_max
};

}  // namespace stator::router
