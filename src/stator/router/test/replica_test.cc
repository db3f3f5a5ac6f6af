// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <deque>

#include "stator/core/random.h"
#include "stator/router/replica_log.h"
#include "stator/router/replica_view.h"

namespace stator::router {
namespace {

constexpr Duration kExpiry = std::chrono::seconds(10);

ReplicaBooking booking(uint64_t worker, uint32_t tokens) {
  return {.model = "m",
          .worker = {WorkerId(worker), 0},
          .prompt_tokens = tokens,
          .prefill_tokens = tokens,
          .sequences = {blocks::SequenceHash(worker)}};
}

/// Workers 0 … known − 1, and what was booked for them.
struct Receiver {
  explicit Receiver(uint64_t known_in = 4) : known(known_in) {
    for (int i = 0; i < 8; ++i) {
      slots.push_back(book->add_worker());
    }
  }
  LoadRow load(uint64_t worker) const {
    LoadRow row;
    book->read(std::span(&slots[worker], 1), std::span(&row, 1));
    return row;
  }
  SimClock clock;
  std::shared_ptr<LoadBook> book = LoadBook::make(clock);
  std::vector<LoadSlot> slots;
  uint64_t known;
  ReplicaView view{[this](const ReplicaBooking& wanted) -> std::optional<LoadLease> {
                     const uint64_t worker = wanted.worker.worker.value();
                     if (worker >= known) {
                       return std::nullopt;
                     }
                     return book->take({.slot = slots[worker],
                                        .prompt_tokens = wanted.prompt_tokens,
                                        .prefill_tokens = wanted.prefill_tokens,
                                        .prompt = wanted.sequences});
                   },
                   kExpiry};
};

TEST(Replica, ANewRouterGetsEverythingThenWhatIsNew) {
  ReplicaLog log(99);
  const uint64_t first = log.add(booking(1, 100));
  Receiver receiver;
  const auto update = log.read(receiver.view.next_request());
  EXPECT_TRUE(update.is_snapshot);
  receiver.view.take(update, {});
  EXPECT_EQ(receiver.load(1).prefill_tokens, 100);

  const uint64_t second = log.add(booking(1, 50));
  log.mark_prefill_completed(first);
  log.mark_prefill_completed(first);
  const auto news = log.read(receiver.view.next_request());
  EXPECT_FALSE(news.is_snapshot);
  EXPECT_EQ(news.events.size(), 2U);
  receiver.view.take(news, {});
  receiver.view.take(news, {});
  EXPECT_EQ(receiver.load(1).prefill_tokens, 50);
  EXPECT_EQ(receiver.load(1).active_requests, 2);
  EXPECT_EQ(receiver.view.counts().stale, 2U);

  log.free(first);
  log.free(second);
  receiver.view.take(log.read(receiver.view.next_request()), {});
  EXPECT_EQ(receiver.book->total_requests(), 0);
  EXPECT_EQ(log.digest(), ReplicaDigest{});
}

TEST(Replica, AReaderThatFellBehindGetsASnapshot) {
  ReplicaLog log(99, {.events_max = 4, .update_max = 2, .bookings_max = 8});
  Receiver receiver;
  receiver.view.take(log.read(receiver.view.next_request()), {});
  for (int i = 0; i < 3; ++i) {
    log.add(booking(1, 10));
  }
  EXPECT_EQ(log.read(0).events.size(), 2U) << "R3";
  for (int i = 0; i < 5; ++i) {
    log.add(booking(2, 10));
  }
  EXPECT_EQ(log.add(booking(2, 10)), 0U) << "bookings_max";
  const auto update = log.read(receiver.view.next_request());
  EXPECT_TRUE(update.is_snapshot);
  receiver.view.take(update, {});
  EXPECT_EQ(receiver.load(1).active_requests, 3);
  EXPECT_EQ(receiver.load(2).active_requests, 5);
}

TEST(Replica, HashesAreBoundedLiveInTheRingAndInAnUpdate) {
  ReplicaLog log(99, {.update_hashes_max = 5, .hashes_max = 8});
  const auto add = [&](size_t hashes) {
    ReplicaBooking wanted = booking(1, 10);
    wanted.sequences.resize(hashes);
    return log.add(std::move(wanted));
  };
  const uint64_t first = add(4);
  const uint64_t second = add(4);
  ASSERT_NE(second, 0U);
  EXPECT_EQ(add(1), 0U) << "R4, live";
  EXPECT_EQ(log.read(0).events.size(), 1U) << "R3";
  EXPECT_EQ(log.read(1).events.size(), 1U);

  log.free(first);
  EXPECT_NE(add(4), 0U);
  EXPECT_TRUE(log.read(0).is_snapshot) << "R4, the ring";
  EXPECT_EQ(log.read(0).bookings.size(), 2U);
  EXPECT_EQ(log.read(1).events.size(), 2U) << "one booking, one end";

  log.free(second);
  const uint64_t large = add(7);
  EXPECT_EQ(large, 0U);
  EXPECT_NE(add(4), 0U);
}

TEST(Replica, BookingsWaitForTheirWorker) {
  ReplicaLog log(99);
  log.add(booking(6, 100));
  Receiver receiver;
  receiver.view.take(log.read(UINT64_MAX), {});
  EXPECT_EQ(receiver.view.waiting(), 1U);
  receiver.view.place_waiting();
  EXPECT_EQ(receiver.view.waiting(), 1U);
  receiver.known = 8;
  receiver.view.place_waiting();
  EXPECT_EQ(receiver.view.waiting(), 0U);
  EXPECT_EQ(receiver.load(6).prefill_tokens, 100);
}

TEST(Replica, ASilentRoutersBookingsExpireAndComeBackWithIt) {
  ReplicaLog log(99);
  log.add(booking(1, 100));
  Receiver receiver;
  receiver.view.take(log.read(UINT64_MAX), {});
  receiver.view.expire(TimePoint(kExpiry - Duration(1)));
  EXPECT_EQ(receiver.book->total_requests(), 1);
  receiver.view.expire(TimePoint(kExpiry));
  EXPECT_EQ(receiver.book->total_requests(), 0);
  receiver.view.take(log.read(receiver.view.next_request()), TimePoint(kExpiry));
  EXPECT_EQ(receiver.book->total_requests(), 1);
}

TEST(Replica, AnotherLifeBehindTheSameAddressStartsOver) {
  ReplicaLog old(1);
  old.add(booking(1, 100));
  old.add(booking(1, 100));
  Receiver receiver;
  receiver.view.take(old.read(UINT64_MAX), {});
  ReplicaLog fresh(2);
  fresh.add(booking(2, 10));
  receiver.view.take(fresh.read(receiver.view.next_request()), {});
  receiver.view.take(fresh.read(receiver.view.next_request()), {});
  EXPECT_EQ(receiver.load(1).active_requests, 0);
  EXPECT_EQ(receiver.load(2).active_requests, 1);
}

TEST(Replica, ADivergenceNobodyThoughtOfIsFoundByTheDigest) {
  ReplicaLog log(99);
  Receiver receiver;
  receiver.view.take(log.read(receiver.view.next_request()), {});
  log.add(booking(1, 100));
  log.add(booking(2, 100));
  ReplicaUpdate wrong = log.read(receiver.view.next_request());
  std::get<ReplicaBooking>(wrong.events[1].data).worker = {WorkerId(3), 0};
  receiver.view.take(wrong, {});
  EXPECT_EQ(receiver.view.counts().divergences, 1U);
  const auto repair = log.read(receiver.view.next_request());
  EXPECT_TRUE(repair.is_snapshot);
  receiver.view.take(repair, {});
  EXPECT_EQ(receiver.load(2).active_requests, 1);
  EXPECT_EQ(receiver.load(3).active_requests, 0);
}

/// Updates are lost, repeated and reordered; whenever the link is quiet for a few rounds the two
/// agree.
TEST(Replica, ConvergesByDigestWhateverTheLinkDoes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    ReplicaLog log(seed, {.events_max = 32, .update_max = 8, .bookings_max = 64});
    Receiver receiver;
    std::vector<uint64_t> live;
    std::deque<ReplicaUpdate> link;
    for (int step = 0; step < 2000; ++step) {
      const uint64_t dice = random.next() % 10;
      if (dice < 4) {
        live.push_back(log.add(booking(random.next() % 8, 16 + random.next() % 100)));
      } else if (dice < 6 && !live.empty()) {
        log.mark_prefill_completed(live[random.next() % live.size()]);
      } else if (dice < 9 && !live.empty()) {
        const size_t at = random.next() % live.size();
        log.free(live[at]);
        live.erase(live.begin() + static_cast<ptrdiff_t>(at));
      }
      if (random.next() % 3 == 0) {
        link.push_back(log.read(receiver.view.next_request()));
        std::vector<ReplicaEvent>& events = link.back().events;
        if (events.size() > 2 && random.next() % 4 == 0) {
          events.erase(events.begin() + 1);  // lost on the way
        }
      }
      if (!link.empty() && random.next() % 2 == 0) {
        const size_t at = random.next() % link.size();
        if (random.next() % 4 != 0) {
          receiver.view.take(link[at], {});
        }
        if (random.next() % 4 != 0) {
          link.erase(link.begin() + static_cast<ptrdiff_t>(at));
        }
      }
      if (link.size() > 6) {
        link.pop_front();
      }
      if (step % 200 == 199) {
        for (int quiet = 0; quiet < 8; ++quiet) {
          receiver.view.take(log.read(receiver.view.next_request()), {});
        }
        ASSERT_EQ(receiver.view.size(), log.digest().count) << "seed " << seed;
        receiver.known = 8;
        receiver.view.place_waiting();
        ASSERT_EQ(receiver.book->total_requests(), static_cast<int64_t>(log.digest().count));
        double prefill = 0;
        for (uint64_t worker = 0; worker < 8; ++worker) {
          prefill += receiver.load(worker).prefill_tokens;
        }
        ASSERT_EQ(prefill, static_cast<double>(log.digest().prefill_tokens)) << "seed " << seed;
      }
    }
    EXPECT_GT(receiver.view.counts().snapshots, 1U) << "seed " << seed;
    EXPECT_GT(receiver.view.counts().gaps, 0U) << "seed " << seed;
  }
}

}  // namespace
}  // namespace stator::router
