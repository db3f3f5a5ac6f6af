// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "stator/protocols/anthropic/anthropic.h"
#include "stator/protocols/output.h"

namespace stator::protocols::anthropic {
namespace {

constexpr api::Usage kUsage = {.prompt_tokens = 10, .completion_tokens = 5, .cached_tokens = 4};

AnswerHead head() {
  return {.id = "msg_1", .model = "m", .created_s = 7, .tokens_as_token_ids = false, .echo = {}};
}

/// Everything that a model of ours says in one answer, in pieces.
template <typename Add>
void say(Add&& add) {
  const api::ToolCallDelta begin{.index = 0, .id = "call_abc", .name = "f", .arguments = {}};
  const api::ToolCallDelta more{.index = 0, .id = {}, .name = {}, .arguments = R"({"a":1})"};
  const api::ToolCallDelta second{.index = 1, .id = "own:1", .name = "g", .arguments = {}};
  add(Piece{.reasoning = "h"});
  add(Piece{.reasoning = "m"});
  add(Piece{});
  add(Piece{.text = "line\n"});
  add(Piece{.call = &begin});
  add(Piece{.call = &more});
  add(Piece{.call = &second});
  add(Piece{.finish = api::ChoiceFinish::kToolCalls});
}

TEST(AnthropicWriter, StreamsBlocksOneAfterTheOther) {
  std::string out;
  const auto writer = kProtocol.make_stream_writer(head());

  writer->begin(out, {.prompt_tokens = 10, .completion_tokens = 1, .cached_tokens = 4});
  say([&](const Piece& piece) { writer->add(out, piece); });
  writer->finish(out, {.usage = kUsage});

  EXPECT_EQ(
      out,
      "event: message_start\ndata: "
      R"({"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant",)"
      R"("model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{)"
      R"("input_tokens":6,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,)"
      R"("output_tokens":1}}})"
      "\n\nevent: ping\ndata: "
      R"({"type":"ping"})"
      "\n\nevent: content_block_start\ndata: "
      R"({"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}})"
      "\n\nevent: content_block_delta\ndata: "
      R"({"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"h"}})"
      "\n\nevent: content_block_delta\ndata: "
      R"({"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m"}})"
      "\n\nevent: content_block_delta\ndata: "
      R"({"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"erased"}})"
      "\n\nevent: content_block_stop\ndata: "
      R"({"type":"content_block_stop","index":0})"
      "\n\nevent: content_block_start\ndata: "
      R"({"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}})"
      "\n\nevent: content_block_delta\ndata: "
      R"({"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"line\n"}})"
      "\n\nevent: content_block_stop\ndata: "
      R"({"type":"content_block_stop","index":1})"
      "\n\nevent: content_block_start\ndata: "
      R"({"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_abc","name":"f","input":{}}})"
      "\n\nevent: content_block_delta\ndata: "
      R"({"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":1}"}})"
      "\n\nevent: content_block_stop\ndata: "
      R"({"type":"content_block_stop","index":2})"
      "\n\nevent: content_block_start\ndata: "
      R"({"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"own:1","name":"g","input":{}}})"
      "\n\nevent: content_block_stop\ndata: "
      R"({"type":"content_block_stop","index":3})"
      "\n\nevent: message_delta\ndata: "
      R"({"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{)"
      R"("input_tokens":6,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,)"
      R"("output_tokens":5}})"
      "\n\nevent: message_stop\ndata: "
      R"({"type":"message_stop"})"
      "\n\n");
}

TEST(AnthropicWriter, WritesTheSameAsOneMessage) {
  Output output;
  say([&](const Piece& piece) { output.add(piece); });
  std::string out;

  kProtocol.append_body(out, head(), output, {.usage = kUsage});

  EXPECT_EQ(out,
            R"({"id":"msg_1","type":"message","role":"assistant","model":"m","content":[)"
            R"({"type":"thinking","thinking":"hm","signature":"erased"},)"
            R"({"type":"text","text":"line\n"},)"
            R"({"type":"tool_use","id":"toolu_abc","name":"f","input":{"a":1}},)"
            R"({"type":"tool_use","id":"own:1","name":"g","input":{}}],)"
            R"("stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":6,)"
            R"("cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":5}})");
}

TEST(AnthropicWriter, SaysWhichStopSequenceItWas) {
  Output output;
  output.add({.text = "a", .finish = api::ChoiceFinish::kStop, .stop_string = "END\""});
  std::string out;

  kProtocol.append_body(out, head(), output, {.usage = kUsage});

  EXPECT_NE(out.find(R"("stop_reason":"stop_sequence","stop_sequence":"END\"")"), out.npos);
}

TEST(AnthropicWriter, FailsWithAnEventAfterTheFirstToken) {
  std::string out;
  const auto writer = kProtocol.make_stream_writer(head());
  writer->begin(out, kUsage);
  out.clear();

  writer->fail(out, {.status = 503, .message = "gone"});

  EXPECT_EQ(out,
            "event: error\ndata: "
            R"({"type":"error","error":{"type":"overloaded_error","message":"gone"}})"
            "\n\n");
}

TEST(AnthropicErrors, HaveTheNameOfTheirStatus) {
  const std::pair<int, std::string_view> cases[] = {{400, "invalid_request_error"},
                                                    {401, "authentication_error"},
                                                    {403, "permission_error"},
                                                    {404, "not_found_error"},
                                                    {405, "invalid_request_error"},
                                                    {413, "request_too_large"},
                                                    {415, "invalid_request_error"},
                                                    {429, "rate_limit_error"},
                                                    {499, "request_cancelled"},
                                                    {500, "api_error"},
                                                    {501, "api_error"},
                                                    {503, "overloaded_error"},
                                                    {504, "timeout_error"},
                                                    {529, "overloaded_error"}};
  for (const auto& [status, type] : cases) {
    std::string out;
    kProtocol.append_error(out, {.status = status, .message = "m"}, {});
    EXPECT_EQ(out,
              R"({"type":"error","error":{"type":")" + std::string(type) + R"(","message":"m"}})");
  }
}

}  // namespace
}  // namespace stator::protocols::anthropic
