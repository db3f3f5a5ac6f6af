// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "stator/api/request_parser.h"
#include "stator/api/test/request_cases.h"

namespace stator::api {
namespace {

constexpr std::string_view kTools =
    R"("tools":[{"type":"function","function":{"name":"a","parameters":{"z":1.0}}},)"
    R"({"type":"function","function":{"name":"b"}},{"type":"function","function":{"name":"c"}}])";
const ParseLimits kGuided{.guided_decoding = true};

std::string body(std::string_view choice, bool choice_first) {
  const std::string_view head = R"({"model":"m","messages":[{"role":"user","content":"x"}],)";
  return choice_first ? fmt::format(R"({}"tool_choice":{},{}}})", head, choice, kTools)
                      : fmt::format(R"({}{},"tool_choice":{}}})", head, kTools, choice);
}

std::string allowed(std::string_view mode, std::string_view tools) {
  return fmt::format(R"({{"type":"allowed_tools","allowed_tools":{{"mode":"{}","tools":[{}]}}}})",
                     mode, tools);
}

constexpr std::string_view kB = R"({"type":"function","function":{"name":"b"}})";
constexpr std::string_view kFlatA = R"({"type":"function","name":"a"})";

TEST(AllowedTools, LeaveTheSubsetInItsOrderWhicheverFieldComesFirst) {
  for (const bool choice_first : {false, true}) {
    std::string text = body(allowed("auto", fmt::format("{},{}", kB, kFlatA)), choice_first);
    const auto request = parse_chat_request(text, {});
    ASSERT_TRUE(request.has_value()) << request.error().message();
    EXPECT_EQ(request->tool_choice.kind, ToolChoice::Kind::kAuto);
    EXPECT_EQ(request->chat.tool_names, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(request->chat.tools_json,
              R"([{"type":"function","function":{"name":"a","parameters":{"z":1.0}}},)"
              R"({"type":"function","function":{"name":"b"}}])");
  }
}

TEST(AllowedTools, CanRequireACallOfThem) {
  std::string text = body(allowed("required", kB), true);
  const auto request = parse_chat_request(text, kGuided);
  ASSERT_TRUE(request.has_value()) << request.error().message();
  EXPECT_EQ(request->tool_choice.kind, ToolChoice::Kind::kRequired);
  EXPECT_EQ(request->chat.tool_names, (std::vector<std::string>{"b"}));
}

TEST(AllowedTools, NoneOfThemIsNoTools) {
  std::string text = body(allowed("auto", ""), false);
  const auto request = parse_chat_request(text, {});
  ASSERT_TRUE(request.has_value()) << request.error().message();
  EXPECT_TRUE(request->chat.tools_json.empty());
  EXPECT_TRUE(request->chat.tool_names.empty());
}

TEST(AllowedTools, AreRefusedWithTheirPlace) {
  const struct {
    std::string choice;
    std::string_view param;
    std::string_view text;
  } cases[] = {
      {allowed("any", kB), "tool_choice.allowed_tools.mode", "must be auto or required"},
      {allowed("required", ""), "tool_choice", "required needs non-empty tools"},
      {allowed("auto", R"({"type":"function","function":{"name":"d"}})"), "tool_choice",
       "names a function that is not in tools: d"},
      {allowed("auto", R"({"type":"function"})"),
       "tool_choice.allowed_tools.tools[0].function.name", "is required"},
      {R"({"type":"allowed_tools"})", "tool_choice.allowed_tools", "is required"},
      {R"({"type":"allowed_tools","allowed_tools":{"mode":"auto"}})",
       "tool_choice.allowed_tools.tools", "is required"},
  };
  for (const auto& c : cases) {
    std::string text = body(c.choice, false);
    expect_refusal(parse_chat_request(text, kGuided), {.param = c.param, .text = c.text}, c.choice);
  }
}

}  // namespace
}  // namespace stator::api
