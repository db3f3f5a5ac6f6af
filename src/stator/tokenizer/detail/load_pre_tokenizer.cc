// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/load_steps.h"

#include "stator/tokenizer/unicode.h"

#include <fmt/format.h>

#include <utility>

namespace stator::tokenizer {
namespace {

using Behavior = PreTokenizer::Behavior;

constexpr std::pair<std::string_view, Behavior> kBehaviors[] = {
    {"Removed", Behavior::kRemoved},
    {"Isolated", Behavior::kIsolated},
    {"MergedWithPrevious", Behavior::kMergedWithPrevious},
    {"MergedWithNext", Behavior::kMergedWithNext},
    {"Contiguous", Behavior::kContiguous}};

Result<Behavior> get_behavior(Json step) {
  STATOR_TRY(const std::string_view name, get_string(step, "behavior"));
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) {
      return behavior;
    }
  }
  return Error(Code::kUnsupported, fmt::format("unknown split behavior '{}'", name));
}

Result<PreTokenizer::Step> load_split(Json step) {
  STATOR_TRY(const Behavior behavior, get_behavior(step));
  STATOR_TRY(const bool invert, get_bool(step, "invert", false));
  const auto pattern = find_field(step, "pattern");
  if (!pattern) {
    return Error(Code::kCorrupt, "a Split pre-tokenizer has no pattern");
  }
  STATOR_TRY(const auto text, find_string(*pattern, "String"));
  if (text) {
    return PreTokenizer::Split{PreTokenizer::SplitText{std::string(*text)}, behavior, invert};
  }
  STATOR_TRY(const std::string_view expression, get_string(*pattern, "Regex"));
  // The known expressions match everything, so keeping the matches or removing the gaps is the
  // same.
  const bool keeps_matches =
      invert ? behavior == Behavior::kRemoved : behavior == Behavior::kIsolated;
  if (const auto family = find_scanner(expression); family && keeps_matches) {
    return PreTokenizer::Scan{*family};
  }
  STATOR_TRY(Regex regex, Regex::compile(expression));
  return PreTokenizer::Split{std::move(regex), behavior, invert};
}

Result<PreTokenizer::Step> load_char_delimiter(Json step) {
  STATOR_TRY(const std::string_view delimiter, get_string(step, "delimiter"));
  if (delimiter.empty()) {
    return Error(Code::kCorrupt, "a CharDelimiterSplit pre-tokenizer has an empty delimiter");
  }
  return PreTokenizer::Split{PreTokenizer::SplitText{std::string(delimiter)}, Behavior::kRemoved};
}

Status load_byte_level(Json step, PreTokenizer& pre_tokenizer) {
  STATOR_TRY(const bool add_prefix_space, get_bool(step, "add_prefix_space", true));
  STATOR_TRY(const bool use_regex, get_bool(step, "use_regex", true));
  if (add_prefix_space) {
    pre_tokenizer.steps.emplace_back(PreTokenizer::AddPrefixSpace{});
  }
  if (use_regex) {
    pre_tokenizer.steps.emplace_back(PreTokenizer::Scan{ScannerFamily::kGpt2});
  }
  pre_tokenizer.steps.emplace_back(PreTokenizer::MapBytes{});
  return {};
}

/// The steps that are one split by a class of characters.
Result<PreTokenizer::Step> load_class_split(Json step, std::string_view type) {
  if (type == "Digits") {
    STATOR_TRY(const bool individual, get_bool(step, "individual_digits", false));
    return PreTokenizer::Split{PreTokenizer::SplitClass{kDigit},
                               individual ? Behavior::kIsolated : Behavior::kContiguous};
  }
  if (type == "Punctuation") {
    PreTokenizer::Split split{PreTokenizer::SplitClass{kPunctuationSplit}};
    if (find_field(step, "behavior")) {
      STATOR_TRY(split.behavior, get_behavior(step));
    }
    return split;
  }
  if (type == "WhitespaceSplit") {
    return PreTokenizer::Split{PreTokenizer::SplitClass{kSpace}, Behavior::kRemoved};
  }
  if (type == "Whitespace") {
    return PreTokenizer::Split{PreTokenizer::SplitWords{}, Behavior::kRemoved, /*invert=*/true};
  }
  return unsupported_step("pre-tokenizer", type);
}

Status load_into(Json step, int nesting, PreTokenizer& pre_tokenizer) {
  STATOR_TRY(const std::string_view type, get_type(step), "pre-tokenizer");
  if (type == "Sequence") {
    if (nesting >= kMaxNesting) {
      return Error(Code::kCorrupt,
                   fmt::format("pre-tokenizers are nested deeper than {}", kMaxNesting));
    }
    STATOR_TRY(const auto steps, get_array(step, "pretokenizers"));
    for (const Json inner : steps) {
      STATOR_CHECK(load_into(inner, nesting + 1, pre_tokenizer));
    }
    return {};
  }
  if (type == "ByteLevel") {
    return load_byte_level(step, pre_tokenizer);
  }
  STATOR_TRY(PreTokenizer::Step loaded, type == "Split" ? load_split(step)
                                        : type == "CharDelimiterSplit"
                                            ? load_char_delimiter(step)
                                            : load_class_split(step, type));
  pre_tokenizer.steps.push_back(std::move(loaded));
  return {};
}

}  // namespace

Result<PreTokenizer> load_pre_tokenizer(Json root) {
  PreTokenizer pre_tokenizer;
  if (const auto step = find_field(root, "pre_tokenizer")) {
    STATOR_CHECK(load_into(*step, 0, pre_tokenizer));
  }
  return pre_tokenizer;
}

}  // namespace stator::tokenizer
