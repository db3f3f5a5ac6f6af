// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/arrivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/lab/simulator/capped_time.h"

namespace stator::simulator {

Duration Arrivals::scale(Duration time) const {
  return config_.speedup == 1 ? time
                              : capped_time(static_cast<double>(time.count()) / config_.speedup);
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
  } else if (!next_->session.empty() || next_->wait_for) {
    return read_all();
  }
  return {};
}

/// About a request that was read before.
Error Arrivals::fail(const TraceRequest& request, std::string_view field,
                     std::string_view what) const {
  const std::string place = trace_.name().empty() ? "line " : fmt::format("{}:", trace_.name());
  return Error(Code::kInvalidArgument,
               fmt::format("{}{}: {}: {}", place, request.line, field, what));
}

/// From the request just read on.
Status Arrivals::read_all() {
  TraceRequest request = std::move(*next_);
  FlatMap<std::string, uint32_t> turns;
  for (bool found = true; found;) {
    if (request.wait_for) {
      request.turn = request.session.empty() ? 0 : turns[request.session]++;
      if (request.request_id.empty()) {
        request.request_id = std::to_string(request.line);
      }
      if (!followers_.try_emplace(request.request_id).second) {
        return fail(request, "request_id", "'" + request.request_id + "' is there twice");
      }
    }
    if (request.wait_for && !request.wait_for->empty()) {
      const auto missing = static_cast<uint32_t>(request.wait_for->size());
      waiting_.push_back({std::exchange(request, {}), missing});
    } else {
      const auto [session, is_first] = request.session.empty() || request.wait_for
                                           ? std::pair(sessions_.end(), true)
                                           : sessions_.try_emplace(request.session);
      if (session != sessions_.end() && is_first) {
        session->second.last_arrival = request.arrival;
      }
      auto& list = is_first ? firsts_ : session->second.turns;
      list.push_back(std::exchange(request, {}));
    }
    STATOR_TRY(found, trace_.next(request));
  }
  has_all_ = true;
  std::ranges::sort(firsts_, {},
                    [](const TraceRequest& one) { return std::pair(one.arrival, one.line); });
  STATOR_CHECK(link_graph());
  return read();
}

/// Who waits for whom; an error if somebody would wait for ever.
Status Arrivals::link_graph() {
  for (uint32_t i = 0; i < waiting_.size(); ++i) {
    for (const std::string& id : *waiting_[i].request.wait_for) {
      const auto found = followers_.find(id);
      if (found == followers_.end()) {
        return fail(waiting_[i].request, "wait_for", "there is no request '" + id + "'");
      }
      found->second.push_back(i);
    }
  }
  std::vector<uint32_t> missing(waiting_.size());
  std::vector<const std::string*> ended;
  for (uint32_t i = 0; i < waiting_.size(); ++i) {
    missing[i] = waiting_[i].missing;
  }
  for (const TraceRequest& request : firsts_) {
    if (request.wait_for) {
      ended.push_back(&request.request_id);
    }
  }
  while (!ended.empty()) {
    const std::string* id = ended.back();
    ended.pop_back();
    for (const uint32_t i : followers_.at(*id)) {
      if (--missing[i] == 0) {
        ended.push_back(&waiting_[i].request.request_id);
      }
    }
  }
  const auto stuck = std::ranges::find_if(missing, [](uint32_t count) { return count > 0; });
  if (stuck != missing.end()) {
    return fail(waiting_[static_cast<size_t>(stuck - missing.begin())].request, "wait_for",
                "requests wait for each other in a circle");
  }
  return {};
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

void Arrivals::on_end(const std::string& request_id, const std::string& session, TimePoint now) {
  if (const auto found = followers_.find(request_id); found != followers_.end()) {
    for (const uint32_t index : found->second) {
      Waiting& one = waiting_[index];
      if (--one.missing == 0) {
        turns_.emplace(now + one.request.delay.value_or(Duration()), std::move(one.request));
      }
    }
    return;
  }
  if (!session.empty()) {
    end_turn(session, now);
  }
}

void Arrivals::end_turn(const std::string& name, TimePoint now) {
  const auto found = sessions_.find(name);
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
