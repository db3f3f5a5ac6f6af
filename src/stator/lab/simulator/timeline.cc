// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/timeline.h"

#include <algorithm>

namespace stator::simulator {

void Timeline::Stretch::add(const Stretch& other) {
  arrivals += other.arrivals;
  completed += other.completed;
  output_tokens += other.output_tokens;
  prompt_tokens += other.prompt_tokens;
  cached_tokens += other.cached_tokens;
  queued += other.queued;
  waiting += other.waiting;
  running += other.running;
  blocks_in_use += other.blocks_in_use;
  blocks += other.blocks;
  workers += other.workers;
}

/// Two stretches become one.
void Timeline::halve() {
  for (size_t i = 0; i < stretches_.size(); ++i) {
    if (i % 2 == 0) {
      stretches_[i / 2] = stretches_[i];
    } else {
      stretches_[i / 2].add(stretches_[i]);
    }
  }
  stretches_.resize((stretches_.size() + 1) / 2);
  width_ *= 2;
}

/// Finds the stretch that `now_` is in.
void Timeline::move_on() {
  at_ = static_cast<size_t>(now_.time_since_epoch() / width_);
  while (at_ >= kPointsMax) {
    halve();
    at_ = static_cast<size_t>(now_.time_since_epoch() / width_);
  }
  stretches_.resize(std::max(stretches_.size(), at_ + 1));
  end_ = TimePoint(width_ * static_cast<int64_t>(at_ + 1));
}

Timeline::Stretch& Timeline::current() {
  if (now_ >= end_) {
    move_on();
  }
  return stretches_[at_];
}

void Timeline::advance(TimePoint now, const Gauges& gauges) {
  while (now_ < now) {
    Stretch& stretch = current();
    const TimePoint until = std::min(end_, now);
    const auto time = static_cast<uint64_t>((until - now_).count());
    const auto sum_up = [time](Sum& sum, uint64_t gauge) { sum += Sum{time} * gauge; };
    sum_up(stretch.queued, gauges.queued);
    sum_up(stretch.waiting, gauges.waiting);
    sum_up(stretch.running, gauges.running);
    sum_up(stretch.blocks_in_use, gauges.blocks_in_use);
    sum_up(stretch.blocks, gauges.blocks);
    sum_up(stretch.workers, gauges.workers);
    now_ = until;
  }
}

std::vector<TimelinePoint> Timeline::points() const {
  std::vector<TimelinePoint> points;
  double cached_ratio = 0;
  std::vector<Stretch> stretches = stretches_;
  const auto begin_of = [&](size_t i) { return TimePoint(width_ * static_cast<int64_t>(i)); };
  // Rates of a short rest at the end, or of a single instant, would tower over all others.
  if (stretches.size() > 1 && now_ - begin_of(stretches.size() - 1) < width_ / 2) {
    stretches[stretches.size() - 2].add(stretches.back());
    stretches.pop_back();
  }
  for (size_t i = 0; i < stretches.size(); ++i) {
    const Stretch& stretch = stretches[i];
    const TimePoint begin = begin_of(i);
    const Duration time = i + 1 < stretches.size() ? width_ : now_ - begin;
    const double nanoseconds = std::max<double>(1, static_cast<double>(time.count()));
    const auto mean = [&](Sum sum) { return static_cast<double>(sum) / nanoseconds; };
    const auto rate = [&](uint64_t count) {
      return static_cast<double>(count) / nanoseconds * 1e9;
    };
    if (stretch.prompt_tokens > 0) {
      cached_ratio =
          static_cast<double>(stretch.cached_tokens) / static_cast<double>(stretch.prompt_tokens);
    }
    points.push_back({.begin_s = std::chrono::duration<double>(begin.time_since_epoch()).count(),
                      .arrivals_per_s = rate(stretch.arrivals),
                      .requests_per_s = rate(stretch.completed),
                      .output_tokens_per_s = rate(stretch.output_tokens),
                      .cached_ratio = cached_ratio,
                      .queued = mean(stretch.queued),
                      .waiting = mean(stretch.waiting),
                      .running = mean(stretch.running),
                      .kv_use = stretch.blocks == 0 ? 0
                                                    : static_cast<double>(stretch.blocks_in_use) /
                                                          static_cast<double>(stretch.blocks),
                      .workers = mean(stretch.workers)});
  }
  return points;
}

}  // namespace stator::simulator
