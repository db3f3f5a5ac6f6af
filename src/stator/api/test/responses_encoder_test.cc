// SPDX-License-Identifier: Apache-2.0
#include "stator/api/responses_encoder.h"

#include <gtest/gtest.h>

#include "stator/json/value.h"

namespace stator::api {
namespace {

ResponseFrame frame() {
  return {.id = "resp_0123456789abcdef0123456789abcdef",
          .model = "demo",
          .created_s = 17,
          .echo_json = R"("background":false)"};
}

/// Types of the events of a stream; checks their frames and numbers on the way.
std::vector<std::string> types_of(std::string_view stream) {
  std::vector<std::string> types;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    const std::string_view event = stream.substr(0, end);
    stream.remove_prefix(end + 2);
    const size_t line = event.find('\n');
    const auto data = json::parse(event.substr(line + 7));
    EXPECT_TRUE(data) << event;
    EXPECT_EQ(event.substr(7, line - 7), data->text_at({"type"}));
    EXPECT_EQ(data->find("sequence_number")->as_uint64(), types.size());
    types.emplace_back(data->text_at({"type"}));
  }
  return types;
}

std::string play(ResponsesEncoder& encoder, ChoiceFinish finish) {
  std::string out;
  encoder.begin(out);
  encoder.reasoning(out, "think ");
  encoder.reasoning(out, "\"hard\"");
  encoder.text(out, "Hel");
  encoder.text(out, "lo\n");
  encoder.call(out, {.index = 0, .id = "call_1", .name = "f"});
  encoder.call(out, {.index = 0, .arguments = "{\"a\""});
  encoder.call(out, {.index = 0, .arguments = ":1}"});
  encoder.call(out, {.index = 1, .id = "call_2", .name = "ns__g"});
  encoder.end(
      out, finish,
      {.prompt_tokens = 5, .completion_tokens = 7, .cached_tokens = 4, .reasoning_tokens = 2}, 19);
  return out;
}

TEST(ResponsesEncoder, WritesEveryEventInOrder) {
  ResponsesEncoder encoder(frame(), {.tools = {{"ns__g", "ns", "g"}}});
  const std::string out = play(encoder, ChoiceFinish::kToolCalls);
  const auto r = [](std::string_view type) { return "response." + std::string(type); };
  EXPECT_EQ(types_of(out), (std::vector<std::string>{r("created"),
                                                     r("in_progress"),
                                                     r("output_item.added"),
                                                     r("content_part.added"),
                                                     r("reasoning_text.delta"),
                                                     r("reasoning_text.delta"),
                                                     r("reasoning_text.done"),
                                                     r("content_part.done"),
                                                     r("output_item.done"),
                                                     r("output_item.added"),
                                                     r("content_part.added"),
                                                     r("output_text.delta"),
                                                     r("output_text.delta"),
                                                     r("output_text.done"),
                                                     r("content_part.done"),
                                                     r("output_item.done"),
                                                     r("output_item.added"),
                                                     r("function_call_arguments.delta"),
                                                     r("function_call_arguments.delta"),
                                                     r("function_call_arguments.done"),
                                                     r("output_item.done"),
                                                     r("output_item.added"),
                                                     r("function_call_arguments.done"),
                                                     r("output_item.done"),
                                                     r("completed")}));
}

TEST(ResponsesEncoder, KeepsTheWholeResponse) {
  ResponsesEncoder encoder(frame(), {.events = false, .tools = {{"ns__g", "ns", "g"}}});
  EXPECT_EQ(play(encoder, ChoiceFinish::kToolCalls), "");
  EXPECT_EQ(
      encoder.response_json(),
      R"({"id":"resp_0123456789abcdef0123456789abcdef","object":"response","created_at":17,)"
      R"("status":"completed","completed_at":19,"error":null,"incomplete_details":null,)"
      R"("model":"demo","output":[)"
      R"({"id":"rs_0123456789abcdef0123456789abcdef0000","type":"reasoning","summary":[],)"
      R"("content":[{"type":"reasoning_text","text":"think \"hard\""}],"status":"completed"},)"
      R"({"id":"msg_0123456789abcdef0123456789abcdef0001","type":"message","status":"completed",)"
      R"("role":"assistant","content":[{"type":"output_text","text":"Hello\n","annotations":[],)"
      R"("logprobs":[]}]},)"
      R"({"id":"fc_0123456789abcdef0123456789abcdef0002","type":"function_call",)"
      R"("status":"completed","arguments":"{\"a\":1}","call_id":"call_1","name":"f"},)"
      R"({"id":"fc_0123456789abcdef0123456789abcdef0003","type":"function_call",)"
      R"("status":"completed","arguments":"","call_id":"call_2","name":"g","namespace":"ns"}],)"
      R"("background":false,"usage":{"input_tokens":5,"input_tokens_details":{"cached_tokens":4,)"
      R"("cache_write_tokens":0},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":2},)"
      R"("total_tokens":12}})");
}

TEST(ResponsesEncoder, GivesTheSameObjectWithAndWithoutEvents) {
  ResponsesEncoder loud(frame(), {});
  ResponsesEncoder quiet(frame(), {.events = false});
  const std::string out = play(loud, ChoiceFinish::kLength);
  play(quiet, ChoiceFinish::kLength);
  EXPECT_EQ(loud.response_json(), quiet.response_json());
  EXPECT_NE(out.find("event: response.incomplete\n"), std::string::npos);
  EXPECT_NE(quiet.response_json().find(R"("incomplete_details":{"reason":"max_output_tokens"})"),
            std::string::npos);
}

TEST(ResponsesEncoder, SummarizesReasoningWhenAsked) {
  ResponsesEncoder encoder(
      frame(), {.queued = true, .summarizes_reasoning = true, .encrypts_reasoning = true});
  std::string out;
  encoder.begin(out);
  encoder.reasoning(out, "why");
  encoder.refusal(out, "no");
  encoder.end(out, ChoiceFinish::kStop, {}, 19);
  const auto r = [](std::string_view type) { return "response." + std::string(type); };
  EXPECT_EQ(types_of(out), (std::vector<std::string>{
                               r("created"), r("queued"), r("in_progress"), r("output_item.added"),
                               r("reasoning_summary_part.added"), r("reasoning_summary_text.delta"),
                               r("reasoning_summary_text.done"), r("reasoning_summary_part.done"),
                               r("output_item.done"), r("output_item.added"),
                               r("content_part.added"), r("refusal.delta"), r("refusal.done"),
                               r("content_part.done"), r("output_item.done"), r("completed")}));
  EXPECT_NE(encoder.output_json().find(encode_reasoning("why")), std::string::npos);
}

TEST(ResponsesEncoder, ClosesWhatIsOpenWhenItFails) {
  ResponsesEncoder encoder(frame(), {});
  std::string out;
  encoder.begin(out);
  encoder.text(out, "par");
  encoder.fail(out, "server_error", "the worker is gone");
  EXPECT_EQ(types_of(out).back(), "response.failed");
  const auto response = json::parse(encoder.response_json());
  ASSERT_TRUE(response);
  EXPECT_EQ(response->text_at({"status"}), "failed");
  EXPECT_EQ(response->text_at({"error", "code"}), "server_error");
  EXPECT_EQ(response->find("output")->elements()[0].text_at({"status"}), "incomplete");
}

TEST(ResponsesEncoder, PutsLogprobsIntoDeltaAndItem) {
  ResponsesEncoder encoder(frame(), {});
  std::string out;
  encoder.begin(out);
  const std::vector<LogprobEntry> entries{{.sampled = {7, -0.5F, "Hi"}, .top = {}}};
  encoder.text(out, "Hi", std::span(entries));
  encoder.end(out, ChoiceFinish::kStop, {}, 19);
  types_of(out);
  constexpr std::string_view kEntry =
      R"("logprobs":[{"token":"Hi","logprob":-0.5,"bytes":[72,105],"top_logprobs":[],"token_id":7}])";
  EXPECT_NE(out.find(R"("delta":"Hi",)" + std::string(kEntry)), std::string::npos) << out;
  EXPECT_NE(encoder.output_json().find(kEntry), std::string::npos);
}

TEST(ResponsesEncoder, WritesAMessageWhenNothingCame) {
  ResponsesEncoder encoder(frame(), {.events = false});
  std::string out;
  encoder.end(out, ChoiceFinish::kStop, {}, 19);
  EXPECT_NE(encoder.output_json().find(R"("type":"output_text","text":"")"), std::string::npos);
}

}  // namespace
}  // namespace stator::api
