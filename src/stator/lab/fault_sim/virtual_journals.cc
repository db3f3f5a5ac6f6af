// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fault_sim/virtual_journals.h"

#include <utility>

#include "stator/core/hash.h"

namespace stator::fault_sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFetchDeadline = 2s;
constexpr Duration kUnwell = 1s;  // until a holder that did not answer is asked again
constexpr Duration kLatencyMin = 100us;
constexpr Duration kLatencyMore = 400us;

}  // namespace

VirtualJournalHub* VirtualJournals::reach(NodeId from,
                                          continuity::JournalHub::HolderId holder) const {
  const auto known = listed_.find(holder);
  const bool there = known != listed_.end() && known->second.hub != nullptr &&
                     network_.reachable(from, known->second.node);
  return there ? known->second.hub : nullptr;
}

bool VirtualJournals::lists(continuity::JournalHub::HolderId holder) const {
  const auto known = listed_.find(holder);
  return known != listed_.end() && time_.now() < known->second.until;
}

Duration VirtualJournals::draw_latency() {
  return kLatencyMin + Duration(random_.below(static_cast<uint64_t>(kLatencyMore.count())));
}

VirtualJournalHub::VirtualJournalHub(VirtualJournals& journals, NodeId node,
                                     const continuity::JournalHubConfig& config)
    : journals_(journals),
      node_(node),
      config_(config),
      id_(++journals.last_id_),
      store_(config.limits),
      own_(config.limits) {
  journals_.listed_[id_] = {.node = node, .hub = this};
}

VirtualJournalHub::~VirtualJournalHub() {
  VirtualJournals::Listed& own = journals_.listed_.at(id_);
  own.hub = nullptr;
  own.until = journals_.time_.now() + VirtualJournals::kListed;
}

std::optional<continuity::JournalHub::HolderId> VirtualJournalHub::choose_holder(
    continuity::StreamId stream) const {
  const TimePoint now = journals_.time_.now();
  std::optional<HolderId> best;
  uint64_t highest = 0;
  for (const auto& [id, peer] : journals_.listed_) {
    const auto unwell = unwell_until_.find(id);
    const bool well = unwell == unwell_until_.end() || unwell->second <= now;
    const uint64_t score = mix64(stream.low ^ id);
    if (id != id_ && now < peer.until && well && (!best || score > highest)) {
      best = id;
      highest = score;
    }
  }
  return best;
}

/// Asks `holder` after one way and answers after the other; without an answer until `deadline` it
/// is kUnavailable.
template <typename Answer>
void VirtualJournalHub::call(HolderId holder, Duration deadline, net::Shard& shard,
                             std::function<Answer(VirtualJournalHub&)> ask,
                             std::function<void(Answer&)> done) {
  struct Call {
    bool answered = false;
    std::function<void(Answer&)> done;
  };
  auto state = std::make_shared<Call>();  // shared by the answer and the deadline
  state->done = std::move(done);
  const auto answer = [this, state, &shard, alive = std::weak_ptr(alive_)](Answer result) {
    if (alive.expired() || std::exchange(state->answered, true)) {
      return;
    }
    auto shared = std::make_shared<Answer>(std::move(result));  // tasks are copied
    journals_.time_.on_loop(shard, [state, shared] { state->done(*shared); });
  };
  journals_.time_.after(journals_.draw_latency(), [this, holder, answer, ask = std::move(ask),
                                                   alive = std::weak_ptr(alive_)] {
    VirtualJournalHub* const peer = alive.expired() ? nullptr : journals_.reach(node_, holder);
    if (peer == nullptr) {
      return;
    }
    auto result = std::make_shared<Answer>(ask(*peer));
    journals_.time_.after(journals_.draw_latency(), [this, holder, answer, result, alive] {
      if (!alive.expired() && journals_.reach(node_, holder) != nullptr) {
        answer(std::move(*result));
      }
    });
  });
  journals_.time_.after(deadline, [this, holder, state, answer, alive = std::weak_ptr(alive_)] {
    if (!alive.expired() && !state->answered) {
      unwell_until_[holder] = journals_.time_.now() + kUnwell;
      answer(Error(Code::kUnavailable, "a keeper of journals is silent"));
    }
  });
}

void VirtualJournalHub::append(HolderId holder, const std::vector<continuity::JournalPart>& parts,
                               net::Shard& shard, Appended done) {
  call<Result<std::vector<continuity::StreamId>>>(
      holder, config_.ack_timeout, shard,
      [parts](VirtualJournalHub& peer) { return peer.take(parts); }, std::move(done));
}

void VirtualJournalHub::fetch(HolderId holder, continuity::StreamId stream, net::Shard& shard,
                              Fetched done) {
  if (!journals_.lists(holder)) {  // who is listed no more has no address that could be asked
    auto answer =
        std::make_shared<Result<std::vector<std::string>>>(Error(Code::kNotFound, "not held here"));
    journals_.time_.on_loop(shard, [answer, done = std::move(done)] { done(*answer); });
    return;
  }
  call<Result<std::vector<std::string>>>(
      holder, kFetchDeadline, shard,
      [stream](VirtualJournalHub& peer) { return peer.read(stream); }, std::move(done));
}

Result<std::vector<continuity::StreamId>> VirtualJournalHub::take(
    const std::vector<continuity::JournalPart>& parts) {
  std::vector<continuity::StreamId> refused;
  const TimePoint now = journals_.time_.now();
  store_.expire(now);
  for (const continuity::JournalPart& part : parts) {
    if (!store_.append(part.stream, part.place, part.data, now)) {
      refused.push_back(part.stream);
    }
  }
  return refused;
}

Status VirtualJournalHub::keep(continuity::JournalPart part) {
  const TimePoint now = journals_.time_.now();
  own_.expire(now);
  return own_.append(part.stream, part.place, std::move(part.data), now);
}

Result<std::vector<std::string>> VirtualJournalHub::read(continuity::StreamId stream) const {
  auto parts = store_.read(stream);
  if (parts.empty()) {
    parts = own_.read(stream);
  }
  if (parts.empty()) {
    return Error(Code::kNotFound, "not held here");
  }
  return parts;
}

}  // namespace stator::fault_sim
