// SPDX-License-Identifier: Apache-2.0
#include "stator/router/prefill_router.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace stator::router {
namespace {

using ::testing::HasSubstr;
using Path = DisaggregatedPlan::Path;

constexpr WorkerKey kP1{WorkerId(1), 0}, kP2{WorkerId(2), 0};
constexpr WorkerKey kD1{WorkerId(11), 0}, kD2{WorkerId(12), 0};
constexpr uint32_t kTokens = 6400;  // 400 blocks

WorkerFacts facts_in(std::string_view rack) {
  WorkerFacts facts{.total_kv_blocks = 10'000, .max_num_batched_tokens = 8192};
  if (!rack.empty()) {
    facts.taints = {"dynamo.topology/rack=" + std::string(rack)};
  }
  return facts;
}

class PrefillRouterTest : public ::testing::Test {
 protected:
  PrefillRouterTest() : hasher_(16, blocks::hash_seed("", "")) {
    std::vector<TokenId> tokens(kTokens);
    std::iota(tokens.begin(), tokens.end(), TokenId{0});
    hasher_.append(tokens);
    prefill_ = *Router::create({.mode = "kv"}, LoadBook::make(clock_), Random(1));
    decode_ = *Router::create({.mode = "kv"}, LoadBook::make(clock_), Random(2));
  }
  void add_two_each(std::string_view first = "", std::string_view second = "") {
    prefill_->add_worker(kP1, facts_in(first));
    prefill_->add_worker(kP2, facts_in(second));
    decode_->add_worker(kD1, facts_in(first));
    decode_->add_worker(kD2, facts_in(second));
  }
  RouteRequest request() const {
    return {.request_id = "r",
            .model = "m",
            .prompt_tokens = kTokens,
            .block_size = 16,
            .sequences = hasher_.sequences()};
  }
  /// The worker holds the first `count` blocks.
  static void store(Router& router, WorkerKey worker, const blocks::BlockHasher& hasher,
                    size_t count) {
    kv::BlocksStored run;
    for (size_t i = 0; i < count; ++i) {
      run.blocks.push_back(
          {blocks::ExternalHash(hasher.sequences()[i].value()), hasher.locals()[i]});
    }
    router.apply(worker, {.event_id = 1, .data = std::move(run)});
  }
  Result<DisaggregatedPlan> plan(DisaggregationConfig config = {}) {
    return PrefillRouter(std::move(config), *prefill_, *decode_).plan(request());
  }
  SimClock clock_;
  blocks::BlockHasher hasher_;
  std::unique_ptr<Router> prefill_;
  std::unique_ptr<Router> decode_;
};

TEST_F(PrefillRouterTest, ThePromptGoesWhereItIsCachedAndTheAnswerWhereThereIsRoom) {
  add_two_each();
  store(*prefill_, kP2, hasher_, 300);
  const auto busy = decode_->book(kD1, request(), 0);
  for (const bool pairs : {true, false}) {
    const auto made = plan({.choose_pairs = pairs});
    ASSERT_TRUE(made.has_value());
    EXPECT_EQ(made->path, Path::kSplit);
    EXPECT_EQ(made->prefill.worker, kP2);
    EXPECT_EQ(made->prefill.cached_tokens, 4800U);
    EXPECT_EQ(made->decode.worker, kD2);
  }
}

TEST_F(PrefillRouterTest, BookingsAreTokensAtOneAndBlocksAtTheOther) {
  add_two_each();
  PrefillRouter both({}, *prefill_, *decode_);
  const auto made = both.plan(request());
  ASSERT_TRUE(made.has_value());
  {
    const Decision prompt = both.take_prefill(*made, request(), WallTime());
    const auto answer = both.book_decode(*made, request());
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(prompt.worker, made->prefill.worker);
    EXPECT_EQ(prompt.receipt.chosen, made->prefill.worker);
    EXPECT_EQ(prefill_->load_of(made->prefill.worker).prefill_tokens, kTokens);
    EXPECT_EQ(prefill_->load_of(made->prefill.worker).active_blocks, 0);
    EXPECT_EQ(decode_->load_of(made->decode.worker).prefill_tokens, 0);
    EXPECT_EQ(decode_->load_of(made->decode.worker).active_blocks, 400);
  }
  EXPECT_EQ(prefill_->active_requests() + decode_->active_requests(), 0);
}

TEST_F(PrefillRouterTest, WithoutPrefillWorkersRequestsRunWholeUnlessForbidden) {
  decode_->add_worker(kD1, {});
  const auto whole = plan();
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->path, Path::kWhole);
  EXPECT_EQ(whole->decode.worker, kD1);
  const auto forbidden = plan({.enforced = true});
  ASSERT_FALSE(forbidden.has_value());
  EXPECT_EQ(forbidden.error().code(), Code::kUnavailable);
}

TEST_F(PrefillRouterTest, WorkersPairOnlyIfTheyUnderstandEachOther) {
  const auto of = [](std::string_view kind) {
    return WorkerFacts{.taints = {handoff_taint(kind)}};
  };
  prefill_->add_worker(kP1, of("vllm-0.32.0/nixl/m"));
  decode_->add_worker(kD1, of("vllm-0.31.0/nixl/m"));
  decode_->add_worker(kD2, {});
  for (const bool pairs : {true, false}) {
    const auto whole = plan({.choose_pairs = pairs});
    EXPECT_EQ(whole.has_value() ? whole->path : Path::kWhole, Path::kWhole) << pairs;
    const auto forbidden = plan({.enforced = true, .choose_pairs = pairs});
    ASSERT_FALSE(forbidden.has_value());
    EXPECT_EQ(forbidden.error().code(), Code::kUnavailable);
  }

  decode_->add_worker({WorkerId(13), 0}, of("vllm-0.32.0/nixl/m"));
  for (const bool pairs : {true, false}) {
    const auto split = plan({.choose_pairs = pairs});
    ASSERT_TRUE(split.has_value());
    EXPECT_EQ(split->path, Path::kSplit);
    EXPECT_EQ(split->decode.worker.worker, WorkerId(13));
  }
}

TEST_F(PrefillRouterTest, TheClientMayNameBothWorkers) {
  add_two_each();
  RouteRequest named = request();
  named.prefill_pinned = kP2.worker;
  named.constraints.pinned = kD2.worker;
  const auto made = PrefillRouter({}, *prefill_, *decode_).plan(named);
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->prefill.worker, kP2);
  EXPECT_EQ(made->decode.worker, kD2);
}

TEST_F(PrefillRouterTest, RequiredTopologyPairsWithinADomainOnly) {
  add_two_each("a", "b");
  store(*prefill_, kP1, hasher_, 400);
  store(*prefill_, kP2, hasher_, 300);
  std::vector<Result<LoadLease>> busy;  // the decode worker beside the best prefill worker
  for (int i = 0; i < 4; ++i) {
    busy.push_back(decode_->book(kD1, request(), 0));
  }
  const TransferRule rule{.domain = "rack", .required = true};
  const auto in_turn = plan({.choose_pairs = false, .transfer = rule});
  ASSERT_TRUE(in_turn.has_value());
  EXPECT_EQ(in_turn->prefill.worker, kP1);
  EXPECT_EQ(in_turn->decode.worker, kD1);
  const auto pair = plan({.transfer = rule});
  ASSERT_TRUE(pair.has_value());
  EXPECT_EQ(pair->prefill.worker, kP2) << "the pair together is cheaper, its prefix is shorter";
  EXPECT_EQ(pair->decode.worker, kD2);
}

TEST_F(PrefillRouterTest, ARequestWithoutAPossiblePairFailsBeforeAnythingIsSent) {
  prefill_->add_worker(kP1, facts_in("a"));
  decode_->add_worker(kD1, facts_in("b"));
  decode_->add_worker(kD2, facts_in(""));
  for (const bool pairs : {true, false}) {
    const auto made =
        plan({.choose_pairs = pairs, .transfer = {.domain = "rack", .required = true}});
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code(), Code::kUnavailable);
    EXPECT_EQ(prefill_->active_requests(), 0);
  }
}

TEST_F(PrefillRouterTest, PreferredTopologyYieldsToLoad) {
  add_two_each("a", "b");
  const DisaggregationConfig config{.transfer = {.domain = "rack", .preferred_weight = 0.5}};
  for (int i = 0; i < 20; ++i) {
    const auto near = plan(config);
    ASSERT_TRUE(near.has_value());
    EXPECT_EQ(near->prefill.worker.worker.value() + 10, near->decode.worker.worker.value());
  }
  // Everything is cached at one prefill worker; the decode worker beside it is full.
  store(*prefill_, kP1, hasher_, 400);
  std::vector<Result<LoadLease>> busy;
  for (int i = 0; i < 4; ++i) {
    busy.push_back(decode_->book(kD1, request(), 0));
  }
  const auto far = plan(config);
  ASSERT_TRUE(far.has_value());
  EXPECT_EQ(far->decode.worker, kD2);
}

TEST_F(PrefillRouterTest, ShortWorkStaysAtTheDecodeWorkerThatHasTheRest) {
  add_two_each();
  store(*decode_, kD2, hasher_, 340);  // 960 of 6,400 tokens are left
  const auto stays = plan({.conditional = "isl_bounding"});
  ASSERT_TRUE(stays.has_value());
  EXPECT_EQ(stays->path, Path::kWhole);
  EXPECT_EQ(stays->decode.worker, kD2);
  EXPECT_EQ(plan({.conditional = "isl_bounding", .uncached_tokens_max = 960})->path, Path::kSplit);
  EXPECT_EQ(plan()->path, Path::kSplit) << "off by default";
}

TEST(DecideBypass, FollowsTheReference) {
  const DisaggregationConfig by_length{.conditional = "isl_bounding"};
  EXPECT_TRUE(decide_bypass(by_length, {.prompt_tokens = 6000, .cached_tokens = 5000}).stays);
  EXPECT_FALSE(decide_bypass(by_length, {.prompt_tokens = 6000, .cached_tokens = 3952}).stays);
  EXPECT_FALSE(decide_bypass(by_length, {.prompt_tokens = 1000, .cached_tokens = 300}).stays);
  EXPECT_TRUE(decide_bypass(by_length, {.prompt_tokens = 1000, .cached_tokens = 9999}).stays);

  const DisaggregationConfig by_load{.conditional = "prefill_load", .prefill_busy_fraction = 0.5};
  EXPECT_TRUE(
      decide_bypass(by_load,
                    {.prompt_tokens = 6000, .prefill_tokens = 4097, .prefill_tokens_max = 8192})
          .stays);
  EXPECT_FALSE(
      decide_bypass(by_load,
                    {.prompt_tokens = 6000, .prefill_tokens = 4096, .prefill_tokens_max = 8192})
          .stays);
  EXPECT_FALSE(decide_bypass(by_load, {.prompt_tokens = 6000, .prefill_tokens = 9e9}).stays)
      << "P3: capacity unknown";

  DisaggregationConfig gated = by_length;
  gated.decode_busy_fraction = 0.9;
  const PrefillPeek cached{.prompt_tokens = 6000, .cached_tokens = 6000};
  EXPECT_FALSE(decide_bypass(gated, cached).stays) << "P3: decode load unknown";
  PrefillPeek room = cached;
  room.decode_blocks = 900;
  room.decode_blocks_total = 1000;
  EXPECT_TRUE(decide_bypass(gated, room).stays);
  room.decode_blocks = 901;
  EXPECT_FALSE(decide_bypass(gated, room).stays);
}

TEST(DisaggregationConfig, BadOnesAreRefused) {
  EXPECT_TRUE(validate({}).has_value());
  EXPECT_THAT(validate({.conditional = "sometimes"}).error().message(), HasSubstr("sometimes"));
  EXPECT_FALSE(validate({.conditional = "isl_or_load"}).has_value());
  EXPECT_TRUE(validate({.conditional = "isl_or_load", .prefill_busy_fraction = 1}).has_value());
}

TEST(BootstrapRoom, NamesTheRankAndStaysInRange) {
  Random random(3);
  for (const uint32_t size : {1U, 2U, 7U, 64U}) {
    for (uint32_t rank = 0; rank < size; ++rank) {
      for (int i = 0; i < 50; ++i) {
        const uint64_t room = make_bootstrap_room(random, rank, size);
        EXPECT_EQ(room % size, rank);
        EXPECT_LT(room, 1ULL << 63);
      }
    }
  }
}

}  // namespace
}  // namespace stator::router
