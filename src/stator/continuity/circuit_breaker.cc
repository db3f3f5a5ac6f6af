// SPDX-License-Identifier: Apache-2.0
#include "stator/continuity/circuit_breaker.h"

#include <algorithm>
#include <utility>

namespace stator::continuity {
namespace {

constexpr Duration kForgiveAfter = std::chrono::minutes(1);
constexpr double kJitter = 0.2;
constexpr uint32_t kDoublingsMax = 16;

}  // namespace

void CircuitBreaker::note(TimePoint now, bool good) {
  window_.push_back({now, good});
  bad_in_window_ += good ? 0 : 1;
  while (window_.size() > kOutcomesMax || now - window_.front().at > options_.window) {
    bad_in_window_ -= window_.front().good ? 0 : 1;
    window_.pop_front();
  }
}

void CircuitBreaker::succeeded(TimePoint now) {
  if (state_ != State::kClosed) {
    return;
  }
  bad_in_a_row_ = 0;
  note(now, true);
  while (openings_ > 0 && now - closed_at_ >= kForgiveAfter) {
    --openings_;
    closed_at_ += kForgiveAfter;
  }
}

bool CircuitBreaker::failed(TimePoint now, Random& random) {
  if (state_ != State::kClosed) {
    return false;
  }
  ++bad_in_a_row_;
  note(now, false);
  const bool often =
      window_.size() >= options_.failures_of && bad_in_window_ * size_t{2} >= window_.size();
  if (bad_in_a_row_ < options_.failures_in_a_row && !often) {
    return false;
  }
  open(now, random);
  return true;
}

void CircuitBreaker::hung(TimePoint now, Random& random) {
  if (state_ == State::kClosed) {
    open(now, random);
  }
}

void CircuitBreaker::open(TimePoint now, Random& random) {
  const uint32_t doublings = std::min(openings_, kDoublingsMax);
  const Duration time = std::min(options_.open_max, options_.open_min * (int64_t{1} << doublings));
  const double factor = 1 - kJitter + 2 * kJitter * random.uniform();
  open_until_ = now + Duration(static_cast<int64_t>(static_cast<double>(time.count()) * factor));
  ++openings_;
  state_ = State::kOpen;
  window_.clear();
  bad_in_window_ = 0;
  bad_in_a_row_ = 0;
  good_probes_ = 0;
  probe_out_ = false;
}

bool CircuitBreaker::take_probe(TimePoint now) {
  if (state_ == State::kClosed || probe_out_ || now < open_until_) {
    return false;
  }
  state_ = State::kHalfOpen;
  probe_out_ = true;
  return true;
}

bool CircuitBreaker::probed(bool good, TimePoint now, Random& random) {
  if (state_ != State::kHalfOpen || !std::exchange(probe_out_, false)) {
    return false;
  }
  if (!good) {
    open(now, random);
    return false;
  }
  if (++good_probes_ < options_.probes) {
    return false;
  }
  state_ = State::kClosed;
  closed_at_ = now;
  return true;
}

}  // namespace stator::continuity
