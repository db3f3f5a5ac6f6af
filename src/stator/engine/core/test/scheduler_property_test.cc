// SPDX-License-Identifier: Apache-2.0
// Random arrivals, lengths, priorities, cancellations and resets against a pool that is too small:
// whatever the scheduler does, clients must not notice.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "stator/core/random.h"
#include "stator/engine/core/test/scheduler_fixture.h"
#include "stator/kv/event_log.h"
#include "stator/kv/test/sequence_fixture.h"

namespace stator::engine {
namespace {

constexpr uint32_t kEosEvery = 40;
// Of steps: hashing every sequence takes far longer than a step.
constexpr uint32_t kPrefixChecksEvery = 32;

EngineConfig tiny_config(Random& random) {
  EngineConfig config = small_config();
  config.total_blocks = 20 + static_cast<uint32_t>(random.below(20));
  config.max_model_len = 80;
  config.max_num_seqs = 1 + static_cast<uint32_t>(random.below(8));
  config.enable_chunked_prefill = random.below(4) != 0;
  config.max_num_batched_tokens =
      config.enable_chunked_prefill ? 8 + static_cast<uint32_t>(random.below(40)) : 80;
  config.enable_prefix_caching = random.below(5) != 0;
  config.policy = random.below(2) == 0 ? SchedulingPolicy::kFcfs : SchedulingPolicy::kPriority;
  config.host_blocks = random.below(2) == 0 ? 0 : static_cast<uint32_t>(1 + random.below(60));
  return config;
}

inference::EngineRequest random_request(Random& random, uint64_t id) {
  // Few distinct prompts, so that prefixes are shared, forked and computed twice at once.
  const auto length = static_cast<uint32_t>(1 + random.below(50));
  const auto max_tokens = static_cast<uint32_t>(1 + random.below(30));
  inference::EngineRequest out =
      request(id, length, max_tokens, static_cast<TokenId>(random.below(3) * 100));
  if (random.below(2) == 0) {
    out.tokens.back() = static_cast<TokenId>(random.below(kVocabulary));
  }
  out.priority = static_cast<int32_t>(random.below(3));
  out.cache_salt = random.below(4) == 0 ? "tenant" : "";
  out.stop.eos_token_ids = {2};
  out.stop.min_tokens = static_cast<uint32_t>(random.below(max_tokens + 1));
  if (random.below(3) == 0) {
    out.stop.stop_token_ids = {static_cast<TokenId>(random.below(kVocabulary))};
  }
  if (random.below(3) == 0) {
    out.sampling.seed = static_cast<int64_t>(random.below(5));
  }
  if (random.below(4) == 0) {
    out.sampling.logprobs = 2;
  }
  if (length > 4 && max_tokens > 3 && random.below(4) == 0) {
    out.generated = 3;  // a migrated request: the last tokens were generated elsewhere
  }
  return out;
}

/// The blocks a router would believe in after these events.
class NaiveIndex {
 public:
  void apply(const std::vector<kv::KvEventData>& events) {
    for (const kv::KvEventData& event : events) {
      std::visit([this](const auto& data) { apply(data); }, event);
    }
  }
  const std::map<uint64_t, std::optional<uint64_t>>& blocks() const { return blocks_; }

 private:
  void apply(const kv::BlocksStored& stored) {
    std::optional<uint64_t> parent;
    if (stored.parent) {
      parent = stored.parent->value();
      EXPECT_TRUE(blocks_.contains(*parent));
    }
    for (const kv::StoredBlock& block : stored.blocks) {
      EXPECT_TRUE(blocks_.emplace(block.external.value(), parent).second);
      parent = block.external.value();
    }
  }
  void apply(const kv::BlocksRemoved& removed) {
    for (const blocks::ExternalHash block : removed.blocks) {
      EXPECT_EQ(blocks_.erase(block.value()), 1U);
    }
  }
  void apply(const kv::AllCleared&) { blocks_.clear(); }

  std::map<uint64_t, std::optional<uint64_t>> blocks_;
};

/// The copies in host memory that events told of.
class NaiveTier {
 public:
  void apply(const std::vector<kv::KvEventData>& events, const NaiveIndex& device) {
    for (const kv::KvEventData& event : events) {
      if (const auto* stored = std::get_if<kv::BlocksStored>(&event)) {
        if (stored->parent) {
          const uint64_t parent = stored->parent->value();
          EXPECT_TRUE(blocks_.contains(parent) || device.blocks().contains(parent));
        }
        for (const kv::StoredBlock& block : stored->blocks) {
          EXPECT_TRUE(blocks_.insert(block.external.value()).second);
        }
      } else {
        for (const blocks::ExternalHash block : std::get<kv::BlocksRemoved>(event).blocks) {
          EXPECT_EQ(blocks_.erase(block.value()), 1U);
        }
      }
    }
  }
  void clear() { blocks_.clear(); }
  size_t size() const { return blocks_.size(); }

 private:
  std::set<uint64_t> blocks_;
};

class Scenario {
 public:
  explicit Scenario(uint64_t seed) : random_(seed), harness_(tiny_config(random_), kEosEvery) {}

  void run() {
    for (int step = 0; step < 400; ++step) {
      disturb();
      harness_.step();
      check_events();
    }
    while (!harness_.scheduler.idle()) {
      harness_.step();
      check_events();
    }
    check_answers();
    EXPECT_EQ(harness_.scheduler.load().kv_used_blocks, 0U) << "a block leaked";
  }
  uint64_t preemptions() const { return harness_.scheduler.load().preemptions; }
  uint64_t loaded() const { return harness_.scheduler.host_tier().loaded_total(); }

 private:
  void disturb() {
    if (random_.below(3) == 0) {
      const uint64_t id = ++last_id_;
      inference::EngineRequest made = random_request(random_, id);
      accepted_.emplace(id, made);
      ASSERT_TRUE(harness_.add(std::move(made)));
    }
    if (last_id_ > 0 && random_.below(15) == 0) {
      const uint64_t id = 1 + random_.below(last_id_);
      if (harness_.scheduler.cancel(kSession, key(id))) {
        cancelled_.emplace(id, harness_.answer(id).tokens.size());
      }
    }
    if (random_.below(100) == 0) {
      harness_.scheduler.reset_prefix_cache();
      tier_.clear();
    }
  }

  void check_events() {
    tier_.apply(harness_.scheduler.take_host_events(), index_);
    index_.apply(harness_.scheduler.take_events());
    ASSERT_EQ(tier_.size(), harness_.scheduler.host_tier().stored_blocks());
    const LoadReport load = harness_.scheduler.load();
    // Every block the index believes in is findable: idle, or in use and registered.
    ASSERT_LE(load.kv_cached_blocks, index_.blocks().size());
    ASSERT_LE(index_.blocks().size(), load.kv_cached_blocks + load.kv_used_blocks);
    ASSERT_EQ(index_.blocks().size(), harness_.scheduler.pool().registered_names());
    if (++checks_ % kPrefixChecksEvery == 0) {
      for (const auto& [id, original] : accepted_) {
        check_prefix(original, harness_.answer(id));
      }
    }
  }

  /// What the index believes of a request's blocks is what the pool finds.
  void check_prefix(const inference::EngineRequest& original, const Answer& answer) {
    std::vector<TokenId> tokens = original.tokens;
    tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
    const kv::TestSequence sequence(harness_.config().block_size, std::move(tokens),
                                    original.cache_salt);
    size_t believed = 0;
    while (believed < sequence.size() &&
           index_.blocks().contains(sequence[believed].sequence.value())) {
      ++believed;
    }
    ASSERT_EQ(harness_.scheduler.pool().peek_prefix(sequence.blocks()).blocks, believed);
  }

  void check_answers() {
    for (const auto& [id, original] : accepted_) {
      const Answer& answer = harness_.answer(id);
      const std::vector<TokenId> alone = run_alone(original, kEosEvery).tokens;
      const auto cancelled = cancelled_.find(id);
      if (cancelled != cancelled_.end()) {
        EXPECT_EQ(answer.finish, inference::FinishReason::kNone);
        EXPECT_EQ(answer.tokens.size(), cancelled->second) << "output after cancel";
        ASSERT_LE(answer.tokens.size(), alone.size());
        EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), alone.begin()));
        continue;
      }
      EXPECT_NE(answer.finish, inference::FinishReason::kNone)
          << "request " << id << " never ended";
      EXPECT_EQ(answer.first_offset, original.generated);
      ASSERT_EQ(answer.tokens, alone) << "request " << id;
      if (original.sampling.logprobs) {
        check_logprobs(answer);
      }
    }
  }

  static void check_logprobs(const Answer& answer) {
    ASSERT_EQ(answer.logprobs.size(), answer.tokens.size());
    for (size_t i = 0; i < answer.tokens.size(); ++i) {
      EXPECT_EQ(answer.logprobs[i].sampled.token, answer.tokens[i]);
    }
  }

  Random random_;
  Harness harness_;
  uint32_t checks_ = 0;
  NaiveIndex index_;
  NaiveTier tier_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, inference::EngineRequest> accepted_;
  std::map<uint64_t, size_t> cancelled_;  // id → tokens delivered before
};

TEST(SchedulerProperty, ClientsSeeWhatTheyWouldSeeAlone) {
  uint64_t preemptions = 0;
  uint64_t loaded = 0;
  const char* given = std::getenv("STATOR_TEST_SEED");
  const uint64_t first = given == nullptr ? 1 : std::strtoull(given, nullptr, 10);
  for (uint64_t seed = first; seed < first + 25; ++seed) {
    SCOPED_TRACE(testing::Message() << "STATOR_TEST_SEED=" << seed);
    Scenario scenario(seed);
    scenario.run();
    preemptions += scenario.preemptions();
    loaded += scenario.loaded();
  }
  EXPECT_GT(loaded, 100U) << "the scenarios no longer load blocks from host memory";
  EXPECT_GT(preemptions, 100U) << "the scenarios no longer exercise preemption";
}

}  // namespace
}  // namespace stator::engine
