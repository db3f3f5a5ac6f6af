// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/detail/durable_state.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

namespace stator::kv_events {
namespace {

using blocks::ExternalHash;

const WorkerId kWorker(7);

kv::KvEvent store(uint64_t id, uint64_t block, uint32_t rank = 0) {
  return {
      .event_id = id,
      .dp_rank = rank,
      .data = kv::BlocksStored{std::nullopt, {{ExternalHash(block), blocks::LocalHash(block)}}}};
}

kv::KvEvent remove(uint64_t id, uint64_t block) {
  return {.event_id = id, .data = kv::BlocksRemoved{{ExternalHash(block)}}};
}

EventEnvelope message(std::vector<kv::KvEvent> events, uint64_t incarnation = 1,
                      WorkerId worker = kWorker) {
  return {.publisher = worker,
          .incarnation = Incarnation(incarnation),
          .last_event_id = events.back().event_id,
          .events = std::move(events)};
}

/// (rank, block) of all that a dump holds.
std::set<std::pair<uint32_t, uint64_t>> held(const detail::DurableState& state,
                                             WorkerId worker = kWorker) {
  std::set<std::pair<uint32_t, uint64_t>> out;
  for (const auto& part : state.dump(worker)) {
    for (const auto& event : part.events) {
      for (const auto& block : std::get<kv::BlocksStored>(event.data).blocks) {
        out.emplace(event.dp_rank, block.external.value());
      }
    }
  }
  return out;
}

using Held = std::set<std::pair<uint32_t, uint64_t>>;

TEST(DurableState, MessagesAddUpAndRepeatedOnesChangeNothing) {
  detail::DurableState state;
  state.apply(1, message({store(1, 10), store(2, 20, 1)}));
  state.apply(2, message({store(2, 20, 1), store(3, 30)}));  // overlaps
  state.apply(3, message({remove(4, 10)}));
  state.apply(4, message({store(1, 10)}));  // again, late

  EXPECT_EQ(held(state), (Held{{0, 30}, {1, 20}}));
  EXPECT_EQ(state.dump(kWorker).back().last_event_id, 4U);
  EXPECT_EQ(state.watermark(), 4U);
}

TEST(DurableState, AHoleMakesAWorkerUnknownUntilItsNextLife) {
  detail::DurableState state;
  state.apply(1, message({store(1, 10)}));
  state.apply(2, message({store(3, 30)}));
  state.apply(3, message({store(4, 40)}));
  EXPECT_TRUE(state.dump(kWorker).empty());
  EXPECT_EQ(state.incomplete(), 1U);

  state.apply(4, message({store(1, 50)}, 2));
  EXPECT_EQ(held(state), (Held{{0, 50}}));
  state.apply(5, message({store(5, 60)}, 1));  // an earlier life that still speaks
  EXPECT_EQ(held(state), (Held{{0, 50}}));
}

TEST(DurableState, AStreamThatLostItsBeginningKnowsNothingOfThoseWorkers) {
  detail::DurableState state;
  state.apply(9, message({store(5, 10)}));
  EXPECT_TRUE(state.dump(kWorker).empty());
}

TEST(DurableState, ASnapshotAndTheTailEqualTheWholeStream) {
  detail::DurableState whole;
  detail::DurableState front;
  const std::vector<EventEnvelope> stream = {
      message({store(1, 10), store(2, 11, 1)}), message({store(1, 99)}, 5, WorkerId(8)),
      message({remove(3, 10), store(4, 12)}), message({store(5, 13)}),
      message({{.event_id = 6, .dp_rank = 1, .data = kv::AllCleared{}}})};
  for (size_t i = 0; i < stream.size(); ++i) {
    whole.apply(i + 1, stream[i]);
    if (i < 3) {
      front.apply(i + 1, stream[i]);
    }
  }

  auto back = detail::DurableState::decode(front.encode()).value();
  EXPECT_EQ(back.watermark(), 3U);
  for (size_t i = back.watermark(); i < stream.size(); ++i) {
    back.apply(i + 1, stream[i]);
  }

  EXPECT_EQ(held(back), held(whole));
  EXPECT_EQ(held(back), (Held{{0, 12}, {0, 13}}));
  EXPECT_EQ(held(back, WorkerId(8)), (Held{{0, 99}}));
  EXPECT_EQ(back.encode(), whole.encode());
}

TEST(DurableState, WorkersThatAreGoneAreLeftOut) {
  detail::DurableState state;
  state.apply(1, message({store(1, 10)}));
  state.apply(2, message({store(1, 99)}, 5, WorkerId(8)));

  state.keep([](WorkerId worker) { return worker == WorkerId(8); });

  EXPECT_EQ(state.workers(), 1U);
  EXPECT_TRUE(state.dump(kWorker).empty());
}

TEST(DurableState, MoreBlocksThanAllowedMakeTheWorkerUnknown) {
  detail::DurableState state(2);
  state.apply(1, message({store(1, 10), store(2, 11), remove(3, 10), store(4, 12)}));
  EXPECT_EQ(held(state).size(), 2U);
  state.apply(2, message({store(5, 13)}));
  EXPECT_TRUE(state.dump(kWorker).empty());
}

TEST(DurableState, DamageIsRefused) {
  detail::DurableState state;
  state.apply(1, message({store(1, 10)}));
  const std::string bytes = state.encode();
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(detail::DurableState::decode(bytes.substr(0, length)).has_value()) << length;
  }
  EXPECT_FALSE(detail::DurableState::decode("\x81\xa7version\x02").has_value());
}

}  // namespace
}  // namespace stator::kv_events
