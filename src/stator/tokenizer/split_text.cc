// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/split_text.h"

#include "stator/core/flat_map.h"
#include "stator/tokenizer/pipeline.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace stator::tokenizer {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/// A letter in every version of Unicode: ASCII, kana, CJK and Hangul syllables. False for what is
/// not UTF-8.
bool starts_with_letter(std::string_view text) {
  if (text.empty() || is_letter(text[0])) {
    return !text.empty();
  }
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.size() < 3 || (byte(0) & 0xF0) != 0xE0 || (byte(1) & 0xC0) != 0x80 ||
      (byte(2) & 0xC0) != 0x80) {
    return false;
  }
  const uint32_t code_point =
      (byte(0) & 0x0FU) << 12U | (byte(1) & 0x3FU) << 6U | (byte(2) & 0x3FU);
  const auto in = [&](uint32_t first, uint32_t last) {
    return code_point >= first && code_point <= last;
  };
  return in(0x3041, 0x3096) || in(0x30A1, 0x30FA) || in(0x4E00, 0x9FA5) || in(0xAC00, 0xD7A3);
}

/// What may be cut in texts that one split expression takes apart.
struct TextCuts {
  bool before_spaces = false;
  bool after_lines = false;
};

TextCuts cuts_of(ScannerFamily family) {
  switch (family) {
    case ScannerFamily::kGpt2:
    case ScannerFamily::kStarcoder:
    case ScannerFamily::kFalconBytes:
      return {.before_spaces = true, .after_lines = false};
    case ScannerFamily::kCl100k:
    case ScannerFamily::kQwen2:
    case ScannerFamily::kQwen35:
    case ScannerFamily::kO200k:
    case ScannerFamily::kDeepseek3:
    case ScannerFamily::kDeepseekLlm:
    case ScannerFamily::kDeepseekLlmNumbers:
    case ScannerFamily::kBloom:
    case ScannerFamily::kViking:
      return {.before_spaces = true, .after_lines = true};
    case ScannerFamily::kExaoneMoe:
      return {.before_spaces = false, .after_lines = true};
    default:
      return {};  // a family counts only once somebody has proven it
  }
}

/// Of the steps before the model: at most Unicode composition, then one known expression, whose
/// pieces only get other spellings.
TextCuts cuts_of(const Pipeline& pipeline) {
  const bool composes_only = std::ranges::all_of(pipeline.normalizer.steps, [](const auto& step) {
    return std::holds_alternative<Normalizer::ToForm>(step);
  });
  const auto& steps = pipeline.pre_tokenizer.steps;
  if (!composes_only || steps.empty()) {
    return {};
  }
  const auto* scan = std::get_if<PreTokenizer::Scan>(&steps.front());
  const bool spells_only =
      std::all_of(steps.begin() + 1, steps.end(), [](const PreTokenizer::Step& step) {
        return std::holds_alternative<PreTokenizer::MapBytes>(step);
      });
  return scan != nullptr && spells_only ? cuts_of(scan->family) : TextCuts{};
}

/// Whether `token` is found, or not found, the same with and without a cut in the text.
TextCuts cuts_allowed_by(const AddedToken& token) {
  const std::string& content = token.content;
  bool spans_space = false;
  bool spans_line = false;
  for (size_t i = 1; i < content.size(); ++i) {
    spans_space = spans_space || (is_letter(content[i - 1]) && content[i] == ' ');
    spans_line = spans_line || content[i - 1] == '\n';
  }
  const bool looks_across_space =
      (token.rstrip && is_letter(content.back())) || (token.single_word && content.front() == ' ');
  const bool may_start_with_letter = is_letter(content.front()) || (content.front() & 0x80) != 0;
  const bool looks_across_line =
      (token.lstrip && may_start_with_letter) || (token.single_word && content.back() == '\n');
  return {.before_spaces = !spans_space && !looks_across_space,
          .after_lines = !spans_line && !looks_across_line};
}

/// A match of `other` could begin before one of `content` and end behind its start.
bool may_cover_start(std::string_view other, std::string_view content) {
  for (size_t at = 1; at < other.size(); ++at) {
    const std::string_view rest = other.substr(at);
    if (rest.starts_with(content) || content.starts_with(rest)) {
      return true;
    }
  }
  return false;
}

/// Punctuation: no word for a neighbour's single_word, no white space for its rstrip.
bool starts_plainly(std::string_view content) {
  const char first = content.front();
  return first > ' ' && first < 0x7F && first != '_' && !is_letter(first) &&
         (first < '0' || first > '9');
}

/// The special tokens of `all` that a text may be cut before.
std::vector<std::pair<std::string_view, uint32_t>> find_cut_tokens(
    const std::vector<AddedToken>& all) {
  // Thousands of tokens may be declared; few can stand in the way of one that starts with '<'.
  std::array<std::vector<const AddedToken*>, 256> in_the_way;
  for (const AddedToken& token : all) {
    std::string_view bytes = token.content;
    bytes.remove_prefix(token.lstrip || token.single_word ? 0 : 1);
    for (const char byte : FlatSet<char>(bytes.begin(), bytes.end())) {
      in_the_way[static_cast<unsigned char>(byte)].push_back(&token);
    }
  }
  std::vector<std::pair<std::string_view, uint32_t>> cuts;
  for (const AddedToken& token : all) {
    const auto& others = in_the_way[static_cast<unsigned char>(token.content.front())];
    const bool is_safe = std::ranges::none_of(others, [&](const AddedToken* other) {
      const bool looks_back = other->lstrip || other->single_word;
      return (looks_back && other->content.starts_with(token.content)) ||
             may_cover_start(other->content, token.content);
    });
    if (token.special && starts_plainly(token.content) && is_safe) {
      cuts.emplace_back(token.content, 0);
    }
  }
  return cuts;
}

}  // namespace

SafeCuts SafeCuts::find_all(const Pipeline& pipeline) {
  SafeCuts cuts;
  TextCuts text_cuts = cuts_of(pipeline);
  for (const auto* tokens :
       {&pipeline.raw_added_tokens.tokens(), &pipeline.normalized_added_tokens.tokens()}) {
    for (const AddedToken& token : *tokens) {
      const TextCuts allowed = cuts_allowed_by(token);
      text_cuts.before_spaces = text_cuts.before_spaces && allowed.before_spaces;
      text_cuts.after_lines = text_cuts.after_lines && allowed.after_lines;
    }
  }
  cuts.before_spaces_ = text_cuts.before_spaces;
  cuts.after_lines_ = text_cuts.after_lines;
  auto cut_tokens = find_cut_tokens(pipeline.raw_added_tokens.tokens());
  cuts.before_tokens_ = !cut_tokens.empty();
  cuts.tokens_ = ByteTrie(std::move(cut_tokens));
  return cuts;
}

bool SafeCuts::starts_token(std::string_view rest) const {
  uint32_t node = 0;
  for (const char byte : rest) {
    node = tokens_.child(node, static_cast<unsigned char>(byte));
    if (node == ByteTrie::kNoNode) {
      return false;
    }
    if (tokens_.value(node) != ByteTrie::kNoValue) {
      return true;
    }
  }
  return false;
}

size_t SafeCuts::find(std::string_view text, size_t from, SpecialTokens special) const {
  const bool by_token = before_tokens_ && special == SpecialTokens::kParse;
  for (size_t at = from; at < text.size(); ++at) {
    const char here = text[at];
    const char before = text[at - 1];
    if (before_spaces_ && here == ' ' && is_letter(before)) {
      return at;
    }
    if (after_lines_ && before == '\n' && starts_with_letter(text.substr(at))) {
      return at;
    }
    if (by_token && starts_token(text.substr(at))) {
      return at;
    }
  }
  return text.size();
}

bool probe_safe_cuts(const Tokenizer& tokenizer, const SafeCuts& cuts) {
  std::string sample =
      "The quick  brown fox's don't\n\nsee 12345 dogs.\nAnd  \tthen\r\nsome /* code */ {\n    "
      "return "
      "x_1;\n}\n/path\n\xE4\xB8\xAD\xE6\x96\x87\xE3\x80\x82\n\xE4\xBD\xA0 caf\xC3\xA9 DON'T\n \n";
  std::vector<TokenId> whole;
  std::vector<TokenId> parts;
  const auto agree = [&](std::string_view text, size_t cut) {
    whole.clear();
    parts.clear();
    return tokenizer.encode(text, {}, whole) && tokenizer.encode(text.substr(0, cut), {}, parts) &&
           tokenizer.encode(text.substr(cut), {}, parts) && whole == parts;
  };
  for (size_t at = 1; at < sample.size(); ++at) {
    at = cuts.find(sample, at, SpecialTokens::kParse);
    if (at < sample.size() && !agree(sample, at)) {
      return false;
    }
  }
  // Models with hundreds of reserved tokens spell them alike: the first few stand for the rest.
  constexpr size_t kTokensProbed = 8;
  size_t probed = 0;
  for (const AddedToken& token : tokenizer.pipeline().raw_added_tokens.tokens()) {
    if (probed == kTokensProbed) {
      break;
    }
    for (const std::string_view left : {"word", "word ", "line\n"}) {
      const std::string text = std::string(left) + token.content + " next\nword";
      if (cuts.find(text, left.size(), SpecialTokens::kParse) == left.size()) {
        ++probed;
        if (!agree(text, left.size())) {
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace stator::tokenizer
