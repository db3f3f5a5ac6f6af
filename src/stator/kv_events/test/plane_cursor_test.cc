// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/plane_cursor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "stator/kv/event_log.h"

namespace stator::kv_events {
namespace {
using blocks::ExternalHash;

constexpr WorkerId kWorker(7);

/// What a router would know.
class Mirror final : public KvEventsListener {
 public:
  void on_snapshot(WorkerId /*worker*/, std::vector<kv::KvEvent> blocks) override {
    ++snapshots;
    held.clear();
    apply(blocks);
  }
  void on_events(WorkerId /*worker*/, std::vector<kv::KvEvent> events) override { apply(events); }

  std::set<uint64_t> held;
  int snapshots = 0;
  uint64_t events_seen = 0;

 private:
  void apply(const std::vector<kv::KvEvent>& events) {
    for (const kv::KvEvent& event : events) {
      ++events_seen;
      if (const auto* stored = std::get_if<kv::BlocksStored>(&event.data)) {
        for (const auto& block : stored->blocks) {
          held.insert(block.external.value());
        }
      } else if (const auto* removed = std::get_if<kv::BlocksRemoved>(&event.data)) {
        for (const auto block : removed->blocks) {
          held.erase(block.value());
        }
      } else {
        held.clear();
      }
    }
  }
};

kv::BlocksStored store(uint64_t block) {
  return {std::nullopt, {{ExternalHash(block), blocks::LocalHash(block)}}};
}

/// A worker: its log, what it publishes, how it answers.
class Worker {
 public:
  explicit Worker(uint64_t incarnation, size_t ring = 64)
      : incarnation_(incarnation), log_(0, {.events_max = ring}) {}

  void append(kv::KvEventData data) { log_.append(std::move(data)); }
  std::optional<EventEnvelope> next_message() {
    auto read = log_.read_from(next_, 4);
    if (const auto* gap = std::get_if<kv::EventLog::Gap>(&read)) {
      next_ = gap->last_id + 1;
    }
    auto* events = std::get_if<std::vector<kv::KvEvent>>(&read);
    EventEnvelope message{
        .publisher = kWorker, .incarnation = Incarnation(incarnation_), .last_event_id = next_ - 1};
    if (events != nullptr && !events->empty()) {
      message.last_event_id = events->back().event_id;
      message.events = std::move(*events);
      next_ = message.last_event_id + 1;
    }
    return message;
  }
  std::vector<EventReply> answer(const EventQuery& query) {
    const bool known = query.incarnation.value() == incarnation_;
    EventCursor cursor(log_, Incarnation(incarnation_), known ? query.start_event_id : 0,
                       {.events = 4, .blocks = 8});
    std::vector<EventReply> parts;
    bool ended = false;
    for (auto chunk = cursor.next(); chunk && !ended; chunk = cursor.next()) {
      const bool is_dump = chunk->kind != EventsChunk::Kind::kEvents;
      parts.push_back({.kind = is_dump ? EventReply::Kind::kTreeDump : EventReply::Kind::kEvents,
                       .worker = kWorker,
                       .incarnation = Incarnation(incarnation_),
                       .part = static_cast<uint32_t>(parts.size()),
                       .last_event_id = chunk->last_id,
                       .events = std::move(chunk->events)});
      ended = chunk->kind == EventsChunk::Kind::kSnapshotLast;
    }
    if (parts.empty()) {
      parts.push_back({.worker = kWorker, .incarnation = Incarnation(incarnation_)});
    }
    parts.back().last = true;
    return parts;
  }
  std::set<uint64_t> held() const {
    std::set<uint64_t> blocks;
    for (const auto& run : log_.snapshot().stored) {
      for (const auto& block : run.blocks) {
        blocks.insert(block.external.value());
      }
    }
    return blocks;
  }

 private:
  uint64_t incarnation_;
  kv::EventLog log_;
  uint64_t next_ = 1;
};

class PlaneCursorTest : public ::testing::Test {
 protected:
  /// Answers until nothing is asked any more.
  void settle(Worker& worker, std::optional<PlaneCursor::Query> query) {
    for (int i = 0; query && i < 10; ++i) {
      const uint64_t number = query->number;
      const auto parts = worker.answer(query->query);
      query.reset();
      for (const EventReply& part : parts) {
        query = cursor_.on_reply(number, part);
      }
    }
    EXPECT_FALSE(cursor_.asking());
  }

  Mirror mirror_;
  PlaneCursor cursor_{kWorker, mirror_};
};

TEST_F(PlaneCursorTest, ADumpComesFirstThenEvents) {
  Worker worker(1);
  for (uint64_t block = 1; block <= 20; ++block) {
    worker.append(store(block));
  }
  settle(worker, cursor_.start());
  EXPECT_EQ(mirror_.held, worker.held());
  while (worker.next_message()->events.size() == 4) {
  }

  worker.append(store(21));
  EXPECT_EQ(cursor_.on_message(*worker.next_message()), std::nullopt);

  EXPECT_EQ(mirror_.held, worker.held());
  EXPECT_EQ(mirror_.snapshots, 1);
  EXPECT_EQ(cursor_.last_id(), 21U);
}

TEST_F(PlaneCursorTest, AHeartbeatShowsThatTheNewestEventWasLost) {
  Worker worker(1);
  settle(worker, cursor_.start());
  worker.append(store(1));
  worker.next_message();  // lost

  const auto query = cursor_.on_message(*worker.next_message());

  ASSERT_TRUE(query.has_value());
  EXPECT_EQ(query->query, (EventQuery{kWorker, 0, Incarnation(1), 1}));
  settle(worker, query);
  EXPECT_EQ(mirror_.held, worker.held());
  EXPECT_EQ(mirror_.snapshots, 1);  // repaired by events
}

TEST_F(PlaneCursorTest, RepeatedAndOverlappingMessagesCountOnce) {
  Worker worker(1);
  settle(worker, cursor_.start());
  worker.append(store(1));
  const auto message = *worker.next_message();
  worker.append(store(2));
  auto overlapping = *worker.next_message();
  overlapping.events.insert(overlapping.events.begin(), message.events.front());

  cursor_.on_message(message);
  cursor_.on_message(message);
  cursor_.on_message(overlapping);

  EXPECT_EQ(mirror_.held, worker.held());
  EXPECT_EQ(mirror_.events_seen, 2U);
}

TEST_F(PlaneCursorTest, AnotherLifeStartsWithItsDumpAndTheOldOneIsFenced) {
  Worker first(1);
  first.append(store(1));
  settle(first, cursor_.start());
  Worker second(2);
  second.append(store(50));

  const auto query = cursor_.on_message(*second.next_message());
  ASSERT_TRUE(query.has_value());
  settle(second, query);
  first.append(store(2));
  EXPECT_EQ(cursor_.on_message(*first.next_message()), std::nullopt);

  EXPECT_EQ(mirror_.held, second.held());
}

TEST_F(PlaneCursorTest, AnAnswerWithAHoleIsNotUsedAndAskedForAgainLater) {
  Worker worker(1);
  for (uint64_t block = 1; block <= 20; ++block) {
    worker.append(store(block));
  }
  const auto query = cursor_.start();
  auto parts = worker.answer(query.query);
  ASSERT_GT(parts.size(), 2U);
  parts.erase(parts.begin() + 1);
  for (const EventReply& part : parts) {
    EXPECT_EQ(cursor_.on_reply(query.number, part), std::nullopt);
  }
  EXPECT_TRUE(cursor_.asking());
  EXPECT_EQ(mirror_.snapshots, 0);

  settle(worker, cursor_.on_timeout());

  EXPECT_EQ(mirror_.held, worker.held());
}

TEST_F(PlaneCursorTest, WhatWaitsForAnAnswerIsBounded) {
  cursor_.start();
  for (size_t i = 0; i < PlaneCursor::kWaitingMax + 10; ++i) {
    cursor_.on_message({.publisher = kWorker, .incarnation = Incarnation(1), .last_event_id = i});
  }
  EXPECT_EQ(cursor_.waiting(), PlaneCursor::kWaitingMax);
}

TEST_F(PlaneCursorTest, EqualsTheWorkerWhateverTheLinkDoes) {
  const char* given = ::getenv("STATOR_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::stoull(given) : 20'261'122;
  SCOPED_TRACE("STATOR_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto chance = [&](uint64_t percent) { return random() % 100 < percent; };
  auto worker = std::make_unique<Worker>(1, 16);
  uint64_t life = 1;
  std::optional<PlaneCursor::Query> query = cursor_.start();
  std::vector<EventEnvelope> late;
  for (int round = 0; round < 50'000; ++round) {
    if (chance(1)) {
      worker = std::make_unique<Worker>(++life, 16);
    }
    for (uint64_t i = random() % 8; i > 0; --i) {
      const uint64_t block = 1 + random() % 100;
      if (chance(50)) {
        worker->append(store(block));
      } else {
        worker->append(kv::BlocksRemoved{{ExternalHash(block)}});
      }
    }
    auto message = *worker->next_message();
    if (chance(10)) {
      late.push_back(message);
    }
    if (!late.empty() && chance(10)) {  // reordered or repeated
      const auto asked = cursor_.on_message(late.back());
      query = asked ? asked : query;
      late.pop_back();
    }
    if (!chance(20)) {
      const auto asked = cursor_.on_message(std::move(message));
      query = asked ? asked : query;
    }
    if (query && chance(30)) {
      const auto asked = *std::exchange(query, std::nullopt);
      for (const EventReply& part : worker->answer(asked.query)) {
        if (!chance(5)) {
          const auto again = cursor_.on_reply(asked.number, part);
          query = again ? again : query;
        }
      }
    }
    if (cursor_.asking() && !query && chance(20)) {
      query = cursor_.on_timeout();
    }
    if (round % 500 == 499) {  // quiet
      late.clear();
      for (int i = 0; i < 20; ++i) {
        if (cursor_.asking() && !query) {
          query = cursor_.on_timeout();
        }
        while (query) {
          const auto asked = *std::exchange(query, std::nullopt);
          for (const EventReply& part : worker->answer(asked.query)) {
            const auto again = cursor_.on_reply(asked.number, part);
            query = again ? again : query;
          }
        }
        query = cursor_.on_message(*worker->next_message());
      }
      ASSERT_EQ(mirror_.held, worker->held()) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace stator::kv_events
