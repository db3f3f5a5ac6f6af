// SPDX-License-Identifier: Apache-2.0
// Which scanner stands for which expressions, however they are spelled.
#include "stator/tokenizer/detail/regex_form.h"
#include "stator/tokenizer/regex.h"
#include "stator/tokenizer/scanner.h"
#include "stator/tokenizer/test/split_texts.h"
#include "stator/tokenizer/unicode.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace stator::tokenizer {
namespace {

using Expressions = std::vector<std::string>;

std::optional<KnownSplit> find(const Expressions& expressions) {
  const std::vector<std::string_view> views(expressions.begin(), expressions.end());
  return find_scanner(views);
}

/// Whether PCRE2 can run them: class intersections and classes in classes it cannot.
bool is_for_pcre2(const Expressions& expressions) {
  return std::ranges::all_of(
      expressions, [](const std::string& one) { return Regex::compile(one).has_value(); });
}

PreTokenizer splits(const Expressions& expressions) {
  const std::vector<std::string_view> views(expressions.begin(), expressions.end());
  return regex_splits(views);
}

/// Spellings of published files that differ from those in the table.
const std::pair<ScannerFamily, Expressions> kPublished[] = {
    {ScannerFamily::kKimiK2,
     {R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*)"
      R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
      R"([^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+)"
      R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
      R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
    // Of V3, V3.1, R1 and V4: the line breaks themselves.
    {ScannerFamily::kDeepseek3,
     {R"(\p{N}{1,3})", "[一-龥\u3040-ゟ゠-ヿ]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
      "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"}},
    {ScannerFamily::kDeepseek3,
     {R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)",
      std::string(expressions_of(ScannerFamily::kDeepseek3)[2])}},
    {ScannerFamily::kDeepseekCoder,
     {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
      R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)", R"(\p{N})"}},
    {ScannerFamily::kBloom, {" ?[^(\\s|[.,!?…。，、।۔،])]+"}},
    {ScannerFamily::kViking, {" ?[^(\\s|[.,!?…。，、।۔،])]+", R"(\p{N})"}},
    {ScannerFamily::kGpt2,
     {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s+(?!\S)|\s+)"}},
    {ScannerFamily::kCl100k,
     {R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+)"
      R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
};

TEST(KnownSplits, PublishedSpellingsAreKnown) {
  for (const auto& [family, expressions] : kPublished) {
    const auto known = find(expressions);
    ASSERT_TRUE(known) << expressions.back();
    EXPECT_EQ(known->family, family);
    EXPECT_EQ(known->expressions, expressions.size());
  }
}

/// All that PCRE2 can run, as in the table and as published.
std::vector<std::pair<ScannerFamily, Expressions>> all_for_pcre2() {
  std::vector<std::pair<ScannerFamily, Expressions>> all;
  for (const auto& expressions : known_sequences()) {
    all.emplace_back(find_scanner(expressions)->family,
                     Expressions(expressions.begin(), expressions.end()));
  }
  all.insert(all.end(), std::begin(kPublished), std::end(kPublished));
  std::erase_if(all, [](const auto& one) { return !is_for_pcre2(one.second); });
  return all;
}

TEST(KnownSplits, ScannersEqualTheRegularExpressions) {
  Random random(3);
  for (const auto& [family, expressions] : all_for_pcre2()) {
    const PreTokenizer by_scanner{{PreTokenizer::Scan{family}}};
    const PreTokenizer by_regex = splits(expressions);
    for (int round = 0; round < 20'000; ++round) {
      const std::string text = text_of_alphabet(random);

      ASSERT_EQ(cut(by_scanner, text), cut(by_regex, text))
          << testing::PrintToString(text) << expressions.back();
    }
  }
}

TEST(KnownSplits, ScannersEqualTheRegularExpressionsOnCharactersOfAllPlanes) {
  Random random(4);
  for (const auto& [family, expressions] : all_for_pcre2()) {
    const PreTokenizer by_scanner{{PreTokenizer::Scan{family}}};
    const PreTokenizer by_regex = splits(expressions);
    for (int round = 0; round < 2'000; ++round) {
      const std::string text = text_of_one_block(random);

      ASSERT_EQ(cut(by_scanner, text), cut(by_regex, text))
          << testing::PrintToString(text) << expressions.back();
    }
  }
}

TEST(KnownSplits, EveryKnownExpressionHasAForm) {
  for (const auto& expressions : known_sequences()) {
    for (const std::string_view expression : expressions) {
      EXPECT_TRUE(regex_form(expression)) << expression;
    }
  }
}

/// Spells an expression in another way, character by character.
class Respeller {
 public:
  explicit Respeller(Random& random) : random_(random) {}

  std::string respell(std::string_view pattern) {
    out_.clear();
    for (size_t at = 0; at < pattern.size();) {
      at += pattern[at] == '\\' ? escape(pattern.substr(at)) : plain(pattern.substr(at));
    }
    return random_.below(3) == 0 ? "(?:" + out_ + ")" : out_;
  }

 private:
  bool often() { return random_.below(2) == 0; }

  size_t escape(std::string_view rest) {
    constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
        {"\\r", "\r"},          {"\\n", "\n"},
        {"\\r", "\\x0D"},       {"\\n", "\\x{A}"},
        {"\\n", "\\u000a"},     {"\\p{L}", "\\p{Letter}"},
        {"\\p{N}", "\\P{^N}"},  {"\\p{M}", "\\p{Mark}"},
        {"\\p{L}", "\\P{^L}"},  {"\\p{Lu}", "\\p{Uppercase_Letter}"},
        {"\\p{Ll}", "\\p{ll}"}, {"\\p{P}", "\\p{Punctuation}"},
    };
    size_t length = 2;
    if (rest.starts_with("\\p{")) {
      length = rest.find('}') + 1;
    } else if (rest.starts_with("\\x{")) {
      length = rest.find('}') + 1;
    }
    const std::string_view escape = rest.substr(0, length);
    std::string_view spelled = escape;
    for (const auto& [from, to] : kOthers) {
      if (escape == from && often()) {
        spelled = to;
      }
    }
    const bool is_set = escape.starts_with("\\p") || escape == "\\s" || escape == "\\S";
    out_ += !in_class_ && is_set && often() ? fmt::format("[{}]", spelled) : std::string(spelled);
    return length;
  }

  size_t plain(std::string_view rest) {
    const char c = rest[0];
    if (in_class_) {
      in_class_ = c != ']';
    } else if (c == '[') {
      in_class_ = true;
      const bool negated = rest.starts_with("[^");
      out_ += negated ? "[^" : "[";
      return negated ? 2 : 1;
    }
    for (const std::string_view whole : {"(?i:", "(?:", "(?!", "{1,3}", "{1}"}) {
      if (!in_class_ && rest.starts_with(whole)) {
        out_ += whole;
        return whole.size();
      }
    }
    if (c == '+' && !in_class_) {
      out_ += often() ? "{1,}" : "+";
      return 1;
    }
    const CodePoint character = decode_at(rest, 0);
    const bool is_syntax = std::string_view("()[]{}|*+?^$&-\\.").contains(c);
    if (!is_syntax && often()) {
      out_ += fmt::format("\\x{{{:X}}}", static_cast<uint32_t>(character.value));
    } else {
      out_ += rest.substr(0, character.bytes);
    }
    return character.bytes;
  }

  Random& random_;
  std::string out_;
  bool in_class_ = false;
};

TEST(KnownSplits, RespelledExpressionsAreKnown) {
  Random random(12);
  Respeller respeller(random);
  for (const auto& expressions : known_sequences()) {
    const ScannerFamily family = find_scanner(expressions)->family;
    for (int round = 0; round < 30; ++round) {
      Expressions respelled;
      for (const std::string_view expression : expressions) {
        respelled.push_back(respeller.respell(expression));
      }
      const auto known = find(respelled);

      ASSERT_TRUE(known) << testing::PrintToString(respelled);
      ASSERT_EQ(known->family, family) << testing::PrintToString(respelled);
      ASSERT_EQ(known->expressions, expressions.size()) << testing::PrintToString(respelled);
    }
  }
}

/// What is known after a change of one character cuts texts as the changed expression does.
TEST(KnownSplits, ChangedExpressionsAreKnownOnlyIfTheyCutAlike) {
  Random random(13);
  constexpr std::string_view kChanges = "|+*?)(]1sN";
  int known_changes = 0;
  int unknown_changes = 0;
  for (const auto& original : known_sequences()) {
    for (int round = 0; round < 60; ++round) {
      Expressions changed(original.begin(), original.end());
      std::string& one = changed[random.below(changed.size())];
      const size_t at = random.below(one.size());
      if (random.below(2) == 0) {
        one.erase(at, 1);
      } else {
        one.insert(at, 1, kChanges[random.below(kChanges.size())]);
      }
      const auto known = find(changed);
      if (!known || known->expressions != original.size()) {
        ++unknown_changes;
        continue;
      }
      if (!is_for_pcre2(changed)) {
        continue;
      }
      ++known_changes;
      const PreTokenizer by_scanner{{PreTokenizer::Scan{known->family}}};
      const PreTokenizer by_regex = splits(changed);
      for (int texts = 0; texts < 300; ++texts) {
        const std::string text = text_of_alphabet(random);
        ASSERT_EQ(cut(by_scanner, text), cut(by_regex, text))
            << testing::PrintToString(text) << testing::PrintToString(changed);
      }
    }
  }
  EXPECT_GT(known_changes, 0);
  EXPECT_GT(unknown_changes, known_changes);
}

TEST(KnownSplits, NearMissesAreNotKnown) {
  const std::string cl100k(expressions_of(ScannerFamily::kCl100k)[0]);
  const std::string o200k(expressions_of(ScannerFamily::kO200k)[0]);
  const std::string gpt2(expressions_of(ScannerFamily::kGpt2)[0]);
  const auto with = [](std::string text, std::string_view from, std::string_view to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  for (const std::string& near : {
           with(cl100k, "{1,3}", "{1,2}"),
           with(cl100k, "{1,3}", "{1,3}?"),
           with(cl100k, "(?i:", "(?:"),
           with(cl100k, "|'d", ""),
           with(cl100k, "(?!\\S)", "(?=\\S)"),
           with(cl100k, "?\\p{L}+", "?\\p{L}+?"),
           with(cl100k, "?\\p{L}+", "?\\p{Lu}+"),
           with(cl100k, "[\\r\\n]*", "[\\r\\n]?"),
           with(cl100k, "[^\\r\\n", "[^\\n"),
           with(cl100k, " ?[^\\s", "[^\\s"),
           with(cl100k, "\\s*[\\r\\n]+|", ""),
           with(cl100k, "[^\\s\\p{L}\\p{N}]+[", "[^\\s\\p{L}\\p{N}]+ ?["),
           with(o200k, "[\\r\\n/]*", "[\\r\\n]*"),
           with(o200k, "?[\\p{Lu}", "?+[\\p{L}"),
           with(o200k, "\\p{M}]*[", "\\p{M}]*+["),  // would have to give back
           with(gpt2, "'s|'t", "'S|'t"),
           with(gpt2, "'s|'t", "(?i:'s)|'t"),
           with(gpt2, "'s|'t", "'s|'|'t"),
           gpt2 + "|",
           "^" + gpt2,
           gpt2 + "\\b",
           gpt2 + R"((?<!a))",
           "(" + gpt2,
       }) {
    EXPECT_FALSE(find({near})) << near;
  }
  // Characters of the neighbourhood.
  EXPECT_NE(find({R"(\p{N}{1,3})", "[一-龦\u3040-ゟ゠-ヿ]+",
                  std::string(expressions_of(ScannerFamily::kDeepseek3)[2])})
                .value_or(KnownSplit{})
                .expressions,
            3U);
}

TEST(KnownSplits, WhatAFormDoesNotReachIsNothing) {
  for (const std::string_view pattern :
       {"(",           ")",      "a)",           "[a",     "a**",         "a{2}{3}",
        "a{",          "a{3,2}", "(?<n>a)",      "(?i)a",  "\\1",         "\\bx",
        "[[:alpha:]]", "[b-a]",  "\\p{Nothing}", "\\p{L",  "\\x{110000}", "\\x{zz}",
        "\\",          "[\\",    "(?>a)",        ".",      "*a",          "(?i:[^a])",
        "(?i:[a&&b])", "a{2}+",  "a{1,2}?",      "(?!a)*", "\\u12"}) {
    EXPECT_FALSE(regex_form(pattern)) << pattern;
  }
  EXPECT_FALSE(regex_form("\xff"));
  EXPECT_FALSE(regex_form(std::string(20'000, 'a')));
  EXPECT_FALSE(regex_form(std::string(100, '(') + "a" + std::string(100, ')')));
}

TEST(KnownSplits, ExpressionsMatchAlikeByTheirMembers) {
  EXPECT_TRUE(match_alike("[0-9][0-9][0-9]", "[0123456789](?:[0-9]{1}[0-9])"));
  EXPECT_TRUE(match_alike("a|b|c+", "[ab]|c{1,}"));
  EXPECT_TRUE(match_alike("(?i:b|a)x*", "(?i:[aB])x{0,}"));
  EXPECT_TRUE(match_alike("[^\\P{L}]", "\\p{Letter}"));
  EXPECT_TRUE(match_alike("(?=[a-z])\\w", "[a-z]"));
  EXPECT_FALSE(match_alike("a|ab", "ab|a"));
  EXPECT_FALSE(match_alike("[aA]", "(?i:a)"));  // not equal where others fold to them, as K of k
  EXPECT_FALSE(match_alike("[0-9]+", "\\d+"));
  EXPECT_TRUE(match_alike(".", "."));
  EXPECT_FALSE(match_alike(".", "(.)"));
}

}  // namespace
}  // namespace stator::tokenizer
