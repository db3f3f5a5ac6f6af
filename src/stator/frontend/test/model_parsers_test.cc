// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/model_parsers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "stator/frontend/test/marker_tokenizer.h"

namespace stator::frontend {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::string_view kHermesTemplate =
    R"(<tools></tools> <tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>)";

const parsers::FamilyRegistry& families() {
  return parsers::FamilyRegistry::builtin();
}

TEST(ModelParsers, AreChosenByTheTemplate) {
  const auto chosen =
      choose_parsers(families(), {.chat_template = kHermesTemplate}, *demo_assets()->tokenizer);
  ASSERT_TRUE(chosen.has_value()) << chosen.error().message();
  ASSERT_NE(chosen->tools, nullptr);
  EXPECT_EQ(chosen->tools->name, "hermes");
  EXPECT_THAT(chosen->why, HasSubstr("template"));
}

TEST(ModelParsers, AreNoneForAnUnknownModel) {
  const auto chosen =
      choose_parsers(families(), {.chat_template = "{{ messages }}", .model_name = "x"},
                     *demo_assets()->tokenizer);
  ASSERT_TRUE(chosen.has_value());
  EXPECT_EQ(chosen->tools, nullptr);
  EXPECT_EQ(chosen->reasoning, nullptr);
}

TEST(ModelParsers, AnOperatorsWordWins) {
  const auto named =
      choose_parsers(families(), {.tools = "Qwen25", .reasoning = "basic", .model_name = "x"},
                     *demo_assets()->tokenizer);
  ASSERT_TRUE(named.has_value()) << named.error().message();
  EXPECT_EQ(named->tools->name, "hermes");
  EXPECT_EQ(named->reasoning->name, "basic");
  EXPECT_EQ(named->why, "as configured");
  const auto none = choose_parsers(
      families(), {.tools = "none", .reasoning = "none", .chat_template = kHermesTemplate},
      *demo_assets()->tokenizer);
  ASSERT_TRUE(none.has_value());
  EXPECT_EQ(none->tools, nullptr);
  EXPECT_EQ(none->reasoning, nullptr);
}

TEST(ModelParsers, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  const auto tools = choose_parsers(families(), {.tools = "hermse"}, *demo_assets()->tokenizer);
  ASSERT_FALSE(tools.has_value());
  EXPECT_EQ(tools.error().code(), Code::kNotFound);
  EXPECT_THAT(tools.error().message(), HasSubstr("tool_call_parser"));
  EXPECT_THAT(tools.error().message(), HasSubstr("hermes"));
  EXPECT_FALSE(
      choose_parsers(families(), {.reasoning = "thinker"}, *demo_assets()->tokenizer).has_value());
}

TEST(ModelParsers, MarkersAreTokensWhereTheTokenizerHasThem) {
  const auto plain = choose_parsers(families(), {.tools = "harmony"}, *demo_assets()->tokenizer);
  ASSERT_TRUE(plain.has_value());
  EXPECT_THAT(plain->tool_markers.ids, IsEmpty());
  EXPECT_THAT(plain->tool_markers.texts, IsEmpty());

  const auto tokenizer = make_marker_tokenizer({"<|channel|>", "<|call|>"});
  const auto marked = choose_parsers(families(), {.tools = "harmony"}, *tokenizer);
  ASSERT_TRUE(marked.has_value());
  const TokenId channel = *tokenizer->find("<|channel|>");
  const TokenId call = *tokenizer->find("<|call|>");
  EXPECT_THAT(marked->tool_markers.ids,
              ElementsAre(std::min(channel, call), std::max(channel, call)));
  EXPECT_THAT(marked->tool_markers.texts, ElementsAre("<|call|>", "<|channel|>"));
  EXPECT_TRUE(marked->tool_markers.contains(call));
  EXPECT_FALSE(marked->tool_markers.contains(*tokenizer->find("<|im_end|>")));
  EXPECT_FALSE(marked->tool_markers.contains(0));
}

TEST(ModelParsers, SpecialTokensWithinALongerMarkerAreSeen) {
  const auto tokenizer = make_marker_tokenizer({"<|channel>"});
  const auto gemma = choose_parsers(families(), {.reasoning = "gemma4"}, *tokenizer);
  ASSERT_TRUE(gemma.has_value()) << gemma.error().message();
  EXPECT_TRUE(gemma->reasoning_markers.contains(*tokenizer->find("<|channel>")));
}

TEST(ModelParsers, ASpecFileAddsAFamily) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "parser_spec.json";
  std::ofstream(path) << R"({"kind":"tools","name":"house","body":"json_calls",)"
                         R"("markers":{"section_begin":["[[call]]"],"section_end":["[[/call]]"]}})";
  const auto known = load_families(path.string());
  ASSERT_TRUE(known.has_value()) << known.error().message();
  EXPECT_TRUE((*known)->find_tools("house").has_value());
  EXPECT_TRUE((*known)->find_tools("hermes").has_value());
  std::ofstream(path) << "{";
  const auto broken = load_families(path.string());
  ASSERT_FALSE(broken.has_value());
  EXPECT_THAT(broken.error().message(), HasSubstr(path.string()));
  std::filesystem::remove(path);
  const auto missing = load_families(path.string());
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace stator::frontend
