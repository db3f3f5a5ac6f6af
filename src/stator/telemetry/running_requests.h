// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/mutex.h"
#include "stator/telemetry/request_facts.h"

namespace stator::telemetry {

/// Where a request that has not ended is: "routing", "queued", "prefill", "hand_off", "decode",
/// "migrating".
std::string_view phase_of(const RequestFacts& facts);

/// What operators see of a request while it runs: a copy of its facts that its shard keeps current
/// and others read. Thread-safe.
class RunningRequest {
 public:
  explicit RunningRequest(const RequestFacts& facts);

  void note(const Mark& mark, uint32_t dp_rank);
  void first_token(TimePoint at, uint32_t cached_tokens);
  void add_tokens(uint32_t count) { output_tokens_.fetch_add(count, std::memory_order_relaxed); }

  TimePoint received() const { return received_; }
  const std::string& request_id() const { return request_id_; }
  /// As of now; `ended` is not set.
  RequestFacts facts() const;

 private:
  const TimePoint received_;
  const std::string request_id_;
  std::atomic<uint32_t> output_tokens_ = 0;
  mutable Mutex mutex_;
  RequestFacts facts_ STATOR_GUARDED_BY(mutex_);
};

/// The requests that have a plan and no end yet, at most kListedMax: further ones run unlisted.
/// Thread-safe; outlives every place.
class RunningRequests {
 public:
  static constexpr size_t kListedMax = 4096;

  struct Leave {
    RunningRequests* list = nullptr;
    void operator()(RunningRequest* request) const noexcept { list->remove(request); }
  };
  /// A request's place on the list; gone with this. Null: it is not listed.
  using Place = std::unique_ptr<RunningRequest, Leave>;

  Place add(const RequestFacts& facts);
  size_t size() const;
  /// The oldest `count_max`, oldest first; of `request_id` alone, unless that is empty.
  std::vector<RequestFacts> oldest(size_t count_max, std::string_view request_id = {}) const;

 private:
  void remove(RunningRequest* request) noexcept;

  mutable Mutex mutex_;
  FlatSet<RunningRequest*> listed_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::telemetry
