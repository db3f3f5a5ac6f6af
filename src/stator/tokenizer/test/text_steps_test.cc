// SPDX-License-Identifier: Apache-2.0
// The steps before the model, where the golden files do not reach: bounds, costs and error exits.
#include "stator/core/random.h"
#include "stator/tokenizer/general_category.h"
#include "stator/tokenizer/normalizer.h"
#include "stator/tokenizer/pre_token_cache.h"
#include "stator/tokenizer/pre_tokenizer.h"
#include "stator/tokenizer/regex.h"
#include "stator/tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace stator::tokenizer {
namespace {

std::vector<std::string> cut(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Pieces pieces;
  EXPECT_TRUE(pre_tokenize(pre_tokenizer, text, TextStart::kYes, pieces).has_value());
  std::vector<std::string> out;
  for (size_t i = 0; i < pieces.ranges.size(); ++i) {
    out.emplace_back(pieces[i]);
  }
  return out;
}

PreTokenizer regex_split(std::string_view pattern) {
  auto regex = Regex::compile(pattern);
  EXPECT_TRUE(regex.has_value()) << pattern;
  return {{PreTokenizer::Split{*std::move(regex), PreTokenizer::Behavior::kIsolated}}};
}

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// One expression per family, as published.
constexpr std::string_view kTail = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kContractions = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const std::string kPatterns[] = {
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    kContractions + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" +
        std::string(kTail),
    kContractions + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" +
        std::string(kTail),
    kContractions + R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" +
        std::string(kTail),
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)" +
        kContractions +
        R"(?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)" +
        kContractions + R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" + std::string(kTail),
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" +
        std::string(kTail),
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*)"
    R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+)" +
        kContractions +
        R"(?|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+)"
        R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*)" +
        kContractions + R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" + std::string(kTail)};

TEST(Scanner, EqualsTheRegularExpressionOfEachFamily) {
  // Characters of every class that the expressions distinguish.
  const std::string alphabet[] = {"a",      "B",          "s",      "T",      "l",      "e",
                                  "'",      "'",          "\u017f", "1",      "\u00bd", " ",
                                  " ",      "\n",         "\r",     "\t",     "\u00a0", "\u3000",
                                  "\u180e", ".",          "/",      "\u0301", "\u01c5", "\u02b0",
                                  "\u4e2d", "\U0001F600", "\u2028", "\u0085", "\u00e9", "\u00c9"};
  Random random(3);
  for (const std::string& pattern : kPatterns) {
    const auto family = find_scanner(pattern);
    ASSERT_TRUE(family) << pattern;
    const PreTokenizer by_scanner{{PreTokenizer::Scan{*family}}};
    const PreTokenizer by_regex = regex_split(pattern);
    for (int round = 0; round < 20'000; ++round) {
      std::string text;
      for (uint64_t i = 1 + random.below(10); i > 0; --i) {
        text += alphabet[random.below(std::size(alphabet))];
      }

      ASSERT_EQ(cut(by_scanner, text), cut(by_regex, text))
          << testing::PrintToString(text) << pattern;
    }
  }
}

TEST(Scanner, OtherExpressionsHaveNone) {
  EXPECT_FALSE(find_scanner(R"(\p{L}+)"));
}

TEST(Regex, UsesTheClassesOfTheReference) {
  EXPECT_EQ(cut(regex_split(R"(\s+)"), "a\u0085\u180e\u001c"),
            (std::vector<std::string>{"a", "\u0085", "\u180e\u001c"}));
  EXPECT_EQ(cut(regex_split(R"([\S]+)"), "a\u2028b"),
            (std::vector<std::string>{"a", "\u2028", "b"}));
  EXPECT_EQ(cut(regex_split(R"(\w+)"), "a\u0301_\u24b6-"),
            (std::vector<std::string>{"a\u0301_\u24b6", "-"}));
  EXPECT_EQ(cut(regex_split(R"(^b)"), "a\nb"), (std::vector<std::string>{"a\n", "b"}));
}

TEST(Regex, KnowsCharactersThatAreNewerThanPcre2) {
  // Letters and digits of Unicode 15 and 16.
  EXPECT_EQ(cut(regex_split(R"(\p{L}+)"), "a\u1c89\U000105c0-"),
            (std::vector<std::string>{"a\u1c89\U000105c0", "-"}));
  EXPECT_EQ(cut(regex_split(R"([^\p{L}\s]+)"), "-\u1c89-"),
            (std::vector<std::string>{"-", "\u1c89", "-"}));
  EXPECT_EQ(cut(regex_split(R"(\d+)"), "1\U00010d40a"),
            (std::vector<std::string>{"1\U00010d40", "a"}));
  EXPECT_EQ(cut(regex_split(R"([\P{Lu}]+)"), "a\u1c89a"),
            (std::vector<std::string>{"a", "\u1c89", "a"}));
}

TEST(Regex, ClassesHoldWhatTheTableSays) {
  std::string text;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c < 0xD800 || c > 0xDFFF) {
      append_utf8(c, text);
    }
  }
  const auto runs = category_runs();
  for (const std::string_view name :
       {"L", "M", "N", "P", "S", "Z", "C", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd", "Cn"}) {
    const CategorySet set = find_categories(name).value();
    const auto in_set = [&](const CategoryRun& run) { return (set & as_set(run.category)) != 0; };
    size_t expected = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
      const char32_t end = i + 1 < runs.size() ? runs[i + 1].first : 0x110000;
      expected += in_set(runs[i]) && runs[i].first != 0xD800 ? end - runs[i].first : 0;
    }
    for (const std::string form : {R"(\p{*})", R"([\p{*}])", R"([\p{^*}])", R"(\P{*})"}) {
      std::string pattern = form;
      pattern.replace(pattern.find('*'), 1, name);
      const bool negated = form.contains('^') || form.contains('P');
      auto regex = Regex::compile(pattern);
      ASSERT_TRUE(regex.has_value()) << pattern;
      std::string left;
      const auto removed =
          normalize({{Normalizer::ReplaceMatches{*std::move(regex), ""}}}, text, left);

      ASSERT_TRUE(removed.has_value()) << pattern;
      EXPECT_EQ(count_characters(removed->text), negated ? expected : 0x110000 - 0x800 - expected)
          << pattern;
    }
  }
}

TEST(Regex, RefusesWhatTheEnginesUnderstandDifferently) {
  for (const std::string_view pattern :
       {"[a&&b]", "[a[b]]", "(?m:a.b)", R"(\bx)", "a{1,2}+", R"([\W])", "a\\"}) {
    const auto regex = Regex::compile(pattern);

    ASSERT_FALSE(regex.has_value()) << pattern;
    EXPECT_EQ(regex.error().code(), Code::kUnsupported) << pattern;
  }
}

TEST(Normalizer, SortsLongRunsOfMarks) {
  std::string text = "a";
  std::string sorted = "a";
  constexpr int kMarks = 100'000;
  for (int i = 0; i < kMarks; ++i) {
    text += "\u0307\u0323";
    sorted += i == 0 ? "" : "\u0323";
  }
  for (int i = 0; i < kMarks; ++i) {
    sorted += "\u0307";
  }
  sorted.replace(0, 1, "\u1ea1");  // a and the first dot below compose
  std::string buffer;

  const auto normalized =
      normalize({{Normalizer::ToForm{Normalizer::UnicodeForm::kNfc}}}, text, buffer);

  ASSERT_TRUE(normalized.has_value());
  EXPECT_TRUE(normalized->text == sorted);
}

TEST(Normalizer, ReturnsComposedTextItself) {
  const std::string text = "déjà vu 中文";
  std::string buffer;

  const auto normalized =
      normalize({{Normalizer::ToForm{Normalizer::UnicodeForm::kNfc}}}, text, buffer);

  ASSERT_TRUE(normalized.has_value());
  EXPECT_EQ(normalized->text.data(), text.data());
}

TEST(Normalizer, SupportsTheOtherForms) {
  const auto form = [](Normalizer::UnicodeForm to, std::string_view text) {
    std::string buffer;
    const auto normalized = normalize({{Normalizer::ToForm{to}}}, text, buffer);
    return normalized ? std::string(normalized->text) : "";
  };

  EXPECT_EQ(form(Normalizer::UnicodeForm::kNfd, "é각"), "e\u0301\u1100\u1161\u11a8");
  EXPECT_EQ(form(Normalizer::UnicodeForm::kNfkc, "ﬁ①e\u0301"), "fi1é");
  EXPECT_EQ(form(Normalizer::UnicodeForm::kNfkd, "ﬁé"), "fie\u0301");
}

TEST(Normalizer, StopsReplacementsThatGrowWithoutBound) {
  const Normalizer grow{{Normalizer::ReplaceText{"a", std::string(1000, 'b')}},
                        /*bytes_max=*/100'000};
  std::string buffer;

  const auto normalized = normalize(grow, std::string(2000, 'a'), buffer);

  ASSERT_FALSE(normalized.has_value());
  EXPECT_EQ(normalized.error().code(), Code::kTooLarge);
}

TEST(Unicode, ClassifiesEveryKindOfPrefix) {
  using Kind = Utf8Prefix::Kind;
  const auto is = [](std::string_view bytes, Kind kind, uint32_t length) {
    const Utf8Prefix prefix = classify_utf8(bytes);
    return prefix.kind == kind && prefix.bytes == length;
  };

  EXPECT_TRUE(is("a", Kind::kCharacter, 1));
  EXPECT_TRUE(is("\xF4\x8F\xBF\xBF", Kind::kCharacter, 4));
  EXPECT_TRUE(is("\xF4\x90\x80\x80", Kind::kInvalid, 1));
  EXPECT_TRUE(is("\xED\xA0\x80", Kind::kInvalid, 1));
  EXPECT_TRUE(is("\xC0\xAF", Kind::kInvalid, 1));
  EXPECT_TRUE(is("\xE2\x82z", Kind::kInvalid, 2));
  EXPECT_TRUE(is("\xF0\x9F\x98", Kind::kIncomplete, 3));
}

TEST(PreTokenCache, FindsWhatWasInserted) {
  PreTokenCache& cache = PreTokenCache::of_this_thread();
  const std::string longest(PreTokenCache::kPieceBytesMax, 'x');
  constexpr uint32_t kInstance = 4'000'000'000;  // no tokenizer of this test has it
  for (size_t bytes = 1; bytes <= longest.size(); ++bytes) {
    const auto key = PreTokenCache::make_key(std::string_view(longest).substr(0, bytes), kInstance);
    const std::vector<TokenId> ids(1 + bytes % PreTokenCache::kIdsMax, static_cast<TokenId>(bytes));

    cache.insert(key, ids);

    EXPECT_TRUE(std::ranges::equal(cache.find(key), ids));
    const auto other =
        PreTokenCache::make_key(std::string_view(longest).substr(0, bytes), kInstance + 1);
    EXPECT_TRUE(cache.find(other).empty());
  }
}

TEST(PreTokenCache, DoesNotKeepManyIds) {
  PreTokenCache& cache = PreTokenCache::of_this_thread();
  const auto key = PreTokenCache::make_key("many", 4'000'000'002);

  cache.insert(key, std::vector<TokenId>(PreTokenCache::kIdsMax + 1, 5));

  EXPECT_TRUE(cache.find(key).empty());
}

}  // namespace
}  // namespace stator::tokenizer
