// SPDX-License-Identifier: Apache-2.0
#include "stator/simulator/arrivals.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace stator::simulator {

Duration Arrivals::scale(Duration time) const {
  return config_.speedup == 1
             ? time
             : Duration(std::llround(static_cast<double>(time.count()) / config_.speedup));
}

/// The next request that does not wait for another one to end.
Status Arrivals::read() {
  if (has_all_) {
    next_.reset();
    if (!firsts_.empty()) {
      next_ = std::move(firsts_.front());
      firsts_.pop_front();
    }
    return {};
  }
  if (!next_) {
    next_.emplace();
  }
  STATOR_TRY(const bool found, trace_.next(*next_));
  if (!found) {
    next_.reset();
  } else if (!next_->session.empty()) {
    return read_all();
  }
  return {};
}

/// From the request just read on.
Status Arrivals::read_all() {
  TraceRequest request = std::move(*next_);
  for (bool found = true; found;) {
    const auto [session, is_first] = request.session.empty()
                                         ? std::pair(sessions_.end(), true)
                                         : sessions_.try_emplace(request.session);
    if (session != sessions_.end() && is_first) {
      session->second.last_arrival = request.arrival;
    }
    auto& list = is_first ? firsts_ : session->second.turns;
    list.push_back(std::exchange(request, {}));
    STATOR_TRY(found, trace_.next(request));
  }
  has_all_ = true;
  std::ranges::sort(firsts_, {},
                    [](const TraceRequest& one) { return std::pair(one.arrival, one.line); });
  return read();
}

std::optional<TimePoint> Arrivals::next_time(TimePoint now, uint64_t in_flight) const {
  if (config_.concurrency > 0 && in_flight >= config_.concurrency) {
    return std::nullopt;
  }
  std::optional<TimePoint> time;
  if (!turns_.empty()) {
    time = std::max(now, turns_.begin()->first);
  }
  if (next_) {
    const TimePoint first =
        config_.concurrency > 0 ? now : std::max(now, TimePoint(scale(next_->arrival)));
    time = time ? std::min(*time, first) : first;
  }
  return time;
}

Status Arrivals::take(TimePoint now, TraceRequest& request) {
  if (!turns_.empty() && turns_.begin()->first <= now) {
    request = std::move(turns_.begin()->second);
    turns_.erase(turns_.begin());
    return {};
  }
  std::swap(request, *next_);
  return read();
}

void Arrivals::on_end(const std::string& name, TimePoint now) {
  const auto found = name.empty() ? sessions_.end() : sessions_.find(name);
  if (found == sessions_.end()) {
    return;
  }
  Session& session = found->second;
  if (session.turns.empty()) {
    sessions_.erase(found);
    return;
  }
  TraceRequest request = std::move(session.turns.front());
  session.turns.pop_front();
  request.turn = session.next_turn++;
  const Duration apart = std::max(Duration(), scale(request.arrival) - scale(session.last_arrival));
  session.last_arrival = request.arrival;
  turns_.emplace(now + request.delay.value_or(apart), std::move(request));
}

}  // namespace stator::simulator
