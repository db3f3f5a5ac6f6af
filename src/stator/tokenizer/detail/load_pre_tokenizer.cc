// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/load_steps.h"

#include "stator/tokenizer/detail/split_collector.h"
#include "stator/tokenizer/detail/split_expressions.h"
#include "stator/tokenizer/unicode.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

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

Status load_split(Json step, SplitCollector& splits) {
  STATOR_TRY(const Behavior behavior, get_behavior(step));
  STATOR_TRY(const bool invert, get_bool(step, "invert", false));
  const auto pattern = find_field(step, "pattern");
  if (!pattern) {
    return Error(Code::kCorrupt, "a Split pre-tokenizer has no pattern");
  }
  STATOR_TRY(const auto text, find_string(*pattern, "String"));
  if (text) {
    return splits.add(
        PreTokenizer::Split{PreTokenizer::SplitText{std::string(*text)}, behavior, invert});
  }
  STATOR_TRY(const std::string_view expression, get_string(*pattern, "Regex"));
  // A known expression matches everything, so keeping the matches or removing the gaps is the same.
  const auto known = find_scanner(std::span(&expression, 1));
  const bool has_gaps = !known || known->family == ScannerFamily::kBloom;
  const bool keeps_matches =
      invert ? behavior == Behavior::kRemoved && !has_gaps : behavior == Behavior::kIsolated;
  if (keeps_matches) {
    splits.isolate(expression);
    return {};
  }
  STATOR_TRY(Regex regex, Regex::compile(expression));
  return splits.add(PreTokenizer::Split{std::move(regex), behavior, invert});
}

/// A string that must be one character.
Result<std::string_view> get_character(Json step, std::string_view name) {
  STATOR_TRY(const std::string_view text, get_string(step, name));
  if (text.empty() || decode_at(text, 0).bytes != text.size()) {
    return Error(Code::kCorrupt, fmt::format("a pre-tokenizer's {} must be one character", name));
  }
  return text;
}

Result<PreTokenizer::Step> load_char_delimiter(Json step) {
  STATOR_TRY(const std::string_view delimiter, get_character(step, "delimiter"));
  return PreTokenizer::Split{PreTokenizer::SplitText{std::string(delimiter)}, Behavior::kRemoved};
}

Status load_byte_level(Json step, SplitCollector& splits) {
  STATOR_TRY(const bool add_prefix_space, get_bool(step, "add_prefix_space", true));
  STATOR_TRY(const bool use_regex, get_bool(step, "use_regex", true));
  if (add_prefix_space) {
    STATOR_CHECK(splits.add(PreTokenizer::AddPrefixSpace{}));
  }
  if (use_regex) {
    splits.isolate(kGpt2Split);
  }
  return splits.add(PreTokenizer::MapBytes{});
}

/// Old files say "add_prefix_space" instead of "prepend_scheme".
Result<PreTokenizer::MapSpaces::Prepend> get_prepend_scheme(Json step) {
  using Prepend = PreTokenizer::MapSpaces::Prepend;
  STATOR_TRY(const auto named, find_string(step, "prepend_scheme"));
  STATOR_TRY(const bool add_prefix_space, get_bool(step, "add_prefix_space", true));
  const std::string_view scheme = named.value_or(add_prefix_space ? "always" : "never");
  if (!add_prefix_space && scheme != "never") {
    return Error(Code::kCorrupt,
                 "a Metaspace has add_prefix_space false, but another "
                 "prepend_scheme than never");
  }
  if (scheme == "always") {
    return Prepend::kAlways;
  }
  if (scheme == "first") {
    return Prepend::kFirst;
  }
  if (scheme == "never") {
    return Prepend::kNever;
  }
  return Error(Code::kUnsupported, fmt::format("unknown prepend_scheme '{}'", scheme));
}

Status load_metaspace(Json step, SplitCollector& splits) {
  STATOR_TRY(const std::string_view replacement, get_character(step, "replacement"));
  STATOR_TRY(const auto prepend, get_prepend_scheme(step));
  STATOR_TRY(const bool split, get_bool(step, "split", true));
  STATOR_CHECK(splits.add(PreTokenizer::MapSpaces{std::string(replacement), prepend}));
  if (!split) {
    return {};
  }
  return splits.add(PreTokenizer::Split{PreTokenizer::SplitText{std::string(replacement)},
                                        Behavior::kMergedWithNext});
}

Result<PreTokenizer::Step> load_fixed_length(Json step) {
  STATOR_TRY(const uint64_t chars, get_unsigned(step, "length", 5));
  if (chars == 0) {
    return Error(Code::kCorrupt, "a FixedLength pre-tokenizer has the length 0");
  }
  return PreTokenizer::SplitLength{chars};
}

Status add_bert(SplitCollector& splits) {
  STATOR_CHECK(
      splits.add(PreTokenizer::Split{PreTokenizer::SplitClass{kSpace}, Behavior::kRemoved}));
  return splits.add(PreTokenizer::Split{PreTokenizer::SplitClass{kPunctuationSplit}});
}

/// The steps that are one split by a class of characters.
Result<PreTokenizer::Step> load_class_split(Json step, std::string_view type) {
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

Status load_digits(Json step, SplitCollector& splits) {
  STATOR_TRY(const bool individual, get_bool(step, "individual_digits", false));
  if (individual) {
    splits.isolate_digits();
    return {};
  }
  return splits.add(PreTokenizer::Split{PreTokenizer::SplitClass{kDigit}, Behavior::kContiguous});
}

Result<PreTokenizer::Step> load_one(Json step, std::string_view type) {
  if (type == "CharDelimiterSplit") {
    return load_char_delimiter(step);
  }
  if (type == "UnicodeScripts") {
    return PreTokenizer::SplitScripts{};
  }
  return type == "FixedLength" ? load_fixed_length(step) : load_class_split(step, type);
}

Status load_into(Json step, int nesting, SplitCollector& splits) {
  STATOR_TRY(const std::string_view type, get_type(step), "pre-tokenizer");
  if (type == "Sequence") {
    if (nesting >= kMaxNesting) {
      return Error(Code::kCorrupt,
                   fmt::format("pre-tokenizers are nested deeper than {}", kMaxNesting));
    }
    STATOR_TRY(const auto steps, get_array(step, "pretokenizers"));
    for (const Json inner : steps) {
      STATOR_CHECK(load_into(inner, nesting + 1, splits));
    }
    return {};
  }
  if (type == "ByteLevel") {
    return load_byte_level(step, splits);
  }
  if (type == "Metaspace") {
    return load_metaspace(step, splits);
  }
  if (type == "BertPreTokenizer") {
    return add_bert(splits);
  }
  if (type == "Split") {
    return load_split(step, splits);
  }
  if (type == "Digits") {
    return load_digits(step, splits);
  }
  STATOR_TRY(PreTokenizer::Step loaded, load_one(step, type));
  return splits.add(std::move(loaded));
}

template <uint32_t kClass>
bool keeps_runs_of(const PreTokenizer::Step& step) {
  const auto* split = std::get_if<PreTokenizer::Split>(&step);
  const auto* one = split ? std::get_if<PreTokenizer::SplitClass>(&split->pattern) : nullptr;
  return one != nullptr && one->unicode_classes == kClass && !split->invert &&
         split->behavior == Behavior::kContiguous;
}

bool scans_as_gpt2(const PreTokenizer::Step& step) {
  const auto* scan = std::get_if<PreTokenizer::Scan>(&step);
  return scan != nullptr && scan->family == ScannerFamily::kGpt2;
}

bool maps_bytes(const PreTokenizer::Step& step) {
  return std::holds_alternative<PreTokenizer::MapBytes>(step);
}

bool isolates_three_digits(const PreTokenizer::Step& step) {
  const auto* split = std::get_if<PreTokenizer::Split>(&step);
  const auto* regex = split ? std::get_if<Regex>(&split->pattern) : nullptr;
  return regex != nullptr && match_alike(regex->pattern(), "[0-9][0-9][0-9]") && !split->invert &&
         split->behavior == Behavior::kIsolated;
}

/// Falcon's file has the byte alphabet in the middle: there one scanner stands for all the steps.
void put_scanner_of_bytes(std::vector<PreTokenizer::Step>& steps) {
  using Is = bool (*)(const PreTokenizer::Step&);
  constexpr Is kFalcon[] = {keeps_runs_of<kPunctuationSplit>, scans_as_gpt2, maps_bytes,
                            keeps_runs_of<kDigit>, isolates_three_digits};
  const auto found = std::ranges::search(
      steps, kFalcon, [](const PreTokenizer::Step& step, Is is) { return is(step); });
  if (!found.empty()) {
    found.front() = PreTokenizer::Scan{ScannerFamily::kFalconBytes};
    found[1] = PreTokenizer::MapBytes{};
    steps.erase(found.begin() + 2, found.end());
  }
}

}  // namespace

Result<PreTokenizer> load_pre_tokenizer(Json root) {
  PreTokenizer pre_tokenizer;
  if (const auto step = find_field(root, "pre_tokenizer")) {
    SplitCollector splits(pre_tokenizer);
    STATOR_CHECK(load_into(*step, 0, splits));
    STATOR_CHECK(splits.flush());
    put_scanner_of_bytes(pre_tokenizer.steps);
  }
  return pre_tokenizer;
}

}  // namespace stator::tokenizer
