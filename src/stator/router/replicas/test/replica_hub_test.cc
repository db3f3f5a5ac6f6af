// SPDX-License-Identifier: Apache-2.0
#include "stator/router/replicas/replica_hub.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "stator/router/replica_view.h"

namespace stator::router {
namespace {

using namespace std::chrono_literals;

bool eventually(const std::function<bool()>& condition) {
  const auto give_up = std::chrono::steady_clock::now() + 60s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up) {
      return false;
    }
    std::this_thread::yield();
  }
  return true;
}

/// A router's process: one worker (number 7), its load, and a hub.
class Process {
 public:
  explicit Process(const router::ReplicaConfig& config = {})
      : hub_(ReplicaHub::create(config, std::nullopt, clock_, metrics_)),
        slot_(book_->add_worker()) {
    book_->announce_to(hub_->announcer("m"));
  }
  ~Process() { stop(); }

  Status listen() { return hub_->listen(); }
  ReplicaHub::Peer as_peer() const { return {hub_->router_id(), hub_->address()}; }
  void start(std::vector<ReplicaHub::Peer> peers) {
    hub_->start(
        {.book = [this](const router::ReplicaBooking& booking) -> std::optional<router::LoadLease> {
           if (booking.model != "m" || booking.worker.worker != WorkerId(7)) {
             return std::nullopt;
           }
           return book_->take(router::booking_of(booking, slot_));
         },
         .peers = [peers] { return peers; },
         .on_stale = [this](bool stale) { stale_ = stale; }});
  }
  void stop() { hub_->stop(); }

  router::LoadLease book(size_t blocks = 4) {
    const auto tokens = static_cast<uint32_t>(16 * blocks);
    prompt_.resize(blocks);
    for (size_t i = 0; i < blocks; ++i) {
      prompt_[i] = blocks::SequenceHash(++last_hash_);
    }
    return book_->take({.slot = slot_,
                        .prompt_tokens = tokens,
                        .block_size = 16,
                        .prefill_tokens = tokens,
                        .prompt = prompt_,
                        .worker = {WorkerId(7), 0}});
  }
  router::LoadRow load() const {
    router::LoadRow row;
    book_->read(std::span(&slot_, 1), std::span(&row, 1));
    return row;
  }
  bool stale() const { return stale_; }
  uint64_t counted(std::string_view name) { return metrics_.counter(name, "").value(); }

 private:
  SystemClock clock_;
  Metrics metrics_;
  std::shared_ptr<router::LoadBook> book_ = router::LoadBook::make(clock_);
  std::unique_ptr<ReplicaHub> hub_;
  const router::LoadSlot slot_;
  std::vector<blocks::SequenceHash> prompt_;
  uint64_t last_hash_ = 0;
  std::atomic<bool> stale_{false};
};

class ReplicaHubTest : public testing::Test {
 protected:
  void SetUp() override {
    for (Process* each : {&here_, &there_}) {
      ASSERT_TRUE(each->listen());
    }
  }
  void start() {
    here_.start({here_.as_peer(), there_.as_peer()});
    there_.start({here_.as_peer(), there_.as_peer()});
  }

  Process here_;
  Process there_;
};

TEST_F(ReplicaHubTest, TellsOfABookingItsPromptAndItsEnd) {
  start();
  ASSERT_TRUE(eventually([&] { return here_.stale() && there_.stale(); }))
      << "they know each other";

  std::optional<router::LoadLease> lease = here_.book();
  EXPECT_TRUE(eventually([&] { return there_.load().prefill_tokens == 64; }));
  lease->mark_prefill_completed();
  EXPECT_TRUE(eventually([&] { return there_.load().prefill_tokens == 0; }));
  EXPECT_EQ(there_.load().active_requests, 1);
  lease.reset();
  EXPECT_TRUE(eventually([&] { return there_.load().active_requests == 0; }));

  EXPECT_EQ(here_.counted("stator_router_replica_events_total"), 0U) << "nobody tells on";
  EXPECT_EQ(there_.counted("stator_router_replica_divergences_total"), 0U);
}

TEST_F(ReplicaHubTest, AStateBeyondFourMegabytesArrives) {
  // gRPC's own limit, and what a few thousand long prompts take.
  std::vector<router::LoadLease> leases;
  for (int i = 0; i < 600; ++i) {
    leases.push_back(here_.book(1024));
  }

  start();

  EXPECT_TRUE(eventually([&] { return there_.load().active_requests == 600; }));
  EXPECT_TRUE(
      eventually([&] { return there_.counted("stator_router_replica_snapshots_total") == 1; }));
}

TEST_F(ReplicaHubTest, WhatTheLogDoesNotTakeIsCounted) {
  std::vector<router::LoadLease> leases;
  while (here_.counted("stator_router_replica_untold_total") == 0) {
    leases.push_back(here_.book(1 << 18));
  }

  EXPECT_EQ(leases.size(), router::ReplicaLog::Limits().hashes_max / (1 << 18) + 1);
}

TEST_F(ReplicaHubTest, APeerThatIsNotThereIsCounted) {
  const auto gone = there_.as_peer();
  there_.stop();
  here_.start({gone});

  EXPECT_TRUE(
      eventually([&] { return here_.counted("stator_router_replica_call_failures_total") > 0; }));
  EXPECT_TRUE(here_.stale());
}

TEST_F(ReplicaHubTest, APortThatIsTakenIsAnError) {
  const std::string address = here_.as_peer().address;
  Process third({.port = static_cast<uint16_t>(std::stoi(address.substr(address.find(':') + 1)))});

  const Status listening = third.listen();

  ASSERT_FALSE(listening);
  EXPECT_EQ(listening.error().code(), Code::kIo);
}

}  // namespace
}  // namespace stator::router
