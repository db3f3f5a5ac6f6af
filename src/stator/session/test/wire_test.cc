// SPDX-License-Identifier: Apache-2.0
#include "stator/session/wire.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "stator/core/random.h"
#include "stator/proto/worker/v1/worker.pb.h"

namespace stator::session {
namespace {

namespace pb = worker::v1;

constexpr uint64_t kSeed = 20240917;
constexpr int kRounds = 200;

/// Through the actual bytes, not only through the message object.
template <typename Message>
Message reparse(const Message& message) {
  Message again;
  EXPECT_TRUE(again.ParseFromString(message.SerializeAsString()));
  return again;
}

template <typename Message, typename Value>
Message encoded(const Value& value) {
  Message message;
  wire::encode(value, message);
  return reparse(message);
}

std::vector<TokenId> random_tokens(Random& random, size_t count) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(random.next());
  }
  return tokens;
}

std::string random_text(Random& random) {
  std::string text(random.below(20), '\0');
  for (char& c : text) {
    c = static_cast<char>(random.next());  // any bytes: salts are not text
  }
  return text;
}

inference::RequestKey random_key(Random& random) {
  return {RequestId(random.next()), Attempt(static_cast<uint16_t>(random.next()))};
}

inference::Handoff random_handoff(Random& random) {
  return {.id = random.next(),
          .kind = "vllm-0.32.0/nixl/m",
          .payload = random_text(random),
          .lease_ms = static_cast<uint32_t>(random.next()),
          .computed_ms = static_cast<uint32_t>(random.next())};
}

inference::EngineRequest random_request(Random& random) {
  inference::EngineRequest request;
  request.key = random_key(random);
  request.tokens = random_tokens(random, 1 + random.below(100));
  request.generated = static_cast<uint32_t>(random.below(request.tokens.size() + 1));
  request.sampling.temperature = static_cast<float>(random.uniform());
  request.sampling.top_p = static_cast<float>(random.uniform());
  request.sampling.top_k = static_cast<int32_t>(random.below(100)) - 1;
  request.sampling.min_p = static_cast<float>(random.uniform());
  request.sampling.presence_penalty = -1.5F;
  request.sampling.frequency_penalty = 0.5F;
  request.sampling.repetition_penalty = 1.1F;
  if (random.below(2) == 0) {
    request.sampling.seed = static_cast<int64_t>(random.next());
    request.sampling.logprobs = static_cast<uint32_t>(random.below(21));
    request.sampling.logit_bias = {{1, -100.0F}, {2, 3.5F}};
    request.sampling.allowed_token_ids = {3, 5};
    request.sampling.bad_words = {"a b", "c"};
  }
  request.stop.max_tokens = 1 + static_cast<uint32_t>(random.below(1000));
  request.stop.min_tokens = static_cast<uint32_t>(random.below(10));
  request.stop.ignore_eos = random.below(2) == 0;
  request.stop.stop_token_ids = random_tokens(random, random.below(5));
  request.stop.eos_token_ids = random_tokens(random, random.below(3));
  request.priority = static_cast<int32_t>(random.next());
  request.cache_salt = random_text(random);
  request.lora_name = random_text(random);
  request.structured_outputs = random_text(random);
  request.require_reasoning = random.next() % 2 == 0;
  request.prompt_logprobs = random.below(2) == 0;
  request.deadline_ms = static_cast<uint32_t>(random.next());
  request.phase = static_cast<inference::Phase>(random.below(3));
  if (request.phase != inference::Phase::kWhole) {
    request.handoff = random_handoff(random);
  }
  if (random.below(2) == 0) {
    request.context = std::make_shared<inference::RequestContext>(
        inference::RequestContext{.traceparent = random_text(random),
                                  .tracestate = random_text(random),
                                  .metadata = {{"a", random_text(random)}, {"b", "c"}},
                                  .session = random_text(random),
                                  .parent_session = random_text(random),
                                  .session_final = random.below(2) == 0});
    request.sent_unix_us = random.next();
  }
  return request;
}

void expect_equal(const inference::EngineRequest& a, const inference::EngineRequest& b) {
  EXPECT_EQ(a.key, b.key);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.generated, b.generated);
  EXPECT_EQ(a.sampling.temperature, b.sampling.temperature);
  EXPECT_EQ(a.sampling.top_p, b.sampling.top_p);
  EXPECT_EQ(a.sampling.top_k, b.sampling.top_k);
  EXPECT_EQ(a.sampling.min_p, b.sampling.min_p);
  EXPECT_EQ(a.sampling.presence_penalty, b.sampling.presence_penalty);
  EXPECT_EQ(a.sampling.frequency_penalty, b.sampling.frequency_penalty);
  EXPECT_EQ(a.sampling.repetition_penalty, b.sampling.repetition_penalty);
  EXPECT_EQ(a.sampling.seed, b.sampling.seed);
  EXPECT_EQ(a.sampling.logit_bias, b.sampling.logit_bias);
  EXPECT_EQ(a.sampling.allowed_token_ids, b.sampling.allowed_token_ids);
  EXPECT_EQ(a.sampling.bad_words, b.sampling.bad_words);
  EXPECT_EQ(a.sampling.logprobs, b.sampling.logprobs);
  EXPECT_EQ(a.stop.max_tokens, b.stop.max_tokens);
  EXPECT_EQ(a.stop.min_tokens, b.stop.min_tokens);
  EXPECT_EQ(a.stop.ignore_eos, b.stop.ignore_eos);
  EXPECT_EQ(a.stop.stop_token_ids, b.stop.stop_token_ids);
  EXPECT_EQ(a.stop.eos_token_ids, b.stop.eos_token_ids);
  EXPECT_EQ(a.priority, b.priority);
  EXPECT_EQ(a.cache_salt, b.cache_salt);
  EXPECT_EQ(a.lora_name, b.lora_name);
  EXPECT_EQ(a.structured_outputs, b.structured_outputs);
  EXPECT_EQ(a.require_reasoning, b.require_reasoning);
  EXPECT_EQ(a.prompt_logprobs, b.prompt_logprobs);
  EXPECT_EQ(a.phase, b.phase);
  EXPECT_EQ(a.handoff, b.handoff);
  EXPECT_EQ(a.deadline_ms, b.deadline_ms);
  EXPECT_EQ(a.sent_unix_us, b.sent_unix_us);
  ASSERT_EQ(a.context == nullptr, b.context == nullptr);
  if (a.context != nullptr) {
    EXPECT_EQ(*a.context, *b.context);
  }
}

TEST(Wire, RequestsSurviveTheRoundTrip) {
  Random random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    const inference::EngineRequest request = random_request(random);

    const auto decoded = wire::decode(encoded<pb::Submit>(request));

    ASSERT_TRUE(decoded.has_value()) << decoded.error().to_string();
    expect_equal(*decoded, request);
  }
}

inference::StepOutput random_step(Random& random, bool logprobs) {
  inference::StepOutput step;
  for (uint64_t i = random.below(10); i > 0; --i) {
    inference::Delta delta;
    delta.key = random_key(random);
    delta.offset = static_cast<uint32_t>(random.next());
    delta.token_begin = static_cast<uint32_t>(step.tokens.size());
    delta.token_count = static_cast<uint32_t>(random.below(4));
    delta.cached_tokens = static_cast<uint32_t>(random.next());
    delta.finish = static_cast<inference::FinishReason>(random.below(5));
    delta.stopped_by_token = random.below(2) == 0;
    const auto tokens = random_tokens(random, delta.token_count);
    step.tokens.insert(step.tokens.end(), tokens.begin(), tokens.end());
    step.deltas.push_back(delta);
  }
  if (logprobs) {
    for (const TokenId token : step.tokens) {
      step.logprobs.push_back({{token, -1.5F, 2}, {{7, -0.25F, 1}, {token, -1.5F, 2}}});
    }
  }
  for (uint64_t i = random.below(3); i > 0; --i) {
    step.failures.push_back({random_key(random), Error(Code::kOverloaded, "busy")});
  }
  for (uint64_t i = random.below(3); i > 0; --i) {
    step.offers.push_back({random_key(random), random_handoff(random)});
  }
  for (uint64_t i = random.below(3); i > 0; --i) {
    inference::PromptLogprobs& prompt = step.prompts.emplace_back();
    prompt.key = random_key(random);
    for (const TokenId token : random_tokens(random, random.below(4))) {
      prompt.tokens.push_back({{token, -2.5F, 3}, {{7, -0.25F, 1}}});
    }
  }
  return step;
}

TEST(Wire, PhasesNobodyKnowsAndPayloadsNobodyCarriesAreRefused) {
  Random random(kSeed);
  pb::Submit submit = encoded<pb::Submit>(random_request(random));
  submit.set_phase(static_cast<pb::Phase>(7));
  EXPECT_EQ(wire::decode(submit).error().code(), Code::kCorrupt);
  submit.set_phase(pb::PHASE_DECODE);
  submit.mutable_handoff()->set_payload(std::string(inference::kHandoffBytesMax + 1, 'x'));
  EXPECT_EQ(wire::decode(submit).error().code(), Code::kTooLarge);
}

TEST(Wire, StepsSurviveTheRoundTrip) {
  Random random(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    const inference::StepOutput step = random_step(random, round % 2 == 0);

    const auto decoded = wire::decode(encoded<pb::StepOutput>(step));

    ASSERT_TRUE(decoded.has_value()) << decoded.error().to_string();
    ASSERT_EQ(decoded->deltas.size(), step.deltas.size());
    for (size_t i = 0; i < step.deltas.size(); ++i) {
      const inference::Delta& a = decoded->deltas[i];
      const inference::Delta& b = step.deltas[i];
      EXPECT_EQ(std::tuple(a.key, a.offset, a.token_begin, a.token_count, a.cached_tokens, a.finish,
                           a.stopped_by_token),
                std::tuple(b.key, b.offset, b.token_begin, b.token_count, b.cached_tokens, b.finish,
                           b.stopped_by_token));
    }
    EXPECT_EQ(decoded->tokens, step.tokens);
    ASSERT_EQ(decoded->logprobs.size(), step.logprobs.size());
    for (size_t i = 0; i < step.logprobs.size(); ++i) {
      EXPECT_EQ(decoded->logprobs[i].sampled.token, step.logprobs[i].sampled.token);
      EXPECT_EQ(decoded->logprobs[i].top.size(), 2U);
      EXPECT_EQ(decoded->logprobs[i].top[0].logprob, -0.25F);
      EXPECT_EQ(decoded->logprobs[i].top[0].rank, 1U);
    }
    ASSERT_EQ(decoded->offers.size(), step.offers.size());
    for (size_t i = 0; i < step.offers.size(); ++i) {
      EXPECT_EQ(decoded->offers[i].key, step.offers[i].key);
      EXPECT_EQ(decoded->offers[i].handoff, step.offers[i].handoff);
    }
    ASSERT_EQ(decoded->prompts.size(), step.prompts.size());
    for (size_t i = 0; i < step.prompts.size(); ++i) {
      const inference::PromptLogprobs& prompt = decoded->prompts[i];
      EXPECT_EQ(prompt.key, step.prompts[i].key);
      ASSERT_EQ(prompt.tokens.size(), step.prompts[i].tokens.size());
      for (size_t j = 0; j < prompt.tokens.size(); ++j) {
        EXPECT_EQ(prompt.tokens[j].sampled.token, step.prompts[i].tokens[j].sampled.token);
        EXPECT_EQ(prompt.tokens[j].sampled.logprob, -2.5F);
        EXPECT_EQ(prompt.tokens[j].top.size(), 1U);
      }
    }
    ASSERT_EQ(decoded->failures.size(), step.failures.size());
    for (size_t i = 0; i < step.failures.size(); ++i) {
      EXPECT_EQ(decoded->failures[i].key, step.failures[i].key);
      EXPECT_EQ(decoded->failures[i].error.code(), Code::kOverloaded);
      EXPECT_EQ(decoded->failures[i].error.message(), "busy");
    }
  }
}

TEST(Wire, ADeltaThatSkipsTokensOfItsStepIsSentWithoutThem) {
  inference::StepOutput step;
  step.tokens = {1, 2, 3};
  step.deltas.push_back({.key = {RequestId(1), Attempt(0)}, .token_begin = 2, .token_count = 1});

  const auto decoded = wire::decode(encoded<pb::StepOutput>(step));

  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->tokens, std::vector<TokenId>{3});
}

TEST(Wire, CancelsAndLoadSurviveTheRoundTrip) {
  for (int reason = 0; reason <= static_cast<int>(CancelReason::kShutdown); ++reason) {
    const wire::CancelCommand cancel{{RequestId(5), Attempt(6)}, static_cast<CancelReason>(reason)};
    const auto decoded = wire::decode(encoded<pb::Cancel>(cancel));
    ASSERT_TRUE(decoded.has_value());
    EXPECT_EQ(decoded->key, cancel.key);
    EXPECT_EQ(decoded->reason, cancel.reason);
  }
  const engine::LoadReport load{1, 2, 3, 4, 5, 6, 7, 8};
  const engine::LoadReport again = wire::decode(encoded<pb::LoadReport>(load));
  EXPECT_EQ(again.kv_used_blocks, 1U);
  EXPECT_EQ(again.kv_cached_blocks, 2U);
  EXPECT_EQ(again.kv_total_blocks, 3U);
  EXPECT_EQ(again.running, 4U);
  EXPECT_EQ(again.waiting, 5U);
  EXPECT_EQ(again.prefix_hit_tokens, 6U);
  EXPECT_EQ(again.prefix_query_tokens, 7U);
  EXPECT_EQ(again.preemptions, 8U);
}

TEST(Wire, CutsLongErrorTexts) {
  const inference::Failure failure{{RequestId(1), Attempt(0)},
                                   Error(Code::kInternal, std::string(100'000, 'x'))};

  const auto decoded = wire::decode(encoded<pb::Rejected>(failure));

  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->error.message().size(), wire::kErrorTextBytesMax);
}

TEST(Wire, AnErrorCodeFromANewerPeerIsInternal) {
  pb::Rejected message;
  message.set_code("quantum_decoherence");
  EXPECT_EQ(wire::decode(message)->error.code(), Code::kInternal);
}

pb::Submit valid_submit() {
  inference::EngineRequest request;
  request.tokens = {1, 2};
  return encoded<pb::Submit>(request);
}

TEST(Wire, RefusesRequestsThatAreWrong) {
  const std::vector<std::pair<std::string, std::function<void(pb::Submit&)>>> cases = {
      {"no tokens", [](pb::Submit& m) { m.clear_tokens(); }},
      {"more generated than tokens", [](pb::Submit& m) { m.set_generated(3); }},
      {"attempt", [](pb::Submit& m) { m.set_attempt(65536); }},
      {"no budget", [](pb::Submit& m) { m.mutable_stop()->set_max_tokens(0); }},
      {"nan",
       [](pb::Submit& m) {
         m.mutable_sampling()->set_top_p(std::numeric_limits<float>::quiet_NaN());
       }},
      {"temperature", [](pb::Submit& m) { m.mutable_sampling()->set_temperature(-1); }},
      {"top_p", [](pb::Submit& m) { m.mutable_sampling()->set_top_p(0); }},
      {"min_p", [](pb::Submit& m) { m.mutable_sampling()->set_min_p(1.5F); }},
      {"presence_penalty",
       [](pb::Submit& m) {
         m.mutable_sampling()->set_presence_penalty(std::numeric_limits<float>::infinity());
       }},
      {"repetition_penalty",
       [](pb::Submit& m) { m.mutable_sampling()->set_repetition_penalty(0); }},
      {"lone bias", [](pb::Submit& m) { m.mutable_sampling()->add_bias_tokens(1); }},
      {"logprobs", [](pb::Submit& m) { m.mutable_sampling()->set_logprobs(129); }},
      {"long salt", [](pb::Submit& m) { m.set_cache_salt(std::string(2000, 's')); }},
      {"long structured_outputs",
       [](pb::Submit& m) {
         m.set_structured_outputs(std::string(wire::kStructuredOutputsBytesMax + 1, ' '));
       }},
      {"long adapter", [](pb::Submit& m) { m.set_lora(std::string(2000, 's')); }},
      {"many stops",
       [](pb::Submit& m) { m.mutable_stop()->mutable_stop_token_ids()->Resize(5000, 1); }},
      {"many tokens",
       [](pb::Submit& m) {
         m.mutable_tokens()->Resize(static_cast<int>(wire::kRequestTokensMax) + 1, 1);
       }},
  };
  for (const auto& [name, spoil] : cases) {
    pb::Submit message = valid_submit();
    ASSERT_TRUE(wire::decode(message).has_value());
    spoil(message);
    EXPECT_FALSE(wire::decode(message).has_value()) << name;
  }
}

TEST(Wire, RefusesUnknownEnumValues) {
  pb::Cancel cancel;
  EXPECT_EQ(wire::decode(cancel).error().code(), Code::kCorrupt);
  cancel.set_reason(static_cast<pb::CancelReason>(77));
  EXPECT_EQ(wire::decode(cancel).error().code(), Code::kCorrupt);

  pb::StepOutput step;
  step.add_deltas()->set_finish(static_cast<pb::FinishReason>(9));
  EXPECT_EQ(wire::decode(step).error().code(), Code::kCorrupt);
}

TEST(Wire, RefusesStepsThatContradictThemselves) {
  pb::StepOutput step;
  step.add_deltas()->set_token_count(2);
  step.add_tokens(1);
  EXPECT_FALSE(wire::decode(step).has_value()) << "missing tokens";
  step.add_tokens(2);
  EXPECT_TRUE(wire::decode(step).has_value());
  step.add_tokens(3);
  EXPECT_FALSE(wire::decode(step).has_value()) << "ownerless token";
  step.mutable_tokens()->RemoveLast();
  step.add_logprobs();
  EXPECT_FALSE(wire::decode(step).has_value()) << "log-probabilities not parallel";
  step.clear_logprobs();
  step.mutable_deltas(0)->set_token_count(std::numeric_limits<uint32_t>::max());
  EXPECT_FALSE(wire::decode(step).has_value()) << "overflowing count";
}

}  // namespace
}  // namespace stator::session
