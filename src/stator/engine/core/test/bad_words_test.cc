// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/bad_words.h"

#include <gtest/gtest.h>

namespace stator::engine {
namespace {

/// A token per letter; a word behind a space is one token of its own: 1000 + its first letter.
TextEncoder letters(int& calls) {
  return [&calls](std::string_view text) -> Result<std::vector<TokenId>> {
    ++calls;
    if (text == "broken") {
      return Error(Code::kInvalidArgument, "no tokens");
    }
    std::vector<TokenId> out;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ' ' && i + 1 < text.size()) {
        out.push_back(1000U + static_cast<unsigned char>(text[++i]));
      } else {
        out.push_back(static_cast<unsigned char>(text[i]));
      }
    }
    return out;
  };
}

std::vector<TokenId> banned(BadWords& words, const std::vector<std::string>& list,
                            const std::vector<TokenId>& output) {
  std::vector<TokenId> out{7};  // forgotten
  EXPECT_TRUE(words.find_banned(list, output, out));
  return out;
}

TEST(BadWords, BanTheLastTokenOfAWordThatHasComeOtherwise) {
  int calls = 0;
  BadWords words(letters(calls));
  const std::vector<std::string> list{"x", " ab"};

  EXPECT_EQ(banned(words, list, {}), (std::vector<TokenId>{'x', 1000 + 'x'}));
  EXPECT_EQ(banned(words, list, {'q', 'a'}), (std::vector<TokenId>{'x', 1000 + 'x', 'b'}));
  EXPECT_EQ(banned(words, list, {'q', 1000 + 'a'}), (std::vector<TokenId>{'x', 1000 + 'x', 'b'}));
  EXPECT_EQ(banned(words, list, {'a', 'q'}), (std::vector<TokenId>{'x', 1000 + 'x'}));
  EXPECT_EQ(calls, 4) << "a list is encoded once";
  EXPECT_TRUE(banned(words, {}, {'a'}).empty());
}

TEST(BadWords, AreRememberedForABoundedNumberOfLists) {
  int calls = 0;
  BadWords words(letters(calls));
  for (int i = 0; i < 200; ++i) {
    banned(words, {std::to_string(i)}, {});
  }
  EXPECT_EQ(calls, 400);
  banned(words, {"199"}, {});
  EXPECT_EQ(calls, 400);
  banned(words, {"0"}, {});
  EXPECT_EQ(calls, 402);
}

TEST(BadWords, SayWhyTheyCannotBeRead) {
  int calls = 0;
  BadWords words(letters(calls));
  std::vector<TokenId> out;
  EXPECT_FALSE(words.find_banned({"broken"}, {}, out));
  EXPECT_EQ(BadWords({}).find_banned({"a"}, {}, out).error().code(), Code::kUnsupported);
}

}  // namespace
}  // namespace stator::engine
