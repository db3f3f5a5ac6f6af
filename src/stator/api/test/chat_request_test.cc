// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <gtest/gtest.h>

#include "stator/api/request_parser.h"
#include "stator/api/test/request_cases.h"

namespace stator::api {
namespace {

constexpr std::string_view kUser = R"("messages":[{"role":"user","content":"hi"}])";

// A valid request with `extra` members behind the required ones.
std::string chat(std::string_view extra) {
  std::string body = R"({"model":"m",)" + std::string(kUser);
  if (!extra.empty()) {
    body.append(",").append(extra);
  }
  return body + "}";
}

std::string with_messages(std::string_view messages) {
  return R"({"model":"m","messages":)" + std::string(messages) + "}";
}

ChatRequest parsed(std::string body, const ParseLimits& limits = {}) {
  auto result = parse_chat_request(body, limits);
  if (!result.has_value()) {
    ADD_FAILURE() << body << " → " << result.error().message();
    return {};
  }
  return std::move(*result);
}

void expect_refused(std::string body, const Refusal& refusal, const ParseLimits& limits = {}) {
  expect_refusal(parse_chat_request(body, limits), refusal, body);
}

TEST(ChatRequest, LeavesWhatTheClientDidNotSendUnset) {
  const ChatRequest request = parsed(chat(""));

  EXPECT_EQ(request.options.model, "m");
  EXPECT_EQ(request.chat.messages_json, R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(request.chat.message_count, 1U);
  EXPECT_EQ(request.chat.last_role, Role::kUser);
  EXPECT_TRUE(request.chat.add_generation_prompt);
  EXPECT_FALSE(request.options.stream);
  EXPECT_EQ(request.options.n, 1U);
  EXPECT_FALSE(request.options.sampling.temperature || request.options.sampling.top_p ||
               request.options.sampling.top_k || request.options.sampling.seed ||
               request.options.sampling.logprobs || request.options.max_tokens ||
               request.options.min_tokens || request.options.skip_special_tokens);
  EXPECT_EQ(request.tool_choice.kind, ToolChoice::Kind::kDefault);
  EXPECT_EQ(request.options.repair, JsonRepair::kNone);
}

TEST(ChatRequest, ReadsEverySharedOption) {
  const ChatRequest request = parsed(chat(R"("stream":true,
      "stream_options":{"include_usage":true,"continuous_usage_stats":true,"new":1},
      "temperature":0.5,"top_p":0.25,"top_k":40,"min_p":0.125,"presence_penalty":-2,
      "frequency_penalty":2,"repetition_penalty":1.5,"length_penalty":1,"seed":-9223372036854775808,
      "logit_bias":{"7":-100,"3":1.5},"logprobs":true,"top_logprobs":20,"n":2,
      "stop":["a",9],"stop_token_ids":[9,4],"max_tokens":5,"max_completion_tokens":6,
      "min_tokens":6,"ignore_eos":true,"include_stop_str_in_output":true,
      "skip_special_tokens":false,"return_tokens_as_token_ids":true,"user":"u","cache_salt":"s",
      "parallel_tool_calls":false,"reasoning_effort":"low","thinking":{"type":"enabled"},
      "chat_template_kwargs":{"b":1.0,"a":2},"documents":[{}],"metadata":{},"store":true,
      "service_tier":"auto","modalities":["text"],"response_format":{"type":"text"})"));

  const GenerateOptions& options = request.options;
  EXPECT_TRUE(options.stream && options.include_usage && options.continuous_usage_stats);
  EXPECT_EQ(options.sampling.temperature, 0.5F);
  EXPECT_EQ(options.sampling.top_p, 0.25F);
  EXPECT_EQ(options.sampling.top_k, 40);
  EXPECT_EQ(options.sampling.min_p, 0.125F);
  EXPECT_EQ(options.sampling.presence_penalty, -2.0F);
  EXPECT_EQ(options.sampling.frequency_penalty, 2.0F);
  EXPECT_EQ(options.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(options.sampling.seed, INT64_MIN);
  EXPECT_EQ(options.sampling.logit_bias,
            (std::vector<std::pair<TokenId, float>>{{3, 1.5F}, {7, -100.0F}}));
  EXPECT_EQ(options.sampling.logprobs, 20U);
  EXPECT_EQ(options.n, 2U);
  EXPECT_EQ(options.stop, std::vector<std::string>{"a"});
  EXPECT_EQ(options.stop_token_ids, (std::vector<TokenId>{4, 9}));
  EXPECT_EQ(options.max_tokens, 6U);
  EXPECT_EQ(options.min_tokens, 6U);
  EXPECT_TRUE(options.ignore_eos && options.include_stop_str_in_output);
  EXPECT_EQ(options.skip_special_tokens, false);
  EXPECT_TRUE(options.return_tokens_as_token_ids);
  EXPECT_EQ(options.user, "u");
  EXPECT_EQ(options.cache_salt, "s");
  EXPECT_FALSE(request.parallel_tool_calls);
  EXPECT_EQ(request.chat.reasoning_effort, "low");
  EXPECT_EQ(request.chat.thinking_json, R"({"type":"enabled"})");
  EXPECT_EQ(request.chat.chat_template_kwargs_json, R"({"b":1.0,"a":2})");
  EXPECT_EQ(request.chat.documents_json, "[{}]");
  EXPECT_EQ(request.response_format_json, R"({"type":"text"})");
  EXPECT_EQ(options.ignored_fields,
            (std::vector<std::string>{"length_penalty", "user", "metadata", "store"}));
}

TEST(ChatRequest, NamesWhatHasNoEffect) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"("user":"u")", "user"},
      {R"("metadata":{"a":"b"})", "metadata"},
      {R"("store":true)", "store"},
      {R"("store":false)", ""},
      {R"("service_tier":"flex")", "service_tier"},
      {R"("service_tier":"auto")", ""},
      {R"("prediction":{"type":"content"})", "prediction"},
      {R"("audio":{})", "audio"},
      {R"("length_penalty":0.5)", "length_penalty"},
      {R"("mm_processor_kwargs":{})", "mm_processor_kwargs"},
      {R"("media_io_kwargs":{})", "media_io_kwargs"},
      {R"("nvext":{"dp_rank":1})", ""},  // the rank, at whichever worker
      {R"("nvext":{"dp_rank":1,"backend_instance_id":2})", ""},
      {R"("nvext":{"request_timestamp_ms":1})", "nvext.request_timestamp_ms"},
      {R"("nvext":{"router":{"itl_target":1}})", "nvext.router.itl_target"},
      {R"("nvext":{"agent_hints":{"speculative_prefill":true}})",
       "nvext.agent_hints.speculative_prefill"},
  };
  for (const auto& [field, name] : cases) {
    const auto& ignored = parsed(chat(field)).options.ignored_fields;
    EXPECT_EQ(ignored, name.empty() ? std::vector<std::string>()
                                    : std::vector<std::string>{std::string(name)})
        << field;
  }
}

TEST(ChatRequest, KeepsWhichTokensAndWordsTheAnswerMayHave) {
  const auto sampling =
      parsed(chat(R"("allowed_token_ids":[7,3,7],"bad_words":["a b","c"])")).options.sampling;
  EXPECT_EQ(sampling.allowed_token_ids, (std::vector<TokenId>{3, 7}));
  EXPECT_EQ(sampling.bad_words, (std::vector<std::string>{"a b", "c"}));
  EXPECT_EQ(sampling.resolve({}).allowed_token_ids, sampling.allowed_token_ids);
  EXPECT_EQ(sampling.resolve({}).bad_words, sampling.bad_words);
  expect_refused(chat(R"("bad_words":["a",""])"),
                 {Code::kInvalidArgument, "bad_words[1]", "must have 1 to 256 bytes"});
}

TEST(ChatRequest, RefusesByNameWhatWouldChangeTheAnswer) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"("modalities":["text","audio"])", "modalities"},
      {R"("kv_transfer_params":{})", "kv_transfer_params"},
      {R"("nvext":{"extra_fields":["worker_id","routed_experts"]})", "nvext.extra_fields[1]"},
  };
  for (const auto& [field, name] : cases) {
    expect_refused(chat(field), {Code::kUnsupported, name, "support"});
  }
}

TEST(ChatRequest, TakesPriorityFromWhereverItIsGiven) {
  const auto priority = [](std::string_view field) {
    return parsed(chat(field)).options.nvext.agent_hints.priority;
  };

  EXPECT_EQ(priority(R"("priority":3)"), -3) << "vLLM's counts down";
  EXPECT_EQ(priority(R"("priority":3,"nvext":{"agent_hints":{"priority":7}})"), 7);
  EXPECT_EQ(priority(R"("nvext":{"agent_hints":{"latency_sensitivity":2.5}})"), 2);
  EXPECT_EQ(priority(R"("nvext":{"agent_hints":{"latency_sensitivity":2,"priority":1}})"), 1);
}

TEST(ChatRequest, TreatsNullAsAbsent) {
  const std::string_view fields[] = {"stream",
                                     "stream_options",
                                     "temperature",
                                     "top_p",
                                     "top_k",
                                     "min_p",
                                     "presence_penalty",
                                     "frequency_penalty",
                                     "repetition_penalty",
                                     "length_penalty",
                                     "seed",
                                     "logit_bias",
                                     "logprobs",
                                     "top_logprobs",
                                     "n",
                                     "stop",
                                     "stop_token_ids",
                                     "max_tokens",
                                     "max_completion_tokens",
                                     "min_tokens",
                                     "ignore_eos",
                                     "include_stop_str_in_output",
                                     "skip_special_tokens",
                                     "return_tokens_as_token_ids",
                                     "user",
                                     "cache_salt",
                                     "parallel_tool_calls",
                                     "reasoning_effort",
                                     "thinking",
                                     "chat_template_kwargs",
                                     "chat_template_args",
                                     "chat_template",
                                     "documents",
                                     "metadata",
                                     "store",
                                     "service_tier",
                                     "modalities",
                                     "audio",
                                     "prediction",
                                     "response_format",
                                     "tools",
                                     "tool_choice",
                                     "functions",
                                     "function_call",
                                     "nvext",
                                     "guided_json",
                                     "guided_regex",
                                     "guided_grammar",
                                     "guided_choice",
                                     "guided_decoding_backend",
                                     "guided_whitespace_pattern",
                                     "prompt_logprobs",
                                     "allowed_token_ids",
                                     "bad_words_token_ids",
                                     "logprob_token_ids",
                                     "detokenize",
                                     "use_beam_search",
                                     "mm_processor_kwargs",
                                     "media_io_kwargs",
                                     "add_generation_prompt",
                                     "continue_final_message"};
  for (const std::string_view field : fields) {
    const ChatRequest request = parsed(chat("\"" + std::string(field) + "\":null"));
    EXPECT_TRUE(request.options.ignored_fields.empty()) << field;
  }
}

struct WrongType {
  std::string_view field;
  std::string_view expected;
  std::string_view wrong;
  std::string_view found;
};

constexpr WrongType kWrongTypes[] = {
    {"model", "a string", "1", "a number"},
    {"messages", "an array", "{}", "an object"},
    {"stream", "a boolean", "\"true\"", "a string"},
    {"stream_options", "an object", "true", "a boolean"},
    {"temperature", "a number", "\"1\"", "a string"},
    {"top_p", "a number", "[]", "an array"},
    {"top_k", "a number", "{}", "an object"},
    {"min_p", "a number", "true", "a boolean"},
    {"presence_penalty", "a number", "\"\"", "a string"},
    {"frequency_penalty", "a number", "\"\"", "a string"},
    {"repetition_penalty", "a number", "\"\"", "a string"},
    {"length_penalty", "a number", "\"\"", "a string"},
    {"seed", "a number", "\"1\"", "a string"},
    {"logit_bias", "an object", "[]", "an array"},
    {"logprobs", "a boolean", "5", "a number"},
    {"top_logprobs", "a number", "true", "a boolean"},
    {"n", "a number", "\"2\"", "a string"},
    {"stop", "a string or an array", "1", "a number"},
    {"stop_token_ids", "an array", "1", "a number"},
    {"max_tokens", "a number", "\"9\"", "a string"},
    {"max_completion_tokens", "a number", "\"9\"", "a string"},
    {"min_tokens", "a number", "\"9\"", "a string"},
    {"ignore_eos", "a boolean", "1", "a number"},
    {"include_stop_str_in_output", "a boolean", "1", "a number"},
    {"skip_special_tokens", "a boolean", "1", "a number"},
    {"return_tokens_as_token_ids", "a boolean", "1", "a number"},
    {"user", "a string", "1", "a number"},
    {"cache_salt", "a string", "1", "a number"},
    {"parallel_tool_calls", "a boolean", "1", "a number"},
    {"reasoning_effort", "a string", "1", "a number"},
    {"thinking", "a boolean or an object", "1", "a number"},
    {"chat_template_kwargs", "an object", "[]", "an array"},
    {"chat_template_args", "an object", "[]", "an array"},
    {"chat_template", "a string", "1", "a number"},
    {"documents", "an array", "{}", "an object"},
    {"metadata", "an object", "[]", "an array"},
    {"store", "a boolean", "1", "a number"},
    {"service_tier", "a string", "1", "a number"},
    {"modalities", "an array", "\"text\"", "a string"},
    {"audio", "an object", "1", "a number"},
    {"prediction", "an object", "1", "a number"},
    {"response_format", "an object", "\"json\"", "a string"},
    {"tools", "an array", "{}", "an object"},
    {"tool_choice", "a string or an object", "1", "a number"},
    {"nvext", "an object", "[]", "an array"},
    {"guided_json", "an object or a string", "1", "a number"},
    {"guided_regex", "a string", "1", "a number"},
    {"guided_grammar", "a string", "1", "a number"},
    {"guided_choice", "an array of strings", "\"a\"", "a string"},
    {"structured_outputs", "an object", "1", "a number"},
    {"json_schema", "an object or a string", "1", "a number"},
    {"regex", "a string", "1", "a number"},
    {"ebnf", "a string", "1", "a number"},
    {"structural_tag", "an object or a string", "1", "a number"},
    {"guided_decoding_backend", "a string", "1", "a number"},
    {"guided_whitespace_pattern", "a string", "1", "a number"},
    {"prompt_logprobs", "a number", "true", "a boolean"},
    {"allowed_token_ids", "an array", "1", "a number"},
    {"bad_words_token_ids", "an array", "1", "a number"},
    {"logprob_token_ids", "an array", "1", "a number"},
    {"detokenize", "a boolean", "1", "a number"},
    {"use_beam_search", "a boolean", "1", "a number"},
    {"mm_processor_kwargs", "an object", "1", "a number"},
    {"media_io_kwargs", "an object", "1", "a number"},
    {"add_generation_prompt", "a boolean", "1", "a number"},
    {"continue_final_message", "a boolean", "1", "a number"},
};

TEST(ChatRequest, RefusesWrongTypesByName) {
  for (const WrongType& c : kWrongTypes) {
    const std::string name(c.field);
    const std::string message = "Validation: " + name + " must be " + std::string(c.expected) +
                                ", not " + std::string(c.found);
    expect_refused(chat("\"" + name + "\":" + std::string(c.wrong)),
                   {Code::kInvalidArgument, c.field, message});
  }
}

constexpr RuleCase kOutOfRange[] = {
    {R"("temperature":-0.1)", "temperature", "must be from 0 to 2"},
    {R"("temperature":2.1)", "temperature", "must be from 0 to 2"},
    {R"("temperature":1e400)", "temperature", "must be from 0 to 2"},
    {R"("top_p":0)", "top_p", "must be above 0 and at most 1"},
    {R"("top_p":1.01)", "top_p", "must be above 0 and at most 1"},
    {R"("top_k":-2)", "top_k", "must be from -1 to 2147483647"},
    {R"("top_k":1.0)", "top_k", "must be a whole number"},
    {R"("top_k":99999999999999999999)", "top_k", "must be from -1 to 2147483647"},
    {R"("min_p":-0.1)", "min_p", "must be from 0 to 1"},
    {R"("min_p":1.1)", "min_p", "must be from 0 to 1"},
    {R"("presence_penalty":2.5)", "presence_penalty", "must be from -2 to 2"},
    {R"("frequency_penalty":-2.5)", "frequency_penalty", "must be from -2 to 2"},
    {R"("repetition_penalty":0)", "repetition_penalty", "must be above 0 and at most 2"},
    {R"("repetition_penalty":2.5)", "repetition_penalty", "must be above 0 and at most 2"},
    // Above 0, but not as a float.
    {R"("repetition_penalty":1e-50)", "repetition_penalty", "must be above 0 and at most 2"},
    {R"("top_p":1e-50)", "top_p", "must be above 0 and at most 1"},
    {R"("length_penalty":3)", "length_penalty", "must be from -2 to 2"},
    {R"("n":0)", "n", "must be from 1 to 128"},
    {R"("n":129)", "n", "must be from 1 to 128"},
    {R"("n":2,"temperature":0)", "n", "must be 1 when temperature is 0"},
    {R"("n":2,"nvext":{"greed_sampling":true})", "n", "must be 1 when temperature is 0"},
    {R"("seed":9223372036854775808)", "seed", "must be from -9223372036854775808"},
    {R"("seed":1.5)", "seed", "must be a whole number"},
    {R"("logit_bias":{"1":101})", "logit_bias.1", "must be from -100 to 100"},
    {R"("logit_bias":{"x":1})", "logit_bias.x", "must be named by a token id"},
    {R"("logit_bias":{"-1":1})", "logit_bias.-1", "must be named by a token id"},
    {R"("logprobs":true,"top_logprobs":21)", "top_logprobs", "must be from 0 to 20"},
    {R"("top_logprobs":2)", "top_logprobs", "needs logprobs: true"},
    {R"("max_tokens":0)", "max_tokens", "must be from 1 to 1048576"},
    {R"("max_tokens":1048577)", "max_tokens", "must be from 1 to 1048576"},
    {R"("max_tokens":1e3)", "max_tokens", "must be a whole number"},
    {R"("max_completion_tokens":0)", "max_completion_tokens", "must be from 1 to 1048576"},
    {R"("min_tokens":-1)", "min_tokens", "must be from 0 to 1048576"},
    {R"("max_tokens":5,"min_tokens":6)", "min_tokens", "must be at most max_tokens, 5"},
    {R"("stop":"")", "stop", "must not be empty"},
    {R"("stop":["a",""])", "stop[1]", "must not be empty"},
    {R"("stop":[-1])", "stop[0]", "must be from 0 to 4294967295"},
    {R"("stop_token_ids":[4294967296])", "stop_token_ids[0]", "must be from 0 to 4294967295"},
    {R"("user":" ")", "user", "must not be blank"},
    {R"("stream_options":{"include_usage":true})", "stream_options",
     "is only allowed when stream is true"},
    {R"("thinking":{"type":"maybe"})", "thinking.type", "must be one of enabled, disabled"},
    {R"("response_format":{"type":"xml"})", "response_format.type", "must be one of text"},
    {R"("response_format":{})", "response_format.type", "must be one of text"},
    {R"("tool_choice":"some")", "tool_choice", "must be none, auto, required"},
    {R"("add_generation_prompt":true,"continue_final_message":true)", "continue_final_message",
     "cannot be combined with add_generation_prompt"},
    {R"("continue_final_message":true)", "continue_final_message", "needs an assistant message"},
};

TEST(ChatRequest, RefusesValuesOutOfRange) {
  for (const RuleCase& c : kOutOfRange) {
    expect_refused(chat(c.extra), rule(c));
  }
}

TEST(ChatRequest, AcceptsTheEdgesOfRanges) {
  for (const std::string_view extra : {R"("temperature":0)",
                                       R"("temperature":2)",
                                       R"("temperature":1e-400)",
                                       R"("top_p":1)",
                                       R"("top_k":-1)",
                                       R"("top_k":0)",
                                       R"("min_p":0)",
                                       R"("min_p":1)",
                                       R"("repetition_penalty":2)",
                                       R"("n":128)",
                                       R"("max_tokens":1)",
                                       R"("max_tokens":1048576)",
                                       R"("min_tokens":0)",
                                       R"("logit_bias":{})",
                                       R"("stop":"x")",
                                       R"("stop":[])",
                                       R"("top_logprobs":0)",
                                       R"("logprobs":true,"top_logprobs":0)",
                                       R"("logprobs":false)",
                                       R"("seed":9223372036854775807)",
                                       R"("tools":[])",
                                       R"("stream":true,"stream_options":{})",
                                       R"("tool_choice":"auto")",
                                       R"("thinking":false)"}) {
    parsed(chat(extra));
  }
}

TEST(ChatRequest, LimitsStops) {
  const auto list = [](std::string_view entry, int count) {
    std::string text = "[";
    for (int i = 0; i < count; ++i) {
      text.append(i == 0 ? "" : ",")
          .append(entry)
          .append(entry == "\"s\"" ? "" : std::to_string(i));
    }
    return text + "]";
  };
  EXPECT_EQ(parsed(chat("\"stop\":" + list("\"s\"", 32))).options.stop.size(), 32U);
  expect_refused(chat("\"stop\":" + list("\"s\"", 33)),
                 {Code::kInvalidArgument, "stop", "must have at most 32 entries"});
  EXPECT_EQ(parsed(chat("\"stop_token_ids\":" + list("1", 32))).options.stop_token_ids.size(), 32U);
  expect_refused(chat("\"stop_token_ids\":" + list("1", 33)),
                 {Code::kInvalidArgument, "stop_token_ids", "must have at most 32 ids"});
}

TEST(ChatRequest, RequiresModelAndMessages) {
  expect_refused("{" + std::string(kUser) + "}",
                 {Code::kInvalidArgument, "model", "Validation: model is required"});
  expect_refused(R"({"model":" ",)" + std::string(kUser) + "}",
                 {Code::kInvalidArgument, "model", "must not be blank"});
  expect_refused(R"({"model":"m"})", {Code::kInvalidArgument, "messages", "is required"});
  expect_refused(R"({"model":"m","messages":[]})",
                 {Code::kInvalidArgument, "messages", "must not be empty"});
  expect_refused(R"({"model":"m","messages":null})",
                 {Code::kInvalidArgument, "messages", "is required"});
  EXPECT_EQ(parsed("{" + std::string(kUser) + "}", {.model_required = false}).options.model, "");
}

TEST(ChatRequest, AnswersNotImplementedForKnownButMissing) {
  const RuleCase cases[] = {
      {R"("functions":[])", "functions", "use tools"},
      {R"("function_call":"auto")", "function_call", "use tool_choice"},
      {R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":"required")",
       "tool_choice", "needs guided decoding"},
      {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice",
       "needs guided decoding"},
      {R"("tool_choice":{"type":"custom"})", "tool_choice.type", "is not supported"},
      {R"("response_format":{"type":"json_object"})", "response_format", "needs guided decoding"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{}}})",
       "response_format", "needs guided decoding"},
      {R"("structured_outputs":{"json_object":true})", "structured_outputs.json_object",
       "needs guided decoding"},
      {R"("regex":"a+")", "regex", "needs guided decoding"},
      {R"("guided_json":{})", "guided_json", "needs guided decoding"},
      {R"("guided_json":"{}")", "guided_json", "needs guided decoding"},
      {R"("guided_regex":"a+")", "guided_regex", "needs guided decoding"},
      {R"("guided_grammar":"root ::= [x]")", "guided_grammar", "needs guided decoding"},
      {R"("guided_choice":["a"])", "guided_choice", "needs guided decoding"},
      {R"("bad_words_token_ids":[[1]])", "bad_words_token_ids", "is not supported"},
      {R"("logprob_token_ids":[1])", "logprob_token_ids", "is not supported"},
      {R"("use_beam_search":true)", "use_beam_search", "is not supported"},
      {R"("chat_template":"{{x}}")", "chat_template", "is not supported"},
      {R"("tools":[{"type":"custom"}])", "tools[0].type", "is not supported"},
      {R"("nvext":{"metadata_upload":{"url":"x"}})", "nvext.metadata_upload", "is not supported"},
  };
  for (const RuleCase& c : cases) {
    expect_refused(chat(c.extra), rule(c, Code::kUnsupported));
  }
}

TEST(ChatRequest, RanksNotImplementedAboveBrokenRules) {
  expect_refused(chat(R"("temperature":9,"functions":[])"),
                 {Code::kUnsupported, "functions", "use tools"});
  expect_refused(R"({"temperature":9,"stream_options":{}})",
                 {Code::kInvalidArgument, "model", "is required"});
  expect_refused(chat(R"("temperature":9,"stream_options":{})"),
                 {Code::kInvalidArgument, "stream_options", "only allowed"});
}

TEST(ChatRequest, HandsOnGrammarsWhenTheyCanBeEnforced) {
  const ParseLimits guided{.guided_decoding = true};
  constexpr std::string_view kTools =
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{"z":1.0}}}])";

  const ChatRequest schema = parsed(
      chat(
          R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"b":1.0}}})"),
      guided);
  ASSERT_TRUE(schema.options.structured_output.has_value());
  EXPECT_EQ(std::get<structured::JsonSchema>(schema.options.structured_output->constraint).text,
            R"({"b":1.0})");
  const ChatRequest choice = parsed(chat(R"("guided_choice":["a", "b"])"), guided);
  ASSERT_TRUE(choice.options.structured_output.has_value());
  EXPECT_EQ(std::get<structured::Choice>(choice.options.structured_output->constraint).options,
            (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(
      parsed(chat(R"("response_format":{"type":"text"})")).options.structured_output.has_value());
  EXPECT_FALSE(
      parsed(chat(R"("guided_json":{},"guided_json":null)")).options.structured_output.has_value());
  const ChatRequest named = parsed(
      chat(std::string(kTools) + R"(,"tool_choice":{"type":"function","function":{"name":"f"}})"),
      guided);
  EXPECT_EQ(named.tool_choice.kind, ToolChoice::Kind::kNamed);
  EXPECT_EQ(named.tool_choice.name, "f");
  EXPECT_EQ(
      parsed(chat(std::string(kTools) + R"(,"tool_choice":"required")"), guided).tool_choice.kind,
      ToolChoice::Kind::kRequired);

  const RuleCase refused[] = {
      {R"("tool_choice":"required")", "tool_choice", "needs non-empty tools"},
      {R"("tool_choice":{"type":"function","function":{"name":"g"}})", "tool_choice",
       "names a function that is not in tools: g"},
      {R"("tool_choice":{"type":"function"})", "tool_choice.function.name", "is required"},
      {R"("guided_json":{},"guided_regex":"a")", "guided_regex",
       "cannot be combined with guided_json"},
      {R"("guided_json":{},"response_format":{"type":"json_object"})", "guided_json",
       "cannot be combined with response_format"},
      {R"("guided_choice":[])", "guided_choice", "must not be empty"},
      {R"("guided_json":{"not":{}})", "guided_json", "at #/not: not is not supported"},
      {R"("regex":"(?=a")", "regex", "at character 1: look-ahead"},
      {R"("response_format":{"type":"structural_tag"})", "response_format.triggers", "is required"},
      {R"("guided_regex":"")", "guided_regex", "must not be blank"},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema", "is required"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":{}}})",
       "response_format.json_schema.name", "must not be empty"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"a"}})",
       "response_format.json_schema.schema", "must be an object"},
  };
  for (const RuleCase& c : refused) {
    expect_refused(chat(c.extra), rule(c), guided);
  }
}

TEST(ChatRequest, ChecksTools) {
  const ChatRequest request = parsed(chat(
      R"("tools":[{"type":"function","function":{"name":"a.b:c-d_1","description":"x","strict":true,
      "parameters":{"maximum":123456789012345678901234567890}}},
      {"function":{"name":"g","parameters":null},"type":"function"}])"));
  EXPECT_EQ(request.chat.tool_names, (std::vector<std::string>{"a.b:c-d_1", "g"}));
  EXPECT_TRUE(request.chat.tools_json.contains("123456789012345678901234567890"));

  const RuleCase cases[] = {
      {R"("tools":[{}])", "tools[0].type", "is required"},
      {R"("tools":[null])", "tools[0]", "must be an object"},
      {R"("tools":[{"type":"function"}])", "tools[0].function", "is required"},
      {R"("tools":[{"type":"function","function":{}}])", "tools[0].function.name", "is required"},
      {R"("tools":[{"type":"function","function":{"name":""}}])", "tools[0].function.name",
       "must have 1 to 128 characters"},
      {R"("tools":[{"type":"function","function":{"name":"a b"}}])", "tools[0].function.name",
       "must have 1 to 128 characters"},
      {R"("tools":[{"type":"function","function":{"name":"f","parameters":[]}}])",
       "tools[0].function.parameters", "must be an object, not an array"},
      {R"("tools":[1])", "tools[0]", "must be an object, not a number"},
  };
  for (const RuleCase& c : cases) {
    expect_refused(chat(c.extra), rule(c));
  }
  const std::string long_name(129, 'a');
  expect_refused(
      chat(R"("tools":[{"type":"function","function":{"name":")" + long_name + "\"}}]"),
      {Code::kInvalidArgument, "tools[0].function.name", "exceeds the 128 character limit"});
}

TEST(ChatRequest, LimitsTheNumberOfTools) {
  std::string tools = "\"tools\":[";
  for (uint32_t i = 0; i < kMaxTools + 1; ++i) {
    tools.append(i == 0 ? "" : ",").append(R"({"type":"function","function":{"name":"f"}})");
  }
  expect_refused(chat(tools + "]"), {Code::kInvalidArgument, "tools", "at most 1536 entries"});
}

TEST(ChatRequest, AcceptsEveryKindOfMessage) {
  const ChatRequest request = parsed(with_messages(R"([
    {"role":"system","content":"s"},
    {"role":"developer","content":[{"type":"text","text":"d"}]},
    {"content":[{"text":"u","type":"text"}],"role":"user","name":"n"},
    {"role":"assistant","content":null,"tool_calls":[
      {"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\":1.0}"}},
      {"id":"2","type":"function","function":{"name":"f","arguments":" "}}]},
    {"role":"tool","tool_call_id":"1","content":"r"},
    {"role":"assistant","content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"a"},
      {"type":"refusal","refusal":"no"},{"type":"redacted_thinking","data":"x"}],
      "reasoning_content":["a","b"],"refusal":null},
    {"role":"assistant","reasoning":"r","extra":{"x":1}}])"));
  EXPECT_EQ(request.chat.message_count, 7U);
  EXPECT_EQ(request.chat.last_role, Role::kAssistant);
}

TEST(ChatRequest, FoldsLeakedThinkingPartsIntoReasoning) {
  const auto folded = [](std::string_view messages) {
    return parsed(with_messages(messages)).chat.messages_json;
  };
  EXPECT_EQ(
      folded(R"([{"role":"user","content":"u"},{"role":"assistant","content":[)"
             R"({"type":"thinking","thinking":"a\n","signature":"s"},{"type":"text","text":"t"},)"
             R"({"type":"redacted_thinking","data":"x"},{"type":"thinking","thinking":"b"}],)"
             R"("n\u00e4me":1.0}])"),
      R"([{"role":"user","content":"u"},{"role":"assistant",)"
      R"("content":[{"type":"text","text":"t"}],"näme":1.0,"reasoning_content":"a\n\nb"}])");
  EXPECT_EQ(folded(R"([{"role":"assistant","reasoning":"mine",)"
                   R"("content":[{"type":"thinking","thinking":"a"}]}])"),
            R"([{"role":"assistant","content":[],"reasoning_content":"mine"}])");
  EXPECT_EQ(folded(R"([{"role":"assistant","content":[{"type":"redacted_thinking","data":"x"}]},)"
                   R"({"role":"assistant","content":null}])"),
            R"([{"role":"assistant","content":[]},{"role":"assistant","content":null}])");
  const std::string_view untouched = R"([ {"role":"assistant", "content":"t"} ])";
  EXPECT_EQ(folded(untouched), untouched);
}

TEST(ChatRequest, RefusesBrokenMessagesByPath) {
  const RuleCase cases[] = {
      {R"([1])", "messages[0]", "must be an object, not a number"},
      {R"([null])", "messages[0]", "must be an object"},
      {R"([{"content":"x"}])", "messages[0].role", "is required"},
      {R"([{"role":"bot","content":"x"}])", "messages[0].role", "must be one of system"},
      {R"([{"role":7,"content":"x"}])", "messages[0].role", "must be a string"},
      {R"([{"role":"user"}])", "messages[0].content", "is required"},
      {R"([{"role":"user","content":null}])", "messages[0].content", "is required"},
      {R"([{"role":"user","content":1}])", "messages[0].content",
       "must be a string or an array of parts"},
      {R"([{"role":"user","content":[1]}])", "messages[0].content[0]", "must be an object"},
      {R"([{"role":"user","content":[{}]}])", "messages[0].content[0].type", "is required"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text",
       "is required"},
      {R"([{"role":"user","content":[{"type":"text","text":1}]}])", "messages[0].content[0].text",
       "must be a string"},
      {R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"hologram"}]}])",
       "messages[0].content[1].type", "is \"hologram\", which is not a known content type"},
      {R"([{"role":"user","content":[{"type":"thinking","thinking":"x"}]}])",
       "messages[0].content[0].type", "only allowed in assistant messages"},
      {R"([{"content":[{"type":"refusal","refusal":"x"}],"role":"user"}])",
       "messages[0].content[0].type", "only allowed in assistant messages"},
      {R"([{"role":"user","content":"a","tool_calls":[{"function":{"name":"f"}}]}])",
       "messages[0].tool_calls", "only allowed in assistant messages"},
      {R"([{"role":"tool","content":"x"}])", "messages[0].tool_call_id", "is required"},
      {R"([{"role":"tool","content":"x","tool_call_id":1}])", "messages[0].tool_call_id",
       "must be a string"},
      {R"([{"role":"assistant","tool_calls":{}}])", "messages[0].tool_calls", "must be an array"},
      {R"([{"role":"assistant","tool_calls":[{}]}])", "messages[0].tool_calls[0].function",
       "is required"},
      {R"([{"role":"assistant","tool_calls":[{"type":"x","function":{"name":"f"}}]}])",
       "messages[0].tool_calls[0].type", "must be \"function\""},
      {R"([{"role":"assistant","tool_calls":[{"function":{}}]}])",
       "messages[0].tool_calls[0].function.name", "is required"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}])",
       "messages[0].tool_calls[0].function.arguments", "must be blank or a JSON object"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":}"}}]}])",
       "messages[0].tool_calls[0].function.arguments", "must be blank or a JSON object"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}]}])",
       "messages[0].tool_calls[0].function.arguments", "must be a string, not an object"},
      {R"([{"role":"assistant","reasoning_content":1}])", "messages[0].reasoning_content",
       "must be a string or an array of strings"},
  };
  for (const RuleCase& c : cases) {
    expect_refused(with_messages(c.extra), rule(c));
  }
}

TEST(ChatRequest, NamesTheMediaPartItCannotRead) {
  const auto with_part = [](const std::string& part) {
    return with_messages(R"([{"role":"system","content":"s"},{"role":"user","content":[
        {"type":"text","text":"a"},)" +
                         part + "]}]");
  };
  for (const std::string type : {"image_url", "video_url", "audio_url", "input_audio"}) {
    expect_refused(with_part(R"({"type":")" + type + R"(","x":{}})"),
                   {Code::kInvalidArgument, "messages[1].content[1]." + type, "is required"});
  }
  expect_refused(with_part(R"({"type":"input_image"})"),
                 {Code::kInvalidArgument, "messages[1].content[1].image_url", "is required"});
  expect_refused(with_part(R"({"type":"image_url","image_url":{"url":null}})"),
                 {Code::kInvalidArgument, "messages[1].content[1].image_url", "is required"});
  expect_refused(with_part(R"({"type":"image_url","image_url":{"url":""}})"),
                 {Code::kInvalidArgument, "messages[1].content[1].image_url", "is required"});
  expect_refused(with_part(R"({"type":"input_audio","input_audio":{"data":"aaaa"}})"),
                 {Code::kInvalidArgument, "messages[1].content[1].input_audio.format", "required"});
  expect_refused(
      with_part(R"({"type":"input_audio","input_audio":{"data":"aaaa","format":"../x"}})"),
      {Code::kInvalidArgument, "messages[1].content[1].input_audio.format", "audio format"});
  for (const std::string type : {"file", "input_file"}) {
    expect_refused(with_part(R"({"type":")" + type + R"(","file":{"file_id":"f"}})"),
                   {Code::kInvalidArgument, "messages[1].content[1].type", "files are not read"});
  }
  expect_refused(with_messages(R"([{"role":"assistant","content":[{"type":"image_url",)"
                               R"("image_url":{"url":"data:x"}}]}])"),
                 {Code::kInvalidArgument, "messages[0].content[0].type", "user and tool messages"});
  expect_refused(with_messages(R"([{"role":"function","content":"x"}])"),
                 {Code::kUnsupported, "messages[0].role", "use the role tool"});
  expect_refused(with_messages(R"([{"role":"assistant","function_call":{}}])"),
                 {Code::kUnsupported, "messages[0].function_call", "use tool_calls"});
}

TEST(ChatRequest, TakesMediaOutOfTheMessages) {
  const ChatRequest request = parsed(
      R"({"model":"m","messages":[{"role":"user","name":"n","content":[
        {"text":"a \u00e9","type":"text"},
        {"image_url":{"detail":"low","url":"https:\/\/x/a.png"},"type":"image_url","uuid":"u1"},
        {"type":"input_image","image_url":"data:image/png;base64,AAAA","detail":"high"},
        {"type":"input_audio","input_audio":{"data":"BBBB","format":"wav"}}]},
        {"role":"tool","tool_call_id":"t","content":[{"type":"video_url","video_url":{"url":"v"}}]},
        {"role":"user","content":"b"}]})");
  EXPECT_EQ(request.chat.messages_json,
            R"([{"role":"user","name":"n","content":[{"text":"a \u00e9","type":"text"},)"
            R"({"type":"image"},{"type":"image"},{"type":"audio"}]},)"
            R"({"role":"tool","tool_call_id":"t","content":[{"type":"video"}]},)"
            R"({"role":"user","content":"b"}])");
  const std::vector<inference::MediaPart>& media = request.chat.media;
  ASSERT_EQ(media.size(), 4U);
  EXPECT_EQ(media[0].source, "https://x/a.png");
  EXPECT_EQ(media[0].detail, "low");
  EXPECT_EQ(media[0].uuid, "u1");
  EXPECT_EQ(media[0].path, "messages[0].content[1]");
  EXPECT_EQ(media[1].source, "data:image/png;base64,AAAA");
  EXPECT_EQ(media[1].detail, "high");
  EXPECT_EQ(media[2].source, "data:audio/wav;base64,BBBB");
  EXPECT_EQ(media[2].kind, inference::MediaKind::kAudio);
  EXPECT_EQ(media[3].kind, inference::MediaKind::kVideo);
  EXPECT_EQ(media[3].path, "messages[1].content[0]");
}

TEST(ChatRequest, MoreMediaThanAreEverTakenAreRefused) {
  std::string parts;
  for (size_t i = 0; i <= inference::kMaxMediaParts; ++i) {
    parts += std::string(i > 0 ? "," : "") + R"({"type":"image_url","image_url":"u"})";
  }
  expect_refused(with_messages(R"([{"role":"user","content":[)" + parts + "]}]"),
                 {Code::kInvalidArgument, "messages[0].content[256]", "at most 256"});
}

TEST(ChatRequest, ContinuesAnAssistantMessage) {
  const ChatRequest request = parsed(
      R"({"model":"m","continue_final_message":true,"messages":[{"role":"assistant","content":"a"}]})");
  EXPECT_TRUE(request.chat.continue_final_message);
  EXPECT_FALSE(request.chat.add_generation_prompt);
}

TEST(ChatRequest, KeepsTheLastUserTextForRawPrompts) {
  const ChatRequest request = parsed(R"({"model":"m","nvext":{"use_raw_prompt":true},"messages":[
      {"role":"user","content":"old"},
      {"role":"user","content":[{"type":"text","text":"a\n"},{"text":"b","type":"text"}]},
      {"role":"assistant","content":"c"}]})");
  EXPECT_EQ(request.chat.last_user_text, "a\n\nb");
}

TEST(ChatRequest, LetsTheLastOfDuplicateKeysWin) {
  const ChatRequest request =
      parsed(chat(R"("temperature":1,"temperature":0.5,"stop":["a"],"stop":"b","model":"z",)"
                  R"("logit_bias":{"1":1,"1":2},"messages":[{"role":"system","content":"s"}])"));
  EXPECT_EQ(request.options.sampling.temperature, 0.5F);
  EXPECT_EQ(request.options.stop, std::vector<std::string>{"b"});
  EXPECT_EQ(request.options.model, "z");
  EXPECT_EQ(request.options.sampling.logit_bias,
            (std::vector<std::pair<TokenId, float>>{{1, 2.0F}}));
  EXPECT_EQ(request.chat.message_count, 1U);
  EXPECT_EQ(request.chat.last_role, Role::kSystem);
}

TEST(ChatRequest, ChecksTokenIdsAgainstTheVocabulary) {
  const ParseLimits limits{.vocab_size = 100};
  parsed(chat(R"("stop_token_ids":[99])"), limits);
  expect_refused(chat(R"("stop_token_ids":[100])"),
                 {Code::kInvalidArgument, "stop_token_ids", "token id 100"}, limits);
  expect_refused(chat(R"("logit_bias":{"100":1})"),
                 {Code::kInvalidArgument, "logit_bias", "vocabulary ends at 99"}, limits);
  expect_refused(chat(R"("nvext":{"token_data":[1,100]})"),
                 {Code::kInvalidArgument, "nvext.token_data", "token id 100"}, limits);
}

TEST(SamplingOptions, FillGapsFromDefaults) {
  inference::SamplingParams defaults;
  defaults.temperature = 0.6F;
  defaults.top_k = 20;
  const ChatRequest request = parsed(chat(R"("top_k":-1,"seed":3,"logprobs":true)"));

  const inference::SamplingParams params = request.options.sampling.resolve(defaults);

  EXPECT_EQ(params.temperature, 0.6F);
  EXPECT_EQ(params.top_k, -1);
  EXPECT_EQ(params.seed, 3);
  EXPECT_EQ(params.logprobs, 0U);
}

TEST(GenerateOptions, MakesStopConditions) {
  const ChatRequest request = parsed(chat(R"("min_tokens":2,"stop_token_ids":[5])"));

  const inference::StopConditions stop = request.options.stop_conditions(77, {1, 2});

  EXPECT_EQ(stop.max_tokens, 77U);
  EXPECT_EQ(stop.min_tokens, 2U);
  EXPECT_EQ(stop.stop_token_ids, std::vector<TokenId>{5});
  EXPECT_EQ(stop.eos_token_ids, (std::vector<TokenId>{1, 2}));
}

}  // namespace
}  // namespace stator::api
