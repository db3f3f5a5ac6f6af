// SPDX-License-Identifier: Apache-2.0
// The steps before the model, where the golden files do not reach: bounds, costs and error exits.
#include "stator/core/random.h"
#include "stator/tokenizer/added_tokens.h"
#include "stator/tokenizer/general_category.h"
#include "stator/tokenizer/normalizer.h"
#include "stator/tokenizer/pre_token_cache.h"
#include "stator/tokenizer/pre_tokenizer.h"
#include "stator/tokenizer/regex.h"
#include "stator/tokenizer/scanner.h"
#include "stator/tokenizer/test/split_texts.h"
#include "stator/tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>

namespace stator::tokenizer {
namespace {

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

/// The steps of Falcon's tokenizer.json as they stand there.
PreTokenizer falcon_steps() {
  using Split = PreTokenizer::Split;
  constexpr auto kContiguous = PreTokenizer::Behavior::kContiguous;
  PreTokenizer all = regex_split("[0-9][0-9][0-9]");
  all.steps.insert(all.steps.begin(),
                   {Split{PreTokenizer::SplitClass{kPunctuationSplit}, kContiguous},
                    PreTokenizer::Scan{ScannerFamily::kGpt2}, PreTokenizer::MapBytes{},
                    Split{PreTokenizer::SplitClass{kDigit}, kContiguous}});
  return all;
}

TEST(Scanner, EqualsTheStepsOfFalconThatWorkOnBytes) {
  Random random(5);
  const PreTokenizer by_scanner{
      {PreTokenizer::Scan{ScannerFamily::kFalconBytes}, PreTokenizer::MapBytes{}}};
  const PreTokenizer by_steps = falcon_steps();
  for (int round = 0; round < 40'000; ++round) {
    const std::string text = round % 4 == 0 ? text_of_one_block(random) : text_of_alphabet(random);

    ASSERT_EQ(cut(by_scanner, text), cut(by_steps, text)) << testing::PrintToString(text);
  }
}

TEST(Scanner, FindsTheLongestSequence) {
  const auto digits_first = expressions_of(ScannerFamily::kStarcoder);
  const std::string_view more[] = {digits_first[0], digits_first[1], "x"};
  const std::string_view other[] = {R"(\p{L}+)"};

  EXPECT_EQ(find_scanner(more)->family, ScannerFamily::kStarcoder);
  EXPECT_EQ(find_scanner(more)->expressions, 2);
  EXPECT_EQ(find_scanner(std::span(more).subspan(1))->family, ScannerFamily::kGpt2);
  EXPECT_FALSE(find_scanner(other));
  EXPECT_FALSE(find_scanner({}));
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
  // Of each run of one category the first characters and the last.
  const auto runs = category_runs();
  std::string text;
  std::array<size_t, kGeneralCategories> counts{};
  for (size_t i = 0; i < runs.size(); ++i) {
    const char32_t end = i + 1 < runs.size() ? runs[i + 1].first : 0x110000;
    for (char32_t c = runs[i].first; c < end && runs[i].first != 0xD800; ++c) {
      if (c < runs[i].first + 10 || c + 1 == end) {
        append_utf8(text, c);
        ++counts[static_cast<size_t>(runs[i].category)];
      }
    }
  }
  for (const std::string_view name :
       {"L", "M", "N", "P", "S", "Z", "C", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Nd", "Cn"}) {
    size_t members = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      members += (find_categories(name).value() >> i & 1) != 0 ? counts[i] : 0;
    }
    const size_t others = count_characters(text) - members;
    for (const std::string form : {R"(\p{*}+)", R"([\p{*}]+)", R"([\p{^*}]+)", R"(\P{*}+)"}) {
      std::string pattern = form;
      pattern.replace(pattern.find('*'), 1, name);
      const bool negated = form.contains('^') || form.contains('P');
      auto regex = Regex::compile(pattern);
      ASSERT_TRUE(regex.has_value()) << pattern;
      std::string left;

      const auto removed =
          normalize({{Normalizer::ReplaceMatches{*std::move(regex), ""}}}, text, left);

      ASSERT_TRUE(removed.has_value()) << pattern;
      EXPECT_EQ(count_characters(removed->text), negated ? members : others) << pattern;
    }
  }
}

TEST(Regex, ShowsOnlyTheStartOfALongPattern) {
  const std::string deep = std::string(5'000, '(') + "é" + std::string(5'000, ')');

  const auto regex = Regex::compile(deep);

  ASSERT_FALSE(regex.has_value());
  EXPECT_LT(regex.error().message().size(), 400U);
  EXPECT_TRUE(regex.error().message().contains("(10002 bytes)"));
}

TEST(Regex, RefusesWhatTheEnginesUnderstandDifferently) {
  for (const std::string_view pattern :
       {"[a&&b]", "[a[b]]", "(?m:a.b)", R"(\bx)", "a{1,2}+", R"([\W])", "a\\"}) {
    const auto regex = Regex::compile(pattern);

    ASSERT_FALSE(regex.has_value()) << pattern;
    EXPECT_EQ(regex.error().code(), Code::kUnsupported) << pattern;
  }
}

TEST(AddedTokenMatcher, FindsTokensAtEveryPlaceWhateverBytesTheyStartWith) {
  const std::string contents[] = {"<x>", "[y]", "\n\n", "\u4e2d", "{", "q", "~~", "|z|"};
  for (size_t count = 1; count <= std::size(contents); ++count) {
    std::vector<AddedToken> tokens;
    for (size_t i = 0; i < count; ++i) {
      tokens.push_back({.id = static_cast<TokenId>(i), .content = contents[i]});
    }
    const AddedTokenMatcher matcher(tokens);
    for (size_t at = 0; at < 150; ++at) {
      const std::string& content = contents[at % count];
      const std::string text =
          std::string(at, at % 3 == 0 ? '<' : 'a') + content + std::string(at % 20, 'b') + "\u00e9";
      std::vector<Section> sections;

      matcher.split(text, SpecialTokens::kParse, sections);

      ASSERT_EQ(sections.size(), at == 0 ? 2U : 3U);
      EXPECT_EQ(sections[at == 0 ? 0 : 1].id, at % count);
      EXPECT_EQ(sections[at == 0 ? 0 : 1].text, content);
    }
  }
}

TEST(AddedTokenMatcher, ATokenWithoutTextIsNowhere) {
  const AddedTokenMatcher matcher({{.id = 1, .content = ""}});
  for (const size_t bytes : {1U, 63U, 200U}) {
    const std::string text(bytes, '<');
    std::vector<Section> sections;

    matcher.split(text, SpecialTokens::kParse, sections);

    ASSERT_EQ(sections.size(), 1U);
    EXPECT_EQ(sections[0].text, text);
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

TEST(Normalizer, StopsReplacementsThatGrowFarBeyondTheText) {
  const Normalizer grow{{Normalizer::ReplaceText{"a", std::string(kMaxNormalizedGrowth, 'b')}}};
  const Normalizer explode{
      {Normalizer::ReplaceText{"a", std::string(2 * kMaxNormalizedGrowth, 'b')}}};
  const std::string text(kSpareNormalizedBytes / 32, 'a');
  std::string buffer;

  EXPECT_TRUE(normalize(grow, text, buffer).has_value());
  const auto exploded = normalize(explode, text, buffer);

  ASSERT_FALSE(exploded.has_value());
  EXPECT_EQ(exploded.error().code(), Code::kTooLarge);
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

constexpr uint32_t kInstance = 400'000'000;  // no tokenizer of this test has it

std::vector<TokenId> find(std::string_view piece, uint32_t instance = kInstance) {
  PreTokenCache& cache = PreTokenCache::of_this_thread();
  if (PreTokenCache::is_long(piece.size())) {
    const auto known = cache.find(PreTokenCache::make_long_key(piece, instance));
    return {known.begin(), known.end()};
  }
  const PieceKey key = PieceKey::of(piece);
  const uint32_t place = PreTokenCache::place_of(key);
  const PreTokenCache::ShortPieces pieces = cache.short_pieces(instance);
  std::array<TokenId, PreTokenCache::kIdsWritten> ids{};
  uint32_t count = pieces.find(key, place, ids.data());
  count = count != 0 ? count : pieces.find(key, PreTokenCache::beside(place), ids.data());
  return {ids.begin(), ids.begin() + count};
}

void insert(std::string_view piece, const std::vector<TokenId>& ids) {
  PreTokenCache& cache = PreTokenCache::of_this_thread();
  if (PreTokenCache::is_long(piece.size())) {
    cache.insert(PreTokenCache::make_long_key(piece, kInstance), ids);
    return;
  }
  const PieceKey key = PieceKey::of(piece);
  cache.insert(key, PreTokenCache::place_of(key), kInstance, ids);
}

size_t ids_max(std::string_view piece) {
  return PreTokenCache::is_long(piece.size()) ? PreTokenCache::kLongIdsMax
                                              : PreTokenCache::kShortIdsMax;
}

TEST(PreTokenCache, FindsWhatWasInserted) {
  for (size_t bytes = 1; bytes <= PreTokenCache::kLongBytesMax; ++bytes) {
    const std::string piece(bytes, 'x');
    const std::vector<TokenId> ids(1 + bytes % ids_max(piece), static_cast<TokenId>(bytes));

    insert(piece, ids);

    EXPECT_EQ(find(piece), ids);
    EXPECT_EQ(find(piece, kInstance + 1), std::vector<TokenId>());
    EXPECT_EQ(find(std::string(bytes, 'y')), std::vector<TokenId>());
  }
}

TEST(PreTokenCache, StartsEmptyAfterItsMemoryWasGivenBack) {
  insert("word", {7});

  PreTokenCache::drop_this_thread();

  EXPECT_TRUE(find("word").empty());
  insert("word", {8});
  EXPECT_EQ(find("word"), std::vector<TokenId>{8});
}

TEST(PreTokenCache, DoesNotKeepManyIds) {
  for (const std::string piece : {"many", "many ids of a longer piece"}) {
    insert(piece, std::vector<TokenId>(ids_max(piece) + 1, 5));

    EXPECT_TRUE(find(piece).empty());
  }
}

TEST(PreTokenCache, TellsThatAShortPieceHasManyIds) {
  const PreTokenCache& cache = PreTokenCache::of_this_thread();
  const auto has_more = [&](std::string_view piece, uint32_t instance) {
    const PieceKey key = PieceKey::of(piece);
    return cache.short_pieces(instance).has_more(key, PreTokenCache::place_of(key));
  };
  insert("few", std::vector<TokenId>(PreTokenCache::kShortIdsMax, 5));
  insert("more", std::vector<TokenId>(PreTokenCache::kShortIdsMax + 1, 5));

  EXPECT_FALSE(has_more("few", kInstance));
  EXPECT_TRUE(has_more("more", kInstance));
  EXPECT_FALSE(has_more("more", kInstance + 1));
  EXPECT_FALSE(has_more("most", kInstance));
}

/// The cache line of a piece.
uint32_t line_of(std::string_view piece) {
  const uint32_t place = PreTokenCache::is_long(piece.size())
                             ? PreTokenCache::make_long_key(piece, kInstance).place
                             : PreTokenCache::place_of(PieceKey::of(piece));
  return place / 2;
}

TEST(PreTokenCache, APieceThatComesAgainTakesNoSecondPlace) {
  for (const std::string suffix : {"", "------------"}) {
    const std::string piece = "0" + suffix;
    size_t i = 1;
    while (line_of(std::to_string(i) + suffix) != line_of(piece)) {
      ++i;
    }
    const std::string neighbour = std::to_string(i) + suffix;
    insert(piece, {1});
    insert(neighbour, {2});

    for (int again = 0; again < 3; ++again) {
      insert(piece, {1});
    }

    EXPECT_EQ(find(piece), std::vector<TokenId>{1});
    EXPECT_EQ(find(neighbour), std::vector<TokenId>{2});
  }
}

TEST(PreTokenCache, NewPiecesTakeThePlaceOfOlderOnes) {
  PreTokenCache::drop_this_thread();
  constexpr size_t kPieces = 400'000;  // three times as many as there are places
  size_t kept = 0;
  for (const size_t suffix : {0U, 12U}) {
    const auto piece = [suffix](size_t i) { return std::to_string(i) + std::string(suffix, '-'); };
    for (size_t i = 0; i < kPieces; ++i) {
      insert(piece(i), {static_cast<TokenId>(i)});
      ASSERT_EQ(find(piece(i)), std::vector<TokenId>{static_cast<TokenId>(i)});
    }
    for (size_t i = 0; i < kPieces; ++i) {
      const auto ids = find(piece(i));
      kept += ids.empty() ? 0 : 1;
      ASSERT_TRUE(ids.empty() || ids.front() == i);
    }
  }
  EXPECT_LE(kept, 200'000U);
}

}  // namespace
}  // namespace stator::tokenizer
