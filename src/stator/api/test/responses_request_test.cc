// SPDX-License-Identifier: Apache-2.0
#include "stator/api/responses_request.h"

#include <gtest/gtest.h>

#include "stator/json/value.h"

namespace stator::api {
namespace {

constexpr ParseLimits kLimits{.guided_decoding = true};

ApiResult<ResponsesRequest> parse(std::string members, ResponsesPolicy policy = {}) {
  std::string body = R"({"model":"m",)" + members + "}";
  return parse_responses_request(body, kLimits, policy);
}

/// The messages that the request becomes, or the error's text.
std::string messages_of(std::string members, const Conversation::Lookup& lookup = {}) {
  auto request = parse(std::move(members));
  if (!request) {
    return request.error().message();
  }
  Conversation conversation(request->chat.chat, 128);
  conversation.add_instructions(request->instructions);
  if (auto added = conversation.add_items(request->input_json, lookup); !added) {
    return added.error().message();
  }
  if (auto done = conversation.finish(); !done) {
    return done.error().message();
  }
  EXPECT_TRUE(json::parse(request->chat.chat.messages_json)) << request->chat.chat.messages_json;
  return request->chat.chat.messages_json;
}

std::string error_of(std::string members, ResponsesPolicy policy = {}) {
  auto request = parse(std::move(members), policy);
  return request ? "accepted" : request.error().param + ": " + request.error().message();
}

TEST(ResponsesRequest, ReadsAStringAsAUsersMessage) {
  EXPECT_EQ(messages_of(R"("input":"Hi \u00e9","instructions":"Be brief.")"),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi \u00e9"}])");
}

TEST(ResponsesRequest, ReadsMessagesOfEveryForm) {
  EXPECT_EQ(
      messages_of(R"("input":[{"role":"user","content":"a"},
        {"type":"message","role":"developer","content":[{"type":"input_text","text":"b"}]},
        {"type":"message","id":"msg_1","role":"assistant","status":"completed",
         "content":[{"type":"output_text","text":"c","annotations":[]},{"type":"refusal","refusal":"d"}]},
        {"role":"user","content":[{"type":"input_text","text":"e"},{"type":"input_text","text":"f"}]}])"),
      R"([{"role":"user","content":"a"},{"role":"developer","content":"b"},)"
      R"({"role":"assistant","content":"cd"},)"
      R"({"role":"user","content":[{"type":"text","text":"e"},{"type":"text","text":"f"}]}])");
}

TEST(ResponsesRequest, TakesImagesAndAudioAsAChatDoes) {
  auto request = parse(R"("input":[{"role":"user","content":[{"type":"input_text","text":"a"},
        {"type":"input_image","image_url":"data:image/png;base64,AAAA","detail":"auto"},
        {"type":"input_file","filename":"b.png","file_data":"data:image/png;base64,BBBB"},
        {"type":"input_audio","input_audio":{"data":"CCCC","format":"mp3"}}]},
        {"type":"function_call","call_id":"c1","name":"w","arguments":""},
        {"type":"function_call_output","call_id":"c1","output":[{"type":"input_image",
         "image_url":"https://x/y"}]}])");
  ASSERT_TRUE(request) << request.error().message();
  ChatInput& chat = request->chat.chat;
  Conversation conversation(chat, 128);
  ASSERT_TRUE(conversation.add_items(request->input_json, {}));
  ASSERT_TRUE(conversation.finish());
  EXPECT_EQ(
      chat.messages_json,
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image"},)"
      R"({"type":"image"},{"type":"audio"}]},{"role":"assistant","content":null,)"
      R"("tool_calls":[{"id":"c1","type":"function","function":{"name":"w","arguments":""}}]},)"
      R"({"role":"tool","tool_call_id":"c1","content":[{"type":"image"}]}])");
  ASSERT_EQ(chat.media.size(), 4U);
  EXPECT_EQ(chat.media[0].source, "data:image/png;base64,AAAA");
  EXPECT_EQ(chat.media[0].detail, "auto");
  EXPECT_EQ(chat.media[1].source, "data:image/png;base64,BBBB");
  EXPECT_EQ(chat.media[2].source, "data:audio/mp3;base64,CCCC");
  EXPECT_EQ(chat.media[3].source, "https://x/y");
  EXPECT_EQ(chat.media[1].path, "input[0].content[2]");
  EXPECT_EQ(chat.media[3].path, "input[2].output[0]");
}

TEST(ResponsesRequest, NamesTheMediaItCannotRead) {
  const auto starts_with = [](const std::string& parts, const std::string& text) {
    const std::string said = messages_of(R"("input":[{"role":"user","content":[)" + parts + "]}]");
    EXPECT_TRUE(said.starts_with("Validation: input[0].content[0]" + text)) << said;
  };
  starts_with(R"({"type":"input_image","file_id":"f1"})", " is an image input by file_id");
  starts_with(R"({"type":"input_image"})", " requires file_id or image_url");
  starts_with(R"({"type":"input_file"})", " requires exactly one of");
  starts_with(R"({"type":"input_file","file_data":"data:application/pdf;base64,AA=="})",
              " is a file that is no image");
  starts_with(R"({"type":"input_file","file_url":"https://x/y.pdf"})",
              " is a file that is no image");
  starts_with(R"({"type":"input_video","video_url":"v"})", ".type is");
}

TEST(ResponsesRequest, MergesReasoningAndCallsIntoTheAssistantsTurn) {
  EXPECT_EQ(messages_of(R"("input":[{"role":"user","content":"w?"},
        {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"think"}]},
        {"type":"function_call","call_id":"c1","name":"w","arguments":"{\"a\":1}"},
        {"type":"function_call","call_id":"c2","name":"w","arguments":""},
        {"type":"function_call_output","call_id":"c1","output":"sun"},
        {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"x"},
                                                               {"type":"input_text","text":"y"}]}])"),
            R"([{"role":"user","content":"w?"},{"role":"assistant","content":null,)"
            R"("reasoning_content":"think","tool_calls":[)"
            R"({"id":"c1","type":"function","function":{"name":"w","arguments":"{\"a\":1}"}},)"
            R"({"id":"c2","type":"function","function":{"name":"w","arguments":""}}]},)"
            R"({"role":"tool","tool_call_id":"c1","content":"sun"},)"
            R"({"role":"tool","tool_call_id":"c2","content":"x\ny"}])");
}

TEST(ResponsesRequest, TakesEncodedReasoningBack) {
  const std::string encoded = encode_reasoning("a \"b\"\n");
  EXPECT_EQ(decode_reasoning(encoded), "a \"b\"\n");
  EXPECT_EQ(decode_reasoning("gAAAAB"), std::nullopt);
  EXPECT_EQ(messages_of(R"("input":[{"type":"reasoning","id":"r","summary":[],"content":null,)"
                        R"("encrypted_content":")" +
                        encoded + R"("},{"role":"user","content":"q"}])"),
            R"([{"role":"assistant","content":"","reasoning_content":"a \"b\"\n"},)"
            R"({"role":"user","content":"q"}])");
}

TEST(ResponsesRequest, ResolvesReferences) {
  const auto lookup = [](std::string_view id) -> std::optional<std::string> {
    return id == "msg_x" ? std::optional<std::string>(R"({"role":"user","content":"old"})")
                         : std::nullopt;
  };
  EXPECT_EQ(
      messages_of(R"("input":[{"type":"item_reference","id":"msg_x"},{"id":"msg_x"}])", lookup),
      R"([{"role":"user","content":"old"},{"role":"user","content":"old"}])");
  EXPECT_TRUE(messages_of(R"("input":[{"type":"item_reference","id":"nope"}])", lookup)
                  .starts_with("Validation: input[0].id names an item nobody knows"));
}

TEST(ResponsesRequest, MakesToolsOfAChat) {
  const auto request =
      parse(R"("input":"x","tools":[{"type":"function","name":"f","description":"d",)"
            R"("parameters":{"type":"object"},"strict":true},{"type":"namespace","name":"ns",)"
            R"("description":"","tools":[{"type":"function","name":"g"}]}],"tool_choice":"auto")");
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_EQ(request->chat.chat.tools_json,
            R"([{"type":"function","function":{"name":"f","description":"d",)"
            R"("parameters":{"type":"object"},"strict":true}},)"
            R"({"type":"function","function":{"name":"ns__g"}}])");
  ASSERT_EQ(request->namespaced_tools.size(), 1U);
  EXPECT_EQ(request->namespaced_tools[0].name, "g");
}

TEST(ResponsesRequest, KeepsOnlyAllowedTools) {
  const auto request = parse(
      R"("input":"x","tools":[{"type":"function","name":"f"},{"type":"function","name":"g"}],)"
      R"("tool_choice":{"type":"allowed_tools","mode":"required",)"
      R"("tools":[{"type":"function","name":"g"}]})");
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_EQ(request->chat.chat.tools_json, R"([{"type":"function","function":{"name":"g"}}])");
  EXPECT_EQ(request->chat.chat.tool_names, std::vector<std::string>{"g"});
  EXPECT_EQ(request->chat.tool_choice.kind, ToolChoice::Kind::kRequired);
}

TEST(ResponsesRequest, MapsTheFormatOfText) {
  const auto request =
      parse(R"("input":"x","text":{"format":{"type":"json_schema","name":"n","strict":true,)"
            R"("schema":{"type":"object","properties":{}}},"verbosity":"low"})");
  ASSERT_TRUE(request) << request.error().message();
  EXPECT_TRUE(request->chat.options.structured_output.has_value());
  EXPECT_EQ(request->chat.response_format_json,
            R"({"type":"json_schema","json_schema":{"name":"n","strict":true,)"
            R"("schema":{"type":"object","properties":{}}}})");
  EXPECT_EQ(request->chat.options.ignored_fields, std::vector<std::string>{"text.verbosity"});
}

TEST(ResponsesRequest, ReadsNumbersAndFlags) {
  const auto request =
      parse(R"("input":"x","max_output_tokens":9,"temperature":0.5,"top_p":0.9,"top_logprobs":3,)"
            R"("include":["reasoning.encrypted_content"],"store":false,"stream":true,)"
            R"("reasoning":{"effort":"low","summary":"auto"},"parallel_tool_calls":false,)"
            R"("prompt_cache_key":"k","safety_identifier":"s","user":"u","max_tool_calls":3,)"
            R"("metadata":{"a":"b"},"service_tier":"flex","truncation":"auto","unknown":1)");
  ASSERT_TRUE(request) << request.error().message();
  const GenerateOptions& options = request->chat.options;
  EXPECT_EQ(options.max_tokens, 9U);
  EXPECT_EQ(options.sampling.logprobs, 3U);
  EXPECT_TRUE(options.stream);
  EXPECT_FALSE(request->store);
  EXPECT_TRUE(request->encrypts_reasoning);
  EXPECT_TRUE(request->summarizes_reasoning);
  EXPECT_EQ(request->chat.chat.reasoning_effort, "low");
  EXPECT_EQ(options.ignored_fields,
            (std::vector<std::string>{"service_tier", "truncation", "unknown", "user"}));
  EXPECT_EQ(request->echo_json,
            R"("background":false,"instructions":null,"max_output_tokens":9,"max_tool_calls":3,)"
            R"("metadata":{"a":"b"},"parallel_tool_calls":false,"previous_response_id":null,)"
            R"("prompt_cache_key":"k","reasoning":{"effort":"low","summary":"auto"},)"
            R"("safety_identifier":"s","service_tier":"default","store":false,"temperature":0.5,)"
            R"("text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_logprobs":3,)"
            R"("top_p":0.9,"truncation":"disabled","user":"u")");
}

TEST(ResponsesRequest, RefusesByName) {
  const auto starts = [](const std::string& text, std::string_view with) {
    EXPECT_TRUE(text.starts_with(with)) << text;
  };
  starts(error_of(R"("stream":false)"), "input: Validation: input is required");
  starts(error_of(R"("input":7)"), "input: Validation: input must be a string or an array");
  starts(error_of(R"("input":"x","tools":[{"type":"web_search"}])"), "tools[0].type: Validation:");
  starts(error_of(R"("input":"x","tools":[{"type":"nonsense"}])"), "tools[0].type: Validation:");
  starts(error_of(R"("input":"x","instructions":["y"])"), "instructions: Validation:");
  EXPECT_EQ(
      error_of(R"("input":"x","tools":[{"type":"web_search"}])", {.ignore_builtin_tools = true}),
      "accepted");
  starts(error_of(R"("input":"x","conversation":"c")"), "conversation: Validation:");
  starts(error_of(R"("input":"x","prompt":{"id":"p"})"), "prompt: Validation:");
  starts(error_of(R"("input":"x","background":true,"store":false)"), "background: Validation:");
  starts(error_of(R"("input":"x","include":["what"])"), "include[0]: Validation:");
  starts(error_of(R"("input":"x","n":2)"), "n: Validation:");
  starts(error_of(R"("input":"x","tool_choice":{"type":"function","name":"f"})"),
         "tool_choice: Validation:");
  starts(error_of(R"("input":"x","metadata":{"a":1})"), "metadata.a: Validation:");
  starts(error_of(R"("input":"x","text":{"format":{"type":"xml"}})"), "text.format.type:");
  starts(messages_of(R"("input":[{"type":"mcp_call"}])"),
         "Validation: input[0].type is \"mcp_call\"");
  starts(messages_of(R"("input":[{"role":"user","content":[{"type":"input_image"}]}])"),
         "Validation: input[0].content[0] requires file_id or image_url");
  starts(messages_of(R"("input":[{"role":"robot","content":"x"}])"), "Validation: input[0].role");
  starts(
      messages_of(R"("input":[{"type":"function_call","call_id":"c","name":"f","arguments":"["}])"),
      "Validation: input[0].arguments");
  starts(messages_of(R"("input":[])"), "Validation: input is required");
}

TEST(ResponsesRequest, ListsInputItems) {
  constexpr std::string_view kId = "resp_00000000000000000000000000000abc";
  EXPECT_EQ(list_input_items(R"("hi")", kId),
            (std::vector<std::string>{
                R"({"role":"user","content":[{"type":"input_text","text":"hi"}],"type":"message",)"
                R"("id":"msg_00000000000000000000000000000abc8000","status":"completed"})"}));
  EXPECT_EQ(list_input_items(
                R"([{"type":"function_call_output","id":"x","call_id":"c","output":"1"}])", kId),
            (std::vector<std::string>{R"({"type":"function_call_output","id":"x","call_id":"c",)"
                                      R"("output":"1","status":"completed"})"}));
  EXPECT_EQ(response_of_item("msg_00000000000000000000000000000abc8000"), kId);
  EXPECT_EQ(response_of_item("msg_1"), "");
}

}  // namespace
}  // namespace stator::api
