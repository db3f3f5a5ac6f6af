// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/frontend/test/frontend_fixture.h"

namespace stator::frontend {
namespace {

using ::testing::HasSubstr;

class PrepareTest : public PrepareFixture {
 protected:
  static std::string chat_body(const std::string& fields = "",
                               const std::string& content = "What is a block?") {
    return R"({"model":"demo","messages":[{"role":"user","content":")" + content + "\"}]" + fields +
           "}";
  }
  static std::string completion_body(const std::string& fields) {
    return R"({"model":"demo",)" + fields + "}";
  }
  /// Serves the demo model's tokenizer with another chat template.
  void use_template(std::string source) {
    auto assets = std::make_shared<ModelAssets>();
    assets->tokenizer = std::move(*tokenizer::Tokenizer::load(demo_model_dir()));
    if (!source.empty()) {
      auto compiled = chat_template::ChatTemplate::compile(std::move(source), {});
      ASSERT_TRUE(compiled.has_value()) << compiled.error().message();
      assets->chat_template = std::move(*compiled);
    }
    model_->assets = std::move(assets);
  }
  std::string prompt_text(const GenerationPlan& plan) {
    return model_->assets->tokenizer->decode(plan.prompts.front(), tokenizer::SkipSpecial::kNo);
  }
};

TEST_F(PrepareTest, AChatIsRenderedByTheModelsTemplate) {
  const auto plan = chat(chat_body());
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  EXPECT_THAT(prompt_text(*plan), HasSubstr("What is a block?"));
  EXPECT_GT(plan->prompts.front().size(), tokens_of("What is a block?").size());
  EXPECT_EQ(plan->answer.id, "chatcmpl-11111111-2222-4333-8444-555555555555");
  EXPECT_EQ(plan->answer.created_s, 1'700'000'000);
}

TEST_F(PrepareTest, AChatMayUseTheWholeContextAndACompletionSixteenTokens) {
  const auto answer = chat(chat_body());
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->stop.front().max_tokens, 2048 - answer->prompts.front().size());
  const auto text = completion(completion_body(R"("prompt":"Hi")"));
  ASSERT_TRUE(text.has_value());
  EXPECT_EQ(text->stop.front().max_tokens, 16U);
}

TEST_F(PrepareTest, MaxTokensIsClampedToTheContext) {
  model_ = demo_model(64);
  const auto plan = chat(chat_body(R"(,"max_tokens":1000,"min_tokens":900)"));
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  EXPECT_EQ(plan->stop.front().max_tokens, 64 - plan->prompts.front().size());
  EXPECT_EQ(plan->stop.front().min_tokens, plan->stop.front().max_tokens);
}

TEST_F(PrepareTest, APromptOfTheWholeContextIsRefusedWithBothNumbers) {
  model_ = demo_model(32);
  const auto plan = chat(chat_body("", std::string(400, 'x')));
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(plan.error().param, "messages");
  EXPECT_THAT(plan.error().message(), HasSubstr("32 tokens"));
  std::string tokens;
  for (int i = 0; i < 32; ++i) {
    tokens += i == 0 ? "300" : ",300";
  }
  EXPECT_FALSE(completion(completion_body("\"prompt\":[" + tokens + "]")).has_value());
  EXPECT_TRUE(completion(completion_body("\"prompt\":[" + tokens.substr(4) + "]")).has_value());
}

TEST_F(PrepareTest, SamplingDefaultsComeFromTheModel) {
  const auto by_default = chat(chat_body());
  ASSERT_TRUE(by_default.has_value());
  const auto& defaults = model_->assets->sampling_defaults;
  EXPECT_FLOAT_EQ(by_default->sampling.temperature, defaults.temperature);
  EXPECT_EQ(by_default->sampling.top_k, defaults.top_k);
  const auto asked = chat(chat_body(R"(,"temperature":0,"top_k":5)"));
  ASSERT_TRUE(asked.has_value());
  EXPECT_TRUE(asked->sampling.greedy());
  EXPECT_EQ(asked->sampling.top_k, 5);
}

TEST_F(PrepareTest, TemplateVariablesComeFromTheRequest) {
  use_template("{{ enable_thinking }}|{{ reasoning_effort }}|{{ style }}");
  const auto plan =
      chat(chat_body(R"(,"reasoning_effort":"none","chat_template_kwargs":{"style":"short"})"));
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  EXPECT_EQ(prompt_text(*plan), "False|none|short");
  const auto overridden = chat(
      chat_body(R"(,"reasoning_effort":"none","chat_template_kwargs":{"enable_thinking":true})"));
  ASSERT_TRUE(overridden.has_value()) << overridden.error().message();
  EXPECT_EQ(prompt_text(*overridden), "True|none|");
}

TEST_F(PrepareTest, AnErrorOfTheTemplateIsTheClients) {
  use_template("{{ raise_exception('roles must alternate') }}");
  const auto plan = chat(chat_body());
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(plan.error().param, "messages");
  EXPECT_THAT(plan.error().message(), HasSubstr("roles must alternate"));
}

TEST_F(PrepareTest, AnEmptyPromptIsRefused) {
  use_template("{{ '' }}");
  const auto plan = chat(chat_body());
  ASSERT_FALSE(plan.has_value());
  EXPECT_THAT(plan.error().message(), HasSubstr("empty"));
}

TEST_F(PrepareTest, AModelWithoutATemplateRefusesChats) {
  use_template("");
  const auto plan = chat(chat_body());
  ASSERT_FALSE(plan.has_value());
  EXPECT_THAT(plan.error().message(), HasSubstr("no chat template"));
  EXPECT_TRUE(completion(completion_body(R"("prompt":"Hi")")).has_value());
}

TEST_F(PrepareTest, APromptThatIsFarTooLongIsNotTokenizedToItsEnd) {
  std::string text;
  while (text.size() < size_t{8} << 20) {
    text += "word after word ";
  }

  const auto plan = completion(R"({"model":"demo","prompt":")" + text + "\"}");

  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(plan.error().param, "prompt");
  EXPECT_THAT(plan.error().message(), HasSubstr("2048 tokens, but the prompt has more than 2048"));
  // What there is of it in the cache says how far it came.
  EXPECT_THAT(metrics_.render(), HasSubstr("stator_frontend_tokenizer_cache_bytes 0"));
}

TEST_F(PrepareTest, APromptOfTooManyIdsIsRefused) {
  std::string ids = "1";
  for (int i = 1; i < 2048; ++i) {
    ids += ",1";
  }
  const auto plan = completion(R"({"model":"demo","prompt":[)" + ids + "]}");
  ASSERT_FALSE(plan);
  EXPECT_THAT(plan.error().message(), HasSubstr("but the prompt has 2048. Shorten"));
}

TEST_F(PrepareTest, CancelledWorkEndsEarly) {
  CancelToken cancel;
  cancel.cancel();
  PrepareContext context = this->context();
  context.cancel = &cancel;
  std::string body = R"({"model":"demo","prompt":"Hello"})";
  auto request = api::parse_completion_request(body, {});
  ASSERT_TRUE(request);

  const auto plan = prepare_completion(std::move(*request), {model_, {}}, context);

  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code(), Code::kCancelled);
}

TEST_F(PrepareTest, NulBytesOfAPromptAreDropped) {
  const auto prompt = encoder_.encode_text(std::string("a\0b", 3), *model_, {});
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(prompt->ids, tokens_of("ab"));
}

TEST_F(PrepareTest, EveryPromptComesWithTheHashesOfItsBlocks) {
  const auto plan = completion(
      completion_body(R"("prompt":"one two three four five six","cache_salt":"blue","n":2)"));
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  const auto ids = completion(completion_body(R"("prompt":[[5,6,7],[8,9]])"));
  ASSERT_TRUE(ids.has_value());
  for (const GenerationPlan* made : {&*plan, &*ids}) {
    ASSERT_EQ(made->sequences.size(), made->prompts.size());
    for (size_t i = 0; i < made->prompts.size(); ++i) {
      blocks::BlockHasher hasher(model_->block_size, blocks::hash_seed("", made->cache_salt));
      hasher.append(made->prompts[i]);
      EXPECT_TRUE(std::ranges::equal(made->sequences[i], hasher.sequences()));
    }
  }
}

TEST_F(PrepareTest, TokenIdsMustBeInTheVocabulary) {
  const auto plan = completion(completion_body(R"("prompt":[5,4000000])"));
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code(), Code::kInvalidArgument);
  EXPECT_FALSE(chat(chat_body(R"(,"logit_bias":{"4000000":1})")).has_value());
}

TEST_F(PrepareTest, AClientMaySetADeadline) {
  ASSERT_TRUE(chat(chat_body()).has_value());
  EXPECT_EQ(chat(chat_body())->timeout, std::nullopt);
  http_.add_header("x-request-timeout-ms", "1500");
  EXPECT_EQ(chat(chat_body())->timeout, Duration(std::chrono::milliseconds(1500)));
}

TEST_F(PrepareTest, RoutingHeadersWinOverTheBody) {
  const std::string body = chat_body(R"(,"nvext":{"backend_instance_id":5})");
  const auto by_body = chat(body);
  ASSERT_TRUE(by_body.has_value()) << by_body.error().message();
  EXPECT_EQ(by_body->routing.pinned, WorkerId(5));
  http_.add_header("X-Stator-Worker-Instance-Id", "7");
  http_.add_header("x-stator-request-priority", "-3");
  http_.add_header("x-tenant-id", "blue");
  const auto by_header = chat(body);
  ASSERT_TRUE(by_header.has_value());
  EXPECT_EQ(by_header->routing.pinned, WorkerId(7));
  EXPECT_EQ(by_header->priority, -3);
  EXPECT_EQ(by_header->cache_salt, "blue");
}

TEST_F(PrepareTest, HeadersThatAreNoWholeNumbersAreRefused) {
  for (const char* header :
       {"x-stator-worker-instance-id", "x-dynamo-worker-instance-id", "x-stator-request-priority",
        "x-stator-request-strict-priority", "x-request-timeout-ms"}) {
    for (const char* value : {"17abc", "0x1a", "", "1.5", "99999999999999999999999", "1 2"}) {
      http_ = net::HttpRequest("POST", "/");
      http_.add_header(header, value);
      const auto plan = chat(chat_body());
      ASSERT_FALSE(plan.has_value()) << header << ": " << value;
      EXPECT_EQ(plan.error().code(), Code::kInvalidArgument);
    }
  }
  http_ = net::HttpRequest("POST", "/");
  http_.add_header("x-stator-worker-instance-id", "17");
  http_.add_header("x-stator-dp-rank", "1x");
  const auto plan = chat(chat_body());
  ASSERT_FALSE(plan.has_value());
  EXPECT_THAT(plan.error().message(), HasSubstr("x-stator-dp-rank must be a whole number"));
}

TEST_F(PrepareTest, ATenantsNameIsNoLongerThanWorkersTake) {
  http_.add_header("x-tenant-id", std::string(api::kMaxCacheSaltBytes + 1, 't'));

  const auto made = chat(chat_body());

  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(made.error().message().contains("x-tenant-id must have at most 1024 bytes"))
      << made.error().message();
}

TEST_F(PrepareTest, RoutingWishesComeFromHeadersAndHints) {
  http_.add_header("x-dynamo-allowed-worker-ids", "3, 5");
  http_.add_header("x-stator-request-strict-priority", "2");
  http_.add_header("x-tenant-id", "acme");
  const auto plan = chat(chat_body(
      R"(,"nvext":{"agent_hints":{"osl":77},"router_config_override":{"router_temperature":0.5},)"
      R"("routing_constraints":{"required_taints":["zone=a"]}})"));
  ASSERT_TRUE(plan.has_value());
  const RoutingWish& wish = plan->routing;
  EXPECT_EQ(wish.allowed, (std::vector<WorkerId>{WorkerId(3), WorkerId(5)}));
  EXPECT_EQ(wish.strict_priority, 2U);
  EXPECT_EQ(wish.tenant, "acme");
  EXPECT_EQ(wish.expected_output_tokens, 77U);
  EXPECT_EQ(wish.override.temperature, 0.5);
  EXPECT_EQ(wish.required_taints, std::vector<std::string>{"zone=a"});
}

TEST_F(PrepareTest, HintsThatAreNotTrustedAreIgnoredAndNamed) {
  http_.add_header("x-stator-worker-instance-id", "7");
  http_.add_header("x-dynamo-allowed-worker-ids", "7");
  http_.add_header("X-Request-Priority", "9");
  http_.add_header("x-stator-request-strict-priority", "2");
  http_.add_header("x-tenant-id", "acme");
  const std::string body =
      chat_body(R"(,"cache_salt":"blue","nvext":{"agent_hints":{"osl":77,"priority":4}})");
  struct Case {
    const char* trust;
    const char* salt;
    int priority;
    std::optional<WorkerId> pinned;
    const char* ignored;
  };
  const char* const headers =
      "x-stator-worker-instance-id,x-dynamo-allowed-worker-ids,x-request-priority,"
      "x-stator-request-strict-priority,x-tenant-id";
  const std::string both = std::string("nvext,cache_salt,") + headers;
  for (const Case& c : {Case{"all", "acme", 9, WorkerId(7), ""},
                        Case{"headers", "acme", 9, WorkerId(7), "nvext,cache_salt"},
                        Case{"body", "blue", 4, std::nullopt, headers},
                        Case{"none", "", 0, std::nullopt, both.c_str()}}) {
    config_.trust_hints = c.trust;
    const auto plan = chat(body);
    ASSERT_TRUE(plan.has_value()) << plan.error().message();
    EXPECT_EQ(plan->cache_salt, c.salt) << c.trust;
    EXPECT_EQ(plan->priority, c.priority) << c.trust;
    EXPECT_EQ(plan->routing.pinned, c.pinned) << c.trust;
    EXPECT_EQ(plan->routing.tenant, config_.trusts_header_hints() ? "acme" : "") << c.trust;
    EXPECT_EQ(plan->routing.allowed.size(), config_.trusts_header_hints() ? 1U : 0U) << c.trust;
    EXPECT_EQ(plan->routing.strict_priority, config_.trusts_header_hints() ? 2U : 0U) << c.trust;
    EXPECT_EQ(plan->answer.ignored_fields, c.ignored) << c.trust;
  }
}

TEST_F(PrepareTest, AListOfAllowedWorkersIsBounded) {
  const auto with_ids = [&](size_t count) {
    std::string list;
    for (size_t i = 1; i <= count; ++i) {
      list += (list.empty() ? "" : ",") + std::to_string(i);
    }
    http_ = net::HttpRequest("POST", "/v1/chat/completions");
    http_.add_header("x-stator-allowed-worker-ids", list);
    return chat(chat_body());
  };
  const auto most = with_ids(1024);
  ASSERT_TRUE(most.has_value()) << most.error().message();
  EXPECT_EQ(most->routing.allowed.size(), 1024U);
  const auto refused = with_ids(1025);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message(), HasSubstr("at most 1024"));
}

TEST_F(PrepareTest, AnAdapterHasItsOwnBlocksNameAndWorkers) {
  const std::string body = completion_body(
      R"("prompt":"one two three four five six seven eight nine ten eleven twelve thirteen fourteen")");
  const auto base = completion(body);
  adapter_ = "poet";
  const auto adapted = completion(body);
  ASSERT_TRUE(adapted.has_value());
  EXPECT_EQ(adapted->prompts, base->prompts);
  EXPECT_NE(adapted->sequences, base->sequences);
  EXPECT_EQ(adapted->sequences.front(),
            encoder_.hash_ids(adapted->prompts.front(), *model_, blocks::hash_seed("poet", ""))
                .sequences);
  EXPECT_EQ(adapted->answer.model, "poet");
  EXPECT_EQ(adapted->routing.required_taints, std::vector<std::string>{adapter_taint("poet")});
}

TEST_F(PrepareTest, AWorkerListThatIsNoneIsRefused) {
  for (const char* list : {"x", "3,x", "3x", "3,-1", ",3"}) {
    http_ = net::HttpRequest("POST", "/v1/chat/completions");
    http_.add_header("x-stator-allowed-worker-ids", list);
    const auto plan = chat(chat_body());
    ASSERT_FALSE(plan.has_value()) << list;
    EXPECT_EQ(plan.error().code(), Code::kInvalidArgument);
  }
}

TEST_F(PrepareTest, EchoIsTheTextOfThePrompt) {
  const auto plan = completion(completion_body(R"("prompt":["one","two"],"echo":true)"));
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->echo, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(plan->answer.choices, 2U);
  EXPECT_FALSE(plan->prompt_logprobs);
}

TEST_F(PrepareTest, EchoWithLogprobsNeedsAnEngineThatTellsThemOfPrompts) {
  const std::string body = completion_body(R"("prompt":"one","echo":true,"logprobs":1)");
  const auto refused = completion(body);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kUnsupported);
  EXPECT_EQ(refused.error().param, "echo");

  model_->prompt_logprobs = true;
  const auto plan = completion(body);
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  EXPECT_TRUE(plan->prompt_logprobs);
  EXPECT_FALSE(completion(completion_body(R"("prompt":"one","logprobs":1)"))->prompt_logprobs);
}

TEST_F(PrepareTest, TokenFiltersNeedAnEngineThatFollowsThem) {
  for (const std::string field : {R"("allowed_token_ids":[5])", R"("bad_words":["x"])"}) {
    const std::string body = completion_body(R"("prompt":"one",)" + field);
    model_->token_filters = false;
    const auto refused = completion(body);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code(), Code::kUnsupported);
    EXPECT_THAT(field, HasSubstr(refused.error().param));
    model_->token_filters = true;
    EXPECT_TRUE(completion(body).has_value());
  }
}

TEST_F(PrepareTest, WithoutTokensToWriteAnEngineIsAskedForOne) {
  const auto plan = completion(completion_body(R"("prompt":"one","echo":true,"max_tokens":0)"));
  ASSERT_TRUE(plan.has_value()) << plan.error().message();
  EXPECT_TRUE(plan->writes_nothing);
  EXPECT_EQ(plan->stop.front().max_tokens, 1U);
}

TEST_F(PrepareTest, ASuffixNeedsTokensThatMarkAGap) {
  const auto refused = completion(completion_body(R"("prompt":"one","suffix":"two")"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace stator::frontend
