// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "stator/engine/core/engine_config.h"
#include "stator/engine/core/scheduler.h"
#include "stator/engine/sim/sim_runner.h"

namespace stator::engine {

inline constexpr SessionId kSession{1};
inline constexpr uint32_t kVocabulary = 1000;
inline constexpr uint32_t kModelLength = 512;

inline inference::RequestKey key(uint64_t request, uint16_t attempt = 0) {
  return {.request = RequestId(request), .attempt = Attempt(attempt)};
}

/// `length` prompt tokens counting up from `first`; ends after `max_tokens`.
inline inference::EngineRequest request(uint64_t id, uint32_t length, uint32_t max_tokens,
                                        TokenId first = 0) {
  inference::EngineRequest out;
  out.key = key(id);
  out.tokens.resize(length);
  std::iota(out.tokens.begin(), out.tokens.end(), first);
  out.stop.max_tokens = max_tokens;
  return out;
}

inline EngineConfig small_config() {
  EngineConfig config;
  config.block_size = 4;
  config.total_blocks = 256;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 64;
  config.max_model_len = kModelLength;
  return config;
}

inline std::unique_ptr<ModelRunner> unlimited_runner(uint32_t block_size, uint32_t eos_every = 0,
                                                     std::vector<double> drafts = {}) {
  SimRunnerConfig config;
  config.vocab_size = kVocabulary;
  config.max_model_len = kModelLength;
  config.block_size = block_size;
  config.last_token = kVocabulary - 1;
  config.eos_every = eos_every;
  config.speedup = 0;
  config.draft_acceptance = std::move(drafts);
  return std::move(*make_sim_runner(config));
}

/// What a client got for one request.
struct Answer {
  std::vector<TokenId> tokens;
  std::vector<inference::TokenLogprobs> logprobs;
  uint32_t first_offset = 0;
  uint32_t cached_tokens = 0;
  uint32_t deltas = 0;
  inference::FinishReason finish = inference::FinishReason::kNone;
  bool stopped_by_token = false;
  std::vector<Code> failures;
};

/// A scheduler with a simulated runner and a client that collects the answers.
class Harness {
 public:
  explicit Harness(const EngineConfig& config, uint32_t eos_every = 0,
                   std::vector<double> drafts = {})
      : scheduler(*resolve(config, kModelLength)),
        config_(*resolve(config, kModelLength)),
        runner_(unlimited_runner(config.block_size, eos_every, std::move(drafts))) {}

  Status add(inference::EngineRequest request, SessionId session = kSession) {
    STATOR_CHECK(validate(request, config_, kVocabulary));
    return scheduler.add(session, std::move(request), now);
  }

  /// One step; returns the plan's (start, count) pairs in slice order.
  std::vector<std::pair<uint32_t, uint32_t>> step() {
    const StepPlan& plan = scheduler.plan(now);
    std::vector<std::pair<uint32_t, uint32_t>> shape;
    for (const SequenceSlice& slice : plan.slices) {
      shape.emplace_back(slice.start, slice.count);
    }
    runner_->copy_blocks(plan.copies);
    if (!plan.empty()) {
      std::vector<Sampled> sampled(plan.slices.size());
      runner_->run(plan.slices, sampled);
      for (auto& [session, output] : scheduler.commit(sampled)) {
        collect(session, output);
      }
    }
    scheduler.check_invariants();
    now += std::chrono::milliseconds(1);
    return shape;
  }

  void run_until_idle() {
    for (int steps = 0; !scheduler.idle(); ++steps) {
      ASSERT_LT(steps, 100'000) << "no progress";
      step();
    }
  }

  void collect(SessionId session, const inference::StepOutput& output) {
    EXPECT_TRUE(output.logprobs.empty() || output.logprobs.size() == output.tokens.size());
    for (const inference::Delta& delta : output.deltas) {
      Answer& answer = answers[{session, delta.key}];
      EXPECT_EQ(answer.finish, inference::FinishReason::kNone) << "S6: output after the end";
      if (answer.deltas++ == 0) {
        answer.first_offset = delta.offset;
        answer.cached_tokens = delta.cached_tokens;
      } else {
        EXPECT_EQ(delta.cached_tokens, 0U);
      }
      EXPECT_EQ(delta.offset, answer.first_offset + answer.tokens.size())
          << "S4: gap or repetition";
      const auto tokens = output.tokens_of(delta);
      answer.tokens.insert(answer.tokens.end(), tokens.begin(), tokens.end());
      // Filler stands where another request of the step asked for logprobs and this one did not.
      const auto logprobs = output.logprobs_of(delta);
      answer.logprobs.insert(answer.logprobs.end(), logprobs.begin(), logprobs.end());
      answer.finish = delta.finish;
      answer.stopped_by_token = delta.stopped_by_token;
    }
    for (const inference::Failure& failure : output.failures) {
      answers[{session, failure.key}].failures.push_back(failure.error.code());
    }
  }

  const EngineConfig& config() const { return config_; }

  const Answer& answer(uint64_t id, SessionId session = kSession) {
    return answers[{session, key(id)}];
  }

  Scheduler scheduler;
  TimePoint now{};
  std::map<std::pair<SessionId, inference::RequestKey>, Answer> answers;

 private:
  EngineConfig config_;
  std::unique_ptr<ModelRunner> runner_;
};

/// The same request alone in an engine with room for everything.
inline Answer run_alone(inference::EngineRequest request, uint32_t eos_every = 0) {
  Harness harness(small_config(), eos_every);
  const inference::RequestKey name = request.key;
  EXPECT_TRUE(harness.add(std::move(request)));
  harness.run_until_idle();
  return harness.answers[{kSession, name}];
}

}  // namespace stator::engine
