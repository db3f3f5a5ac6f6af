// SPDX-License-Identifier: Apache-2.0
// A small fleet on virtual time behind the real router: what becomes of a worker that was slow for
// a while, and of one that is slow by nature.
#include <deque>
#include <vector>

#include "router_fixture.h"

namespace stator::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kBlockTokens = 16;
constexpr double kMsPerToken = 0.15;
constexpr Duration kTick = milliseconds(1);
constexpr Duration kDecode = milliseconds(600);

struct Counts {
  uint32_t requests[2] = {};
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  double first_token_ms = 0;

  double share_of_a() const {
    return static_cast<double>(requests[0]) / std::max(1U, requests[0] + requests[1]);
  }
  double hit_rate() const {
    return static_cast<double>(cached_tokens) / static_cast<double>(prompt_tokens);
  }
  double mean_ttft_ms() const { return first_token_ms / (requests[0] + requests[1]); }
};

/// Two workers that compute prompts one after the other and keep every block. Sessions of 8 turns
/// begin every half a second; a turn adds 256 tokens and comes 3 s after the answer before it.
class Fleet {
 public:
  double slowness_a = 1;

  Counts run(Duration time) {
    counts_ = {};
    for (const TimePoint end = clock_.now() + time; clock_.now() < end; clock_.advance(kTick)) {
      tick();
    }
    return counts_;
  }

 private:
  struct Session {
    std::vector<TokenId> tokens;
    uint32_t turns = 0;
    TimePoint next{};
  };
  struct Running {
    LoadLease lease;
    Session* session = nullptr;
    double work_ms = 0;
    TimePoint begun{};
    TimePoint end{};
  };
  struct Worker {
    WorkerKey key;
    std::deque<Running> prefilling;
    std::deque<Running> decoding;
    uint64_t event_id = 0;
  };

  void tick() {
    if (clock_.now() >= next_session_) {
      sessions_.push_back(std::make_unique<Session>());
      sessions_.back()->next = clock_.now();
      next_session_ += milliseconds(400 + random_.below(200));
    }
    for (const auto& session : sessions_) {
      if (session->turns < 8 && clock_.now() >= session->next) {
        turn(*session);
      }
    }
    std::erase_if(sessions_,
                  [&](const auto& each) { return each->turns == 8 && each->next <= clock_.now(); });
    for (Worker& worker : workers_) {
      step(worker, &worker == &workers_[0] ? slowness_a : 1);
    }
  }

  void turn(Session& session) {
    for (uint32_t i = 0; i < 256; ++i) {
      session.tokens.push_back(static_cast<TokenId>(random_.below(100'000)));
    }
    ++session.turns;
    session.next = TimePoint::max();
    blocks::BlockHasher hasher(kBlockTokens, blocks::hash_seed("", ""));
    hasher.append(session.tokens);
    const auto prompt = static_cast<uint32_t>(session.tokens.size());
    auto decision = router_->route({.request_id = "r",
                                    .model = "m",
                                    .prompt_tokens = prompt,
                                    .block_size = kBlockTokens,
                                    .sequences = hasher.sequences()},
                                   clock_.wall_now());
    ASSERT_TRUE(decision.has_value());
    const size_t chosen = decision->worker == kA ? 0 : 1;
    const uint32_t cached = decision->overlap_blocks * kBlockTokens;
    ++counts_.requests[chosen];
    counts_.prompt_tokens += prompt;
    counts_.cached_tokens += cached;
    workers_[chosen].prefilling.push_back({.lease = std::move(decision->lease),
                                           .session = &session,
                                           .work_ms = 5 + (prompt - cached) * kMsPerToken,
                                           .begun = clock_.now()});
  }

  void step(Worker& worker, double slowness) {
    while (!worker.decoding.empty() && worker.decoding.front().end <= clock_.now()) {
      worker.decoding.front().session->next = clock_.now() + seconds(3);
      worker.decoding.pop_front();
    }
    if (worker.prefilling.empty()) {
      return;
    }
    Running& first = worker.prefilling.front();
    first.work_ms -= 1 / slowness;
    if (first.work_ms > 0) {
      return;
    }
    counts_.first_token_ms +=
        std::chrono::duration<double, std::milli>(clock_.now() - first.begun).count();
    first.lease.mark_prefill_completed();
    store(worker, first.session->tokens);
    first.end = clock_.now() + kDecode;
    worker.decoding.push_back(std::move(first));
    worker.prefilling.pop_front();
  }

  void store(Worker& worker, const std::vector<TokenId>& tokens) {
    blocks::BlockHasher hasher(kBlockTokens, blocks::hash_seed("", ""));
    hasher.append(tokens);
    kv::BlocksStored run;
    for (size_t i = 0; i < hasher.locals().size(); ++i) {
      run.blocks.push_back(
          {blocks::ExternalHash(hasher.sequences()[i].value()), hasher.locals()[i]});
    }
    router_->apply(worker.key, {.event_id = ++worker.event_id, .data = std::move(run)});
  }

  SimClock clock_;
  Random random_{7};
  std::unique_ptr<Router> router_ = [this] {
    auto router = Router::create({.mode = "predicted_latency"}, LoadBook::make(clock_), Random(9));
    (*router)->add_worker(kA, {.kv_events = true});
    (*router)->add_worker(kB, {.kv_events = true});
    return std::move(*router);
  }();
  Worker workers_[2] = {{.key = kA}, {.key = kB}};
  std::vector<std::unique_ptr<Session>> sessions_;
  TimePoint next_session_{};
  Counts counts_;
};

TEST(SlowSpell, AWorkerThatWasSlowForTenSecondsGetsItsShareBackWithinThirty) {
  Fleet fleet;
  fleet.run(seconds(30));
  const Counts before = fleet.run(seconds(30));
  ASSERT_NEAR(before.share_of_a(), 0.5, 0.15);

  fleet.slowness_a = 8;
  const Counts slow = fleet.run(seconds(10));
  EXPECT_LT(slow.share_of_a(), 0.4) << "work is kept away from it";
  fleet.slowness_a = 1;
  fleet.run(seconds(30));

  const Counts after = fleet.run(seconds(30));
  EXPECT_NEAR(after.share_of_a(), 0.5, 0.15);
  EXPECT_NEAR(after.hit_rate(), before.hit_rate(), 0.05 * before.hit_rate());
  EXPECT_NEAR(after.mean_ttft_ms(), before.mean_ttft_ms(), 0.2 * before.mean_ttft_ms());
}

TEST(SlowSpell, AWorkerThatIsSlowByNatureStaysKnown) {
  Fleet fleet;
  fleet.slowness_a = 4;
  fleet.run(seconds(60));
  const Counts counts = fleet.run(seconds(120));
  EXPECT_LT(counts.share_of_a(), 0.25);
}

}  // namespace
}  // namespace stator::router
