// SPDX-License-Identifier: Apache-2.0
#include "stator/session/detail/output_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "stator/session/detail/step_merge.h"

namespace stator::session::detail {

bool OutputQueue::begin(inference::RequestKey key, std::optional<TimePoint> expires) {
  return in_flight_.emplace(key, Request{expires}).second;
}

std::vector<inference::RequestKey> OutputQueue::push(inference::StepOutput step) {
  // A key's entry lives until its terminal word is queued, so that nothing can follow it.
  std::erase_if(step.deltas, [&](const inference::Delta& delta) {
    if (!in_flight_.contains(delta.key)) {
      return true;
    }
    if (delta.finish != inference::FinishReason::kNone) {
      in_flight_.erase(delta.key);
    }
    return false;
  });
  std::erase_if(step.failures,
                [&](const inference::Failure& failure) { return !forget(failure.key); });
  std::erase_if(step.pooled, [&](const inference::Pooled& pooled) { return !forget(pooled.key); });
  drop_lone_parts(step);
  if (step.deltas.empty() && step.failures.empty() && step.pooled.empty()) {
    return {};
  }
  const size_t bytes = detail::step_bytes(step);
  step_bytes_ += bytes;
  const bool mergeable =
      !steps_.empty() &&
      steps_.back().deltas.size() + step.deltas.size() + step.failures.size() < kMessageEntries &&
      detail::step_bytes(steps_.back()) + bytes < kMessageBytes;
  if (mergeable) {
    merge_step(steps_.back(), std::move(step));
  } else {
    steps_.push_back(std::move(step));
  }
  return step_bytes_ > bytes_max_ ? overflow() : std::vector<inference::RequestKey>();
}

std::vector<inference::RequestKey> OutputQueue::overflow() {
  std::vector<inference::RequestKey> running;
  inference::StepOutput failed;
  const auto fail = [&failed](inference::RequestKey key) {
    failed.failures.push_back(
        {key, Error(Code::kOverloaded, "the frontend reads this worker's output too slowly")});
  };
  for (const auto& [key, request] : in_flight_) {
    running.push_back(key);
    fail(key);
  }
  in_flight_.clear();
  // Those that had ended but whose end has not been sent: their output goes, so they fail, too.
  for (inference::StepOutput& step : steps_) {
    for (const inference::Delta& delta : step.deltas) {
      if (delta.finish != inference::FinishReason::kNone) {
        fail(delta.key);
      }
    }
    for (const inference::Pooled& pooled : step.pooled) {
      fail(pooled.key);
    }
    std::ranges::move(step.failures, std::back_inserter(failed.failures));
  }
  steps_.clear();
  step_bytes_ = detail::step_bytes(failed);
  steps_.push_back(std::move(failed));
  return running;
}

std::vector<inference::RequestKey> OutputQueue::expire(TimePoint now) {
  std::vector<inference::RequestKey> late;
  inference::StepOutput failed;
  for (const auto& [key, request] : in_flight_) {
    if (request.expires && *request.expires <= now) {
      late.push_back(key);
      failed.failures.push_back({key, Error(Code::kDeadline, "past its deadline in the worker")});
    }
  }
  if (!late.empty()) {
    std::vector<inference::RequestKey> overflowed = push(std::move(failed));
    late.insert(late.end(), overflowed.begin(), overflowed.end());
  }
  return late;
}

std::optional<OutputQueue::Message> OutputQueue::pop() {
  if (!control_.empty()) {
    Message message = std::move(control_.front());
    control_.pop_front();
    return message;
  }
  if (load_) {
    return Message(*std::exchange(load_, std::nullopt));
  }
  if (!steps_.empty()) {
    Message message = std::move(steps_.front());
    steps_.pop_front();
    step_bytes_ -=
        std::min(step_bytes_, detail::step_bytes(std::get<inference::StepOutput>(message)));
    if (steps_.empty()) {
      step_bytes_ = 0;  // merging keeps the sum a little high
    }
    return message;
  }
  return std::nullopt;
}

void OutputQueue::clear() {
  in_flight_.clear();
  control_.clear();
  load_.reset();
  steps_.clear();
  step_bytes_ = 0;
}

}  // namespace stator::session::detail
