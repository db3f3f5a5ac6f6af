// SPDX-License-Identifier: Apache-2.0
#include "stator/api/request_parser.h"

#include <gtest/gtest.h>

#include "stator/api/test/request_cases.h"

namespace stator::api {
namespace {

std::string with(std::string_view extra) {
  std::string body = R"({"model":"m","prompt":"p")";
  if (!extra.empty()) {
    body.append(",").append(extra);
  }
  return body + "}";
}

std::string with_prompt(std::string_view prompt) {
  return R"({"model":"m","prompt":)" + std::string(prompt) + "}";
}

CompletionRequest parsed(std::string body, const ParseLimits& limits = {}) {
  auto result = parse_completion_request(body, limits);
  if (!result.has_value()) {
    ADD_FAILURE() << body << " → " << result.error().message();
    return {};
  }
  return std::move(*result);
}

void expect_refused(std::string body, const Refusal& refusal, const ParseLimits& limits = {}) {
  expect_refusal(parse_completion_request(body, limits), refusal, body);
}

std::string malformed_message(std::string body) {
  auto result = parse_completion_request(body, {});
  if (result.has_value()) {
    return "accepted";
  }
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(result.error().param, "");
  return result.error().message();
}

// ---- completions

TEST(CompletionRequest, ReadsEveryFormOfPrompt) {
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(parsed(with_prompt(R"("a\u0000b")")).prompts,
            (std::vector<Prompt>{std::string("a\0b", 3)}));
  EXPECT_EQ(parsed(with_prompt(R"(["a","b"])")).prompts,
            (std::vector<Prompt>{std::string("a"), std::string("b")}));
  EXPECT_EQ(parsed(with_prompt("[1,4294967295]")).prompts,
            (std::vector<Prompt>{Ids{1, 4294967295}}));
  EXPECT_EQ(parsed(with_prompt("[[1],[2,3]]")).prompts, (std::vector<Prompt>{Ids{1}, Ids{2, 3}}));
}

TEST(CompletionRequest, RefusesBrokenPrompts) {
  const RuleCase cases[] = {
      {"null", "prompt", "is required"},
      {"1", "prompt", "must be a string or an array, not a number"},
      {"\"\"", "prompt", "must not be empty"},
      {"[]", "prompt", "must not be empty"},
      {"[\"a\",\"\"]", "prompt[1]", "must not be empty"},
      {"[[1],[]]", "prompt[1]", "must not be empty"},
      {"[1,\"a\"]", "prompt[1]", "must be a number, not a string"},
      {"[\"a\",1]", "prompt[1]", "must be a string, not a number"},
      {"[[1],2]", "prompt[1]", "must be an array, not a number"},
      {"[null]", "prompt[0]", "must be a string, a token id or an array of token ids"},
      {"[{}]", "prompt[0]", "must be a string, a token id or an array of token ids"},
      {"[1.5]", "prompt[0]", "must be a whole number"},
      {"[-1]", "prompt[0]", "must be from 0 to 4294967295"},
      {"[[1,\"a\"]]", "prompt[0][1]", "must be a token id, not a string"},
  };
  for (const RuleCase& c : cases) {
    expect_refused(with_prompt(c.extra), rule(c));
  }
  expect_refused(R"({"model":"m"})", {Code::kInvalidArgument, "prompt", "is required"});
}

TEST(CompletionRequest, ChecksItsOwnFields) {
  const RuleCase refused[] = {
      {R"("logprobs":6)", "logprobs", "must be from 0 to 5"},
      {R"("logprobs":true)", "logprobs", "must be a number, not a boolean"},
      {R"("echo":1)", "echo", "must be a boolean"},
      {R"("best_of":21)", "best_of", "must be from 0 to 20"},
      {R"("n":3,"best_of":2)", "best_of", "must be at least n, 3"},
      {R"("best_of":2,"stream":true)", "best_of", "above n cannot be streamed"},
      {R"("best_of":2,"temperature":0)", "best_of", "must be n when temperature is 0"},
      {R"("best_of":2,"nvext":{"extra_fields":["completion_token_ids"]})", "best_of", "must be n"},
      {R"("prompt":["a","b","c","d","e","f","g"],"best_of":20)", "prompt", "times best_of"},
      {R"("prompt_logprobs":21)", "prompt_logprobs", "must be from 0 to 20"},
      {R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs", "when stream is true"},
      {R"("detokenize":false,"stop":"x")", "stop", "when detokenize is false"},
      {R"("detokenize":false,"n":2)", "n", "must be 1"},
      {R"("n":2,"nvext":{"extra_fields":["completion_token_ids"]})", "n", "must be 1"},
      {R"("suffix":1)", "suffix", "must be a string"},
      {R"("suffix":"x","echo":true)", "suffix", "exclude each other"},
      {R"("max_tokens":0,"min_tokens":1)", "min_tokens", "must be at most max_tokens, 0"},
  };
  for (const RuleCase& c : refused) {
    expect_refused(with(c.extra), rule(c));
  }
  const RuleCase unsupported[] = {
      {R"("prompt_embeds":"AAAA")", "prompt_embeds", "is not supported"},
      {R"("response_format":{"type":"json_object"})", "response_format", "needs guided decoding"},
  };
  for (const RuleCase& c : unsupported) {
    expect_refused(with(c.extra), rule(c, Code::kUnsupported));
  }
  expect_refused(with("\"suffix\":\"" + std::string(10001, 'x') + "\""),
                 {Code::kInvalidArgument, "suffix", "at most 10000 characters"});
  EXPECT_TRUE(parsed(with(R"("echo":true,"suffix":"","best_of":0)")).echo);
  EXPECT_TRUE(parsed(with(R"("echo":true,"logprobs":1)")).echo);
  EXPECT_EQ(parsed(with(R"("n":2,"best_of":20)")).best_of, 20U);
  EXPECT_EQ(parsed(with(R"("prompt_logprobs":0)")).options.prompt_logprobs, 0U);
  const CompletionRequest ids = parsed(with(R"("detokenize":false)"));
  EXPECT_FALSE(ids.options.detokenize);
  EXPECT_TRUE(ids.options.nvext.wants_extra_field("completion_token_ids"));
  const CompletionRequest streamed =
      parsed(with(R"("stream":true,"nvext":{"extra_fields":["prompt_logprobs"]})"));
  EXPECT_EQ(streamed.options.prompt_logprobs, 0U);
  EXPECT_EQ(parsed(with(R"("suffix":"x")")).suffix, "x");
  EXPECT_EQ(parsed(with(R"("max_tokens":0)")).options.max_tokens, 0U);
  EXPECT_EQ(parsed(with(R"("logprobs":5,"n":2,"best_of":2)")).options.sampling.logprobs, 5U);
}

TEST(CompletionRequest, LimitsTheNumberOfChoices) {
  std::string prompts = "[";
  for (int i = 0; i < 64; ++i) {
    prompts.append(i == 0 ? "\"p\"" : ",\"p\"");
  }
  prompts += "]";
  const auto body = [&](int n) {
    return R"({"model":"m","n":)" + std::to_string(n) + ",\"prompt\":" + prompts + "}";
  };
  EXPECT_EQ(parsed(body(2)).prompts.size(), 64U);
  expect_refused(body(3), {Code::kInvalidArgument, "prompt", "at most 128 choices, not 64 x 3"});
}

TEST(CompletionRequest, AllowsTokenDataInsteadOfAPrompt) {
  const CompletionRequest request = parsed(R"({"model":"m","nvext":{"token_data":[1,2]}})");
  EXPECT_TRUE(request.prompts.empty());
  EXPECT_EQ(request.options.nvext.token_data, (std::vector<TokenId>{1, 2}));
  expect_refused(R"({"model":"m","prompt":["a","b"],"nvext":{"token_data":[1]}})",
                 {Code::kInvalidArgument, "prompt", "must be a single one"});
  expect_refused(
      R"({"model":"m","prompt":["a","b"],"nvext":{"extra_fields":["completion_token_ids"]}})",
      {Code::kInvalidArgument, "prompt", "must be a single one"});
}

TEST(CompletionRequest, ChecksPromptIdsAgainstTheVocabulary) {
  expect_refused(with_prompt("[[1],[50]]"), {Code::kInvalidArgument, "prompt", "token id 50"},
                 {.vocab_size = 50});
}

TEST(Limits, SaltsAndBiasesAreNoLongerThanWorkersTake) {
  const std::string longest(kMaxCacheSaltBytes, 's');
  EXPECT_EQ(parsed(with("\"cache_salt\":\"" + longest + '"')).options.cache_salt, longest);
  const Refusal salt{Code::kInvalidArgument, "cache_salt", "must have at most 1024 bytes"};
  expect_refused(with("\"cache_salt\":\"s" + longest + '"'), salt);
  expect_refused(with("\"nvext\":{\"cache_salt\":\"s" + longest + "\"}"),
                 {Code::kInvalidArgument, "nvext.cache_salt", "must have at most 1024 bytes"});

  std::string biases = "\"0\":1";
  for (uint32_t id = 1; id < kMaxLogitBiases; ++id) {
    biases += ",\"" + std::to_string(id) + "\":1";
  }
  EXPECT_EQ(parsed(with("\"logit_bias\":{" + biases + '}')).options.sampling.logit_bias.size(),
            kMaxLogitBiases);
  expect_refused(with("\"logit_bias\":{" + biases + ",\"9999\":1}"),
                 {Code::kInvalidArgument, "logit_bias", "must have at most 4096 entries"});
}

// ---- nvext

TEST(Nvext, ReadsEveryField) {
  const CompletionRequest request = parsed(with(R"("cache_salt":"root","nvext":{
      "greed_sampling":true,"use_raw_prompt":true,"annotations":["request_id","query_instance_id:x"],
      "backend_instance_id":18446744073709551615,"prefill_worker_id":2,"decode_worker_id":3,
      "dp_rank":4,"prefill_dp_rank":4294967295,"token_data":[7],"max_thinking_tokens":9,
      "cache_salt":"inner","extra_fields":["worker_id","timing"],
      "agent_hints":{"priority":-5,"strict_priority":1,"osl":100,"speculative_prefill":true,
                     "latency_sensitivity":0.5},
      "request_timestamp_ms":12.5,
      "routing_constraints":{"required_taints":["a"],"preferred_taints":{"b":0.5}},
      "router":{"ttft_target":100,"itl_target":10.5},
      "router_config_override":{"overlap_score_credit":0.5,"router_temperature":0,
        "assume_kv_reuse":false,"track_prefill_tokens":true,"shared_cache_multiplier":2,
        "prefill_load_scale":1.5}})"));

  const Nvext& nvext = request.options.nvext;
  EXPECT_EQ(request.options.sampling.temperature, 0.0F);
  EXPECT_EQ(request.options.sampling.top_k, 1);
  EXPECT_EQ(request.options.cache_salt, "inner");
  EXPECT_TRUE(nvext.use_raw_prompt);
  EXPECT_TRUE(nvext.wants_annotation("request_id"));
  EXPECT_TRUE(nvext.wants_annotation("query_instance_id"));
  EXPECT_FALSE(nvext.wants_annotation("request"));
  EXPECT_EQ(nvext.backend_instance_id, UINT64_MAX);
  EXPECT_EQ(nvext.prefill_worker_id, 2U);
  EXPECT_EQ(nvext.decode_worker_id, 3U);
  EXPECT_EQ(nvext.dp_rank, 4U);
  EXPECT_FALSE(nvext.prefill_dp_rank.has_value());
  EXPECT_EQ(nvext.token_data, std::vector<TokenId>{7});
  EXPECT_EQ(nvext.max_thinking_tokens, 9U);
  EXPECT_TRUE(nvext.wants_extra_field("timing"));
  EXPECT_FALSE(nvext.wants_extra_field("stop_reason"));
  EXPECT_EQ(nvext.agent_hints.priority, -5);
  EXPECT_EQ(nvext.agent_hints.strict_priority, 1U);
  EXPECT_EQ(nvext.agent_hints.expected_output_tokens, 100U);
  EXPECT_TRUE(nvext.agent_hints.speculative_prefill);
  EXPECT_EQ(nvext.agent_hints.latency_sensitivity, 0.5);
  EXPECT_EQ(nvext.request_timestamp_ms, 12.5);
  EXPECT_EQ(nvext.routing_constraints.required_taints, std::vector<std::string>{"a"});
  ASSERT_EQ(nvext.routing_constraints.preferred_taints.size(), 1U);
  EXPECT_EQ(nvext.routing_constraints.preferred_taints[0].first, "b");
  EXPECT_EQ(nvext.router_overrides.ttft_target_ms, 100.0);
  EXPECT_EQ(nvext.router_overrides.itl_target_ms, 10.5);
  EXPECT_EQ(nvext.router_overrides.overlap_score_credit, 0.5);
  EXPECT_EQ(nvext.router_overrides.prefill_load_scale, 1.5);
  EXPECT_EQ(nvext.router_overrides.router_temperature, 0.0);
  EXPECT_EQ(nvext.router_overrides.shared_cache_multiplier, 2.0);
  EXPECT_EQ(nvext.router_overrides.assume_kv_reuse, false);
  EXPECT_EQ(nvext.router_overrides.track_prefill_tokens, true);
}

TEST(Nvext, MapsTheDeprecatedOverlapWeight) {
  const RouterOverrides zero =
      parsed(with(R"("nvext":{"router_config_override":{"overlap_score_weight":0}})"))
          .options.nvext.router_overrides;
  EXPECT_EQ(zero.prefill_load_scale, 0.0);
  EXPECT_EQ(zero.overlap_score_credit, 0.0);
  const RouterOverrides two =
      parsed(with(R"("nvext":{"router_config_override":{"overlap_score_weight":2}})"))
          .options.nvext.router_overrides;
  EXPECT_EQ(two.prefill_load_scale, 2.0);
  EXPECT_FALSE(two.overlap_score_credit.has_value());
}

TEST(Nvext, RefusesUnknownKeysAndWrongTypes) {
  const RuleCase cases[] = {
      {R"("nvext":{"x":1})", "nvext.x", "is unknown"},
      {R"("nvext":{"agent_hints":{"x":1}})", "nvext.agent_hints.x", "is unknown"},
      {R"("nvext":{"router":{"x":1}})", "nvext.router.x", "is unknown"},
      {R"("nvext":{"router_config_override":{"x":1}})", "nvext.router_config_override.x",
       "is unknown"},
      {R"("nvext":{"routing_constraints":{"x":1}})", "nvext.routing_constraints.x", "is unknown"},
      {R"("nvext":{"extra_fields":["x"]})", "nvext.extra_fields[0]", "must be one of"},
      {R"("nvext":{"annotations":"x"})", "nvext.annotations", "must be an array"},
      {R"("nvext":{"annotations":[1]})", "nvext.annotations[0]", "must be a string"},
      {R"("nvext":{"backend_instance_id":-1})", "nvext.backend_instance_id", "must be from 0"},
      {R"("nvext":{"backend_instance_id":18446744073709551616})", "nvext.backend_instance_id",
       "must be from 0 to 18446744073709551615"},
      {R"("nvext":{"decode_worker_id":"1"})", "nvext.decode_worker_id", "must be a number"},
      {R"("nvext":{"dp_rank":4294967296})", "nvext.dp_rank", "must be from 0 to 4294967295"},
      {R"("nvext":{"token_data":[1.5]})", "nvext.token_data[0]", "must be a whole number"},
      {R"("nvext":{"greed_sampling":1})", "nvext.greed_sampling", "must be a boolean"},
      {R"("nvext":{"agent_hints":{"priority":1.5}})", "nvext.agent_hints.priority",
       "must be a whole number"},
      {R"("nvext":{"agent_hints":{"osl":-1}})", "nvext.agent_hints.osl", "must be from 0"},
  };
  for (const RuleCase& c : cases) {
    expect_refused(with(c.extra), rule(c));
  }
}

TEST(Nvext, IsDroppedWhenSwitchedOff) {
  const CompletionRequest request = parsed(
      with(R"("cache_salt":"s","nvext":{"unknown":1,"dp_rank":3})"), {.nvext_enabled = false});
  EXPECT_FALSE(request.options.nvext.dp_rank.has_value());
  EXPECT_EQ(request.options.cache_salt, "");
  EXPECT_EQ(request.options.ignored_fields, (std::vector<std::string>{"nvext", "cache_salt"}));
  const CompletionRequest strict =
      parsed(with(R"("nvext":{"dp_rank":3})"), {.strict_fields = true, .nvext_enabled = false});
  EXPECT_EQ(strict.options.ignored_fields, std::vector<std::string>{"nvext"})
      << "a known field that is not trusted is no unknown one";
  EXPECT_TRUE(
      parsed(with(R"("stream":false)"), {.nvext_enabled = false}).options.ignored_fields.empty());
}

TEST(Nvext, ListsThatAreComparedWithEveryWorkerAreBounded) {
  const auto names = [](size_t count, std::string_view form) {
    std::string list;
    for (size_t i = 0; i < count; ++i) {
      list += fmt::format(fmt::runtime(form), i == 0 ? "" : ",", i);
    }
    return list;
  };
  const auto required = [&](size_t count) {
    return with(R"("nvext":{"routing_constraints":{"required_taints":[)" +
                names(count, R"({}"t{}")") + "]}}");
  };
  const auto preferred = [&](size_t count) {
    return with(R"("nvext":{"routing_constraints":{"preferred_taints":{)" +
                names(count, R"({}"t{}":1)") + "}}}");
  };
  EXPECT_EQ(parsed(required(1024)).options.nvext.routing_constraints.required_taints.size(), 1024U);
  EXPECT_EQ(parsed(preferred(1024)).options.nvext.routing_constraints.preferred_taints.size(),
            1024U);
  const RuleCase too_many_required{"", "nvext.routing_constraints.required_taints",
                                   "must have at most 1024"};
  const RuleCase too_many_preferred{"", "nvext.routing_constraints.preferred_taints",
                                    "must have at most 1024"};
  expect_refused(required(1025), rule(too_many_required));
  expect_refused(preferred(1025), rule(too_many_preferred));
}

// ---- unknown fields

TEST(IgnoredFields, AreListedInOrderAndSafeForAHeader) {
  const CompletionRequest request =
      parsed(with(R"("zeta":{"a":[1]},"new\r\nfield,x":1,"zeta":2,"ümlaut":null)"));
  EXPECT_EQ(request.options.ignored_fields,
            (std::vector<std::string>{"zeta", "new??field?x", "??mlaut"}));
}

TEST(IgnoredFields, AreBounded) {
  std::string extra = "\"" + std::string(5000, 'k') + "\":1";
  for (int i = 0; i < 200; ++i) {
    extra += ",\"f" + std::to_string(i) + "\":1";
  }
  const CompletionRequest request = parsed(with(extra));
  EXPECT_EQ(request.options.ignored_fields.size(), kMaxIgnoredFields);
  EXPECT_EQ(request.options.ignored_fields[0].size(), 64U);
}

TEST(IgnoredFields, AreErrorsWhenStrict) {
  expect_refused(with(R"("zeta":1,"eta":2)"),
                 {Code::kInvalidArgument, "zeta", "unknown fields of this request: zeta, eta"},
                 {.strict_fields = true});
}

// ---- JSON

TEST(RequestJson, NamesThePositionOfASyntaxError) {
  EXPECT_EQ(malformed_message(""), "malformed JSON at byte 0: text ends where a value is expected");
  EXPECT_EQ(malformed_message(R"({"model":"m",})"),
            "malformed JSON at byte 13: expected a key in double quotes");
  EXPECT_EQ(malformed_message(R"({"temperature":NaN})"),
            "malformed JSON at byte 15: expected a value");
  EXPECT_EQ(malformed_message(R"({"unknown":[1,{"a":tru}]})"),
            "malformed JSON at byte 19: unknown literal");
  EXPECT_EQ(malformed_message(R"({"model":"m","prompt":"p"} x)"),
            "malformed JSON at byte 27: something follows the JSON value");
  EXPECT_EQ(malformed_message(R"({"model":"m","prompt":[)"),
            "malformed JSON at byte 23: text ends where a value is expected");
}

TEST(RequestJson, RefusesRootsThatAreNoObject) {
  expect_refused("[]",
                 {Code::kInvalidArgument, "", "request body must be an object, not an array"});
}

TEST(RequestJson, LimitsDepth) {
  const auto nested = [](size_t depth) {
    return with("\"x\":" + std::string(depth, '[') + std::string(depth, ']'));
  };
  parsed(nested(127));
  EXPECT_TRUE(malformed_message(nested(128)).ends_with("nested too deeply"));
}

TEST(RequestJson, EscapesRawControlBytes) {
  std::string body = "{\"model\":\"m\",\n\"prompt\":\"a\nb\tc\x01\\\"\"}";
  auto result = parse_completion_request(body, {});
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(result->options.repair, JsonRepair::kControlBytes);
  EXPECT_EQ(std::get<std::string>(result->prompts[0]), "a\nb\tc\x01\"");
}

TEST(RequestJson, ReplacesBrokenUtf8) {
  std::string body = "{\"model\":\"m\",\"prompt\":\"a\xFF\nb\"}";
  auto result = parse_completion_request(body, {});
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(result->options.repair, JsonRepair::kInvalidUtf8);
  EXPECT_EQ(std::get<std::string>(result->prompts[0]), "a\xEF\xBF\xBD\nb");
}

TEST(RequestJson, SkipsAByteOrderMark) {
  EXPECT_EQ(parsed("\xEF\xBB\xBF" + with("")).options.repair, JsonRepair::kNone);
}

TEST(RequestJson, GivesUpWhenMendingDoesNotHelp) {
  EXPECT_TRUE(malformed_message("{\"a\":\"\n\" 1}").starts_with("malformed JSON"));
  EXPECT_TRUE(malformed_message("{\"a\":\x01}").starts_with("malformed JSON"));
}

TEST(RequestJson, ReadsEscapedKeys) {
  EXPECT_EQ(parsed(R"({"mod\u0065l":"m","prompt":"p","nv\u0065xt":{"dp_r\u0061nk":3}})")
                .options.nvext.dp_rank,
            3U);
}

// ---- tokenize, detokenize

TEST(TokenizeRequest, TakesAPromptOrMessages) {
  std::string text = R"({"model":"m","prompt":"p","return_token_strs":true,"x":1})";
  auto prompt = parse_tokenize_request(text, {});
  ASSERT_TRUE(prompt.has_value());
  EXPECT_EQ(prompt->prompt, "p");
  EXPECT_TRUE(prompt->add_special_tokens);
  EXPECT_TRUE(prompt->return_token_strs);
  EXPECT_EQ(prompt->ignored_fields, std::vector<std::string>{"x"});

  std::string conversation = R"({"model":"m","messages":[{"role":"user","content":"x"}],
      "tools":[{"type":"function","function":{"name":"f"}}]})";
  auto messages = parse_tokenize_request(conversation, {});
  ASSERT_TRUE(messages.has_value());
  EXPECT_FALSE(messages->prompt.has_value());
  EXPECT_FALSE(messages->add_special_tokens);
  EXPECT_EQ(messages->chat.message_count, 1U);
  EXPECT_FALSE(messages->chat.tools_json.empty());
}

TEST(TokenizeRequest, RefusesBothNeitherAndWrongTypes) {
  const RuleCase cases[] = {
      {R"({"model":"m"})", "prompt", "or messages is required"},
      {R"({"model":"m","prompt":"p","messages":[{"role":"user","content":"x"}]})", "prompt",
       "not both"},
      {R"({"prompt":"p"})", "model", "is required"},
      {R"({"model":"m","prompt":1})", "prompt", "must be a string"},
      {R"({"model":"m","prompt":"p","add_special_tokens":1})", "add_special_tokens",
       "must be a boolean"},
      {R"({"model":"m","messages":[{}]})", "messages[0].role", "is required"},
  };
  for (const RuleCase& c : cases) {
    std::string body(c.extra);
    expect_refusal(parse_tokenize_request(body, {}), rule(c), c.extra);
  }
  std::string body = R"({"model":"m","prompt":"p","x":1})";
  expect_refusal(parse_tokenize_request(body, {.strict_fields = true}),
                 {Code::kInvalidArgument, "x", "is unknown"}, body);
}

TEST(DetokenizeRequest, TakesTokenIds) {
  std::string body = R"({"model":"m","tokens":[1,2]})";
  auto request = parse_detokenize_request(body, {});
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->tokens, (std::vector<TokenId>{1, 2}));
  const RuleCase cases[] = {
      {R"({"model":"m"})", "tokens", "is required"},
      {R"({"tokens":[]})", "model", "is required"},
      {R"({"model":"m","tokens":"1"})", "tokens", "must be an array"},
      {R"({"model":"m","tokens":[true]})", "tokens[0]", "must be a token id"},
      {R"({"model":"m","tokens":[-1]})", "tokens[0]", "must be from 0"},
  };
  for (const RuleCase& c : cases) {
    std::string refused(c.extra);
    expect_refusal(parse_detokenize_request(refused, {}), rule(c), c.extra);
  }
}

}  // namespace
}  // namespace stator::api
