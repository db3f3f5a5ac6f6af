// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/running_requests.h"

#include <algorithm>
#include <span>

namespace stator::telemetry {

std::string_view phase_of(const RequestFacts& facts) {
  switch (facts.marks.empty() ? Step::kPrepared : facts.marks.back().step) {
    case Step::kPrepared:
    case Step::kRouted:
      return "routing";
    case Step::kQueued:
      return "queued";
    case Step::kPrefill:
    case Step::kSubmitted:
      return "prefill";
    case Step::kHandedOver:
      return "hand_off";
    case Step::kFirstToken:
    case Step::kEnded:
      return "decode";
    case Step::kLost:
      return "migrating";
  }
  return "routing";
}

RunningRequest::RunningRequest(const RequestFacts& facts)
    : received_(facts.received), request_id_(facts.request_id), facts_(facts) {}

void RunningRequest::note(const Mark& mark, uint32_t dp_rank) {
  const MutexLock lock(mutex_);
  facts_.note(mark, dp_rank);
}

void RunningRequest::first_token(TimePoint at, uint32_t cached_tokens) {
  const MutexLock lock(mutex_);
  if (!facts_.first_token) {
    facts_.first_token = at;
    facts_.cached_tokens = cached_tokens;
  }
}

RequestFacts RunningRequest::facts() const {
  const MutexLock lock(mutex_);
  RequestFacts out = facts_;
  out.output_tokens = output_tokens_.load(std::memory_order_relaxed);
  return out;
}

RunningRequests::Place RunningRequests::add(const RequestFacts& facts) {
  auto request = std::make_unique<RunningRequest>(facts);
  const MutexLock lock(mutex_);
  if (listed_.size() >= kListedMax) {
    return Place(nullptr, Leave{this});
  }
  listed_.insert(request.get());
  return Place(request.release(), Leave{this});
}

void RunningRequests::remove(RunningRequest* request) noexcept {
  {
    const MutexLock lock(mutex_);
    listed_.erase(request);
  }
  std::default_delete<RunningRequest>()(request);
}

size_t RunningRequests::size() const {
  const MutexLock lock(mutex_);
  return listed_.size();
}

std::vector<RequestFacts> RunningRequests::oldest(size_t count_max,
                                                  std::string_view request_id) const {
  std::vector<const RunningRequest*> shown;
  std::vector<RequestFacts> out;
  const MutexLock lock(mutex_);  // none of them leaves meanwhile
  for (const RunningRequest* request : listed_) {
    if (request_id.empty() || request->request_id() == request_id) {
      shown.push_back(request);
    }
  }
  const size_t count = std::min(count_max, shown.size());
  std::ranges::partial_sort(shown, shown.begin() + static_cast<std::ptrdiff_t>(count), {},
                            &RunningRequest::received);
  for (const RunningRequest* request : std::span(shown).first(count)) {
    out.push_back(request->facts());
  }
  return out;
}

}  // namespace stator::telemetry
