// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/transfers.h"

#include <algorithm>

namespace stator::simulator {

/// Counts what has flowed until `now`.
void Transfers::settle(TimePoint now) {
  const double seconds = std::chrono::duration<double>(now - settled_).count();
  for (Flow& flow : flows_) {
    flow.transfer.bytes =
        flow.end <= now ? 0 : std::max(0.0, flow.transfer.bytes - flow.rate * seconds);
  }
  settled_ = now;
}

/// After somebody came or went.
void Transfers::share() {
  for (Flow& flow : flows_) {
    const uint32_t crowd =
        std::max(sending_[flow.transfer.source], receiving_[flow.transfer.target]);
    const double rate = bytes_per_second_ / crowd;
    if (rate == flow.rate) {
      continue;  // its end stands, to the nanosecond
    }
    flow.rate = rate;
    flow.end = settled_ + transfer_time(flow.transfer.bytes / rate);
  }
}

void Transfers::start(TimePoint now, const Transfer& transfer) {
  settle(now);
  ++sending_[transfer.source];
  ++receiving_[transfer.target];
  flows_.push_back({.transfer = transfer});
  share();
}

std::optional<TimePoint> Transfers::next() const {
  const auto first = std::ranges::min_element(flows_, {}, &Flow::end);
  return first == flows_.end() ? std::nullopt : std::optional(first->end);
}

void Transfers::remove(size_t at) {
  --sending_[flows_[at].transfer.source];
  --receiving_[flows_[at].transfer.target];
  flows_.erase(flows_.begin() + static_cast<ptrdiff_t>(at));
}

std::optional<uint32_t> Transfers::pop(TimePoint now) {
  const auto ended =
      std::ranges::find_if(flows_, [&](const Flow& flow) { return flow.end <= now; });
  if (ended == flows_.end()) {
    return std::nullopt;
  }
  const uint32_t id = ended->transfer.id;
  settle(now);
  remove(static_cast<size_t>(ended - flows_.begin()));
  share();
  return id;
}

std::vector<uint32_t> Transfers::cancel(TimePoint now, uint32_t worker) {
  settle(now);
  std::vector<uint32_t> cancelled;
  for (size_t i = 0; i < flows_.size();) {
    if (flows_[i].transfer.source == worker || flows_[i].transfer.target == worker) {
      cancelled.push_back(flows_[i].transfer.id);
      remove(i);
    } else {
      ++i;
    }
  }
  share();
  return cancelled;
}

}  // namespace stator::simulator
