// SPDX-License-Identifier: Apache-2.0
#include "stator/api/response_body.h"

#include <gtest/gtest.h>

#include "stator/api/error_body.h"
#include "stator/json/value.h"

namespace stator::api {
namespace {

json::Value golden(std::string_view json) {
  return *json::parse(json);
}

BodyFrame frame_of(std::string_view id) {
  return {
      .identity = {.id = id, .model = "m", .created_s = 17},
      .usage = {
          .prompt_tokens = 4, .completion_tokens = 2, .cached_tokens = 3, .reasoning_tokens = 1}};
}

constexpr std::string_view kUsage = R"("usage":{"prompt_tokens":4,"completion_tokens":2,
    "total_tokens":6,"prompt_tokens_details":{"cached_tokens":3},
    "completion_tokens_details":{"reasoning_tokens":1}})";

TEST(ChatCompletion, HasTheExpectedShape) {
  const ToolCall calls[] = {{.id = "call_1", .name = "f", .arguments = "{\"a\":1}"}};
  const ChatChoice choices[] = {
      {.index = 0, .content = "hi", .reasoning = "hm"},
      {.index = 1, .tool_calls = calls, .finish = ChoiceFinish::kToolCalls},
      {.index = 2, .refusal = "no", .finish = ChoiceFinish::kLength}};
  BodyFrame frame = frame_of("chatcmpl-1");
  frame.nvext_json = R"({"x":1})";
  std::string out;

  append_chat_completion(out, frame, choices);

  EXPECT_EQ(golden(out), golden(R"({"id":"chatcmpl-1","object":"chat.completion","created":17,
    "model":"m","system_fingerprint":null,"service_tier":null,"choices":[
     {"index":0,"message":{"role":"assistant","content":"hi","reasoning_content":"hm",
      "refusal":null},"finish_reason":"stop","logprobs":null},
     {"index":1,"message":{"role":"assistant","content":null,"tool_calls":[{"id":"call_1",
      "type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}],"refusal":null},
      "finish_reason":"tool_calls","logprobs":null},
     {"index":2,"message":{"role":"assistant","content":"","refusal":"no"},
      "finish_reason":"length","logprobs":null}],)" +
                                std::string(kUsage) + R"(,"nvext":{"x":1}})"));
}

TEST(ChatCompletion, ListsNoLogprobsForAnEmptyAnswer) {
  const ChatChoice choices[] = {{.logprobs = std::span<const LogprobEntry>()}};
  std::string out;
  append_chat_completion(out, frame_of("c"), choices);
  EXPECT_EQ(golden(out).at("choices").at(0).at("logprobs"),
            golden(R"({"content":[],"refusal":null})"));
}

TEST(TextCompletion, HasTheExpectedShape) {
  const LogprobEntry entries[] = {{.sampled = {.id = 1, .logprob = -1, .bytes = "a"}}};
  const CompletionChoice choices[] = {{.index = 0, .text = "a", .logprobs = entries},
                                      {.index = 1, .text = "", .finish = ChoiceFinish::kLength}};
  std::string out;

  append_text_completion(out, frame_of("cmpl-1"), choices);

  EXPECT_EQ(golden(out), golden(R"({"id":"cmpl-1","object":"text_completion","created":17,
    "model":"m","system_fingerprint":null,"choices":[
     {"index":0,"text":"a","finish_reason":"stop","logprobs":{"tokens":["a"],
      "token_logprobs":[-1],"top_logprobs":[{"a":-1}],"text_offset":[0]}},
     {"index":1,"text":"","finish_reason":"length","logprobs":null}],)" +
                                std::string(kUsage) + "}"));
}

TEST(Usage, SumsOverPrompts) {
  Usage sum{.prompt_tokens = 1, .completion_tokens = 2, .cached_tokens = 3, .reasoning_tokens = 4};
  sum += sum;
  EXPECT_EQ(sum.prompt_tokens, 2U);
  EXPECT_EQ(sum.completion_tokens, 4U);
  EXPECT_EQ(sum.cached_tokens, 6U);
  EXPECT_EQ(sum.reasoning_tokens, 8U);
}

TEST(NvextResponse, WritesOnlyWhatIsSet) {
  std::string out = "x";
  append_nvext(out, {});
  EXPECT_EQ(out, "x");

  const TokenId ids[] = {1, 2};
  out.clear();
  append_nvext(out, {.workers = NvextResponse::Workers{.decode_worker_id = 7, .decode_dp_rank = 0},
                     .timing = NvextResponse::Timing{.ttft_ms = 1.5, .router_queue_depth = 2},
                     .completion_token_ids = ids,
                     .stop_string = "END"});
  EXPECT_EQ(golden(out), golden(R"({"worker_id":{"decode_worker_id":7,"decode_dp_rank":0},
      "timing":{"ttft_ms":1.5,"router_queue_depth":2},"completion_token_ids":[1,2],
      "stop_reason":"END"})"));
  out.clear();
  append_nvext(out, {.token_ids = ids, .stop_token = 5});
  EXPECT_EQ(golden(out), golden(R"({"token_ids":[1,2],"stop_reason":5})"));
}

TEST(Models, AreListed) {
  const ModelEntry models[] = {
      {.id = "a/b", .created_s = 5, .context_window = 4096, .max_output_tokens = 100},
      {.id = "c", .parent = "a/b", .created_s = 6, .owned_by = "me"}};
  std::string out;
  append_model_list(out, models);
  EXPECT_EQ(golden(out), golden(R"({"object":"list","data":[
    {"id":"a/b","object":"model","created":5,"owned_by":"nvidia","root":"a/b","context_window":4096,
     "max_model_len":4096,
     "max_output_tokens":100},{"id":"c","object":"model","created":6,"owned_by":"me","root":"c","parent":"a/b"}]})"));
  out.clear();
  append_model(out, models[1]);
  EXPECT_EQ(out,
            R"({"id":"c","object":"model","created":6,"owned_by":"me","root":"c","parent":"a/b"})");
}

TEST(Tokenize, AnswersInTheExpectedShape) {
  const TokenId ids[] = {1, 2};
  const std::vector<std::string> texts = {"a", "\xFF"};
  std::string out;
  append_tokenize_response(out, {.tokens = ids, .max_model_len = 9});
  EXPECT_EQ(out, R"({"count":2,"max_model_len":9,"tokens":[1,2],"token_strs":null})");
  out.clear();
  append_tokenize_response(out, {.tokens = ids, .max_model_len = 9, .token_strs = texts});
  EXPECT_EQ(golden(out).at("token_strs"), golden(R"(["a","\ufffd"])"));
  out.clear();
  append_detokenize_response(out, "a\"");
  EXPECT_EQ(out, R"({"prompt":"a\""})");
}

TEST(Health, TellsTheState) {
  std::string out;
  append_live_body(out, Liveness::kLive);
  EXPECT_EQ(golden(out).at("status"), "live");
  out.clear();
  append_live_body(out, Liveness::kShuttingDown);
  EXPECT_EQ(golden(out).at("status"), "shutting_down");
  out.clear();
  const std::string_view endpoints[] = {"/v1/models"};
  const HealthyInstance instances[] = {{.model = "m", .worker = WorkerId(9)}};
  append_healthy_body(out, endpoints, instances);
  EXPECT_EQ(golden(out), golden(R"({"status":"healthy","endpoints":["/v1/models"],
      "instances":[{"model":"m","instance_id":9}]})"));
  out.clear();
  const HealthyInstance mixed[] = {
      {.model = "m", .worker = WorkerId(9), .url = "http://a"},
      {.model = "m", .worker = WorkerId(10), .url = "http://b", .reason = "draining"}};
  append_healthy_body(out, endpoints, mixed);
  EXPECT_EQ(golden(out), golden(R"({"status":"healthy","endpoints":["/v1/models"],
      "instances":[{"model":"m","instance_id":9,"url":"http://a"}],
      "unavailable":[{"model":"m","instance_id":10,"url":"http://b","reason":"draining"}]})"));
  out.clear();
  append_not_ready_body(out, "loading", "m");
  EXPECT_EQ(out, R"({"status":"not_ready","stage":"loading","message":"m"})");
}

TEST(ErrorBody, SpeaksBothDialects) {
  std::string out;
  const ApiError error = validation_error("n", "n must be from 1 to 128");
  EXPECT_EQ(append_error_body(out, error), 400);
  EXPECT_EQ(
      out,
      R"({"error":{"message":"Validation: n must be from 1 to 128",)"
      R"("type":"invalid_request_error","param":"n","code":400},"message":"Validation: n must be from 1 to 128",)"
      R"("type":"Bad Request","code":400})");
  out.clear();
  append_error_body(out, {.status = 404, .message = "m", .details_json = R"({"a":1})"},
                    {.nested = false});
  EXPECT_EQ(out, R"({"message":"m","type":"Not Found","code":404,"details":{"a":1}})");
}

TEST(ErrorBody, NamesTypesByStatus) {
  struct Row {
    int status;
    std::string_view type;
    std::string_view slug;
  };
  const Row rows[] = {
      {400, "Bad Request", "invalid_request_error"},
      {404, "Not Found", "invalid_request_error"},
      {413, "Payload Too Large", "invalid_request_error"},
      {415, "Unsupported Media Type", "invalid_request_error"},
      {418, "Bad Request", "invalid_request_error"},
      {431, "Request Header Fields Too Large", "invalid_request_error"},
      {499, "Client Closed Request", "request_cancelled"},
      {500, "Internal Server Error", "internal_server_error"},
      {501, "Not Implemented", "invalid_request_error"},
      {503, "Service Unavailable", "service_unavailable"},
      {529, "Overloaded", "service_unavailable"},
      {599, "Internal Server Error", "internal_server_error"},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(error_type(row.status), row.type) << row.status;
    EXPECT_EQ(sse_error_type(row.status), row.slug) << row.status;
  }
}

TEST(ErrorBody, HonoursTheOverloadStatus) {
  const ErrorStyle style{.overload_status = 503};
  std::string out;
  EXPECT_EQ(append_error_body(out, ApiError(Error(Code::kOverloaded, "busy")), style), 503);
  EXPECT_EQ(golden(out).at("type"), "Overloaded");
  EXPECT_EQ(error_type(503, style), "Service Unavailable");
  EXPECT_EQ(http_status(Code::kUnavailable, style), 503);
  EXPECT_EQ(http_status(Code::kOverloaded), 529);
  EXPECT_EQ(http_status(Code::kUnsupported), 501);
}

TEST(ErrorBody, KnowsMissingRoutes) {
  std::string out;
  append_route_not_found(out, "GET", "/a\"b");
  EXPECT_EQ(golden(out).at("error").at("message"), "Route not found: GET /a\"b");
  EXPECT_EQ(golden(out).at("code"), 404);
  out.clear();
  append_method_not_allowed(out, "PUT", "/v1/models");
  EXPECT_EQ(golden(out).at("message"), "Method not allowed: PUT /v1/models");
  EXPECT_EQ(golden(out).at("code"), 405);
}

TEST(ApiError, TakesPlainErrorsAndTryMacros) {
  const auto inner = []() -> Result<int> { return Error(Code::kNotFound, "Model not found"); };
  const auto outer = [&]() -> ApiResult<int> {
    STATOR_TRY(const int value, inner());
    return value;
  };
  const ApiResult<int> result = outer();
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), Code::kNotFound);
  EXPECT_EQ(result.error().param, "");
}

}  // namespace
}  // namespace stator::api
