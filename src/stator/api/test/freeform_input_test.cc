// SPDX-License-Identifier: Apache-2.0
#include "stator/api/freeform_input.h"

#include <gtest/gtest.h>

namespace stator::api {
namespace {

std::string taken(std::string_view arguments, size_t piece) {
  FreeformInput input;
  std::string text;
  for (size_t at = 0; at < arguments.size(); at += piece) {
    text += input.feed(arguments.substr(at, piece));
  }
  return text + input.finish();
}

TEST(FreeformInput, TakesTheTextOutWhateverThePieces) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"input":"a\nb \"c\" \\ \/"})", "a\nb \"c\" \\ /"},
      {R"( { "input" : "Z\u00fcrich \ud83d\ude00" } )", "Zürich 😀"},
      {"{\"input\":\"raw\nline\"}", "raw\nline"},
      {R"({"input":"\ud83dx \udc00y \uzz"})", "\xEF\xBF\xBDx \xEF\xBF\xBDy \xEF\xBF\xBDzz"},
      {R"({"input":""})", ""},
      {R"({"input":"cut \u00)", "cut "},
      {R"({"input":"cut\)", "cut"},
      {R"({"patch":"x"})", R"({"patch":"x"})"},
      {R"({"input":5})", R"({"input":5})"},
      {R"({"in)", R"({"in)"},
      {"plain text", "plain text"},
      {"", ""},
  };
  for (const auto& [arguments, text] : cases) {
    for (const size_t piece : {1, 2, 3, 7, 100}) {
      EXPECT_EQ(taken(arguments, piece), text) << arguments << " in pieces of " << piece;
    }
  }
}

TEST(FreeformInput, WritesArgumentsAsAString) {
  EXPECT_EQ(freeform_arguments(R"("a\"b")"), R"("{\"input\":\"a\\\"b\"}")");
  EXPECT_EQ(taken(R"({"input":"a\"b"})", 1), "a\"b");
}

}  // namespace
}  // namespace stator::api
