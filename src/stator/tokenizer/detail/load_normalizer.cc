// SPDX-License-Identifier: Apache-2.0
#include "stator/text/base64.h"
#include "stator/tokenizer/detail/load_steps.h"
#include "stator/tokenizer/unicode.h"

#include <fmt/format.h>

#include <utility>

namespace stator::tokenizer {
namespace {

using Form = Normalizer::UnicodeForm;

constexpr std::pair<std::string_view, Form> kForms[] = {
    {"NFC", Form::kNfc}, {"NFD", Form::kNfd}, {"NFKC", Form::kNfkc}, {"NFKD", Form::kNfkd}};

Result<Normalizer::Step> load_replace(Json step) {
  STATOR_TRY(const std::string_view content, get_string(step, "content"));
  const auto pattern = find_field(step, "pattern");
  if (!pattern) {
    return Error(Code::kCorrupt, "a Replace normalizer has no pattern");
  }
  STATOR_TRY(const auto text, find_string(*pattern, "String"));
  if (text && !text->empty()) {
    return Normalizer::ReplaceText{std::string(*text), std::string(content)};
  }
  STATOR_TRY(const std::string_view expression, get_string(*pattern, "Regex"));
  STATOR_TRY(Regex regex, Regex::compile(expression));
  return Normalizer::ReplaceMatches{std::move(regex), std::string(content)};
}

Result<Normalizer::Step> load_charsmap(Json step) {
  STATOR_TRY(const std::string_view text, get_string(step, "precompiled_charsmap"));
  const auto bytes = text::decode_base64(text);
  if (!bytes) {
    return Error(Code::kCorrupt, "the precompiled_charsmap is not base64");
  }
  STATOR_TRY(Charsmap map, Charsmap::parse(*bytes));
  return map;
}

Result<Normalizer::Step> load_one(Json step, std::string_view type) {
  if (type == "Lowercase") {
    return Normalizer::Lowercase{};
  }
  if (type == "ByteLevel") {
    return Normalizer::MapBytes{};
  }
  if (type == "StripAccents") {
    return Normalizer::RemoveClass{kCombiningMark};
  }
  if (type == "Nmt") {
    return Normalizer::Nmt{};
  }
  if (type == "Precompiled") {
    return load_charsmap(step);
  }
  if (type == "Replace") {
    return load_replace(step);
  }
  if (type == "Strip") {
    STATOR_TRY(const bool left, get_bool(step, "strip_left", true));
    STATOR_TRY(const bool right, get_bool(step, "strip_right", true));
    return Normalizer::Strip{left, right};
  }
  if (type == "Prepend") {
    STATOR_TRY(const std::string_view text, get_string(step, "prepend"));
    return Normalizer::Prepend{std::string(text)};
  }
  return unsupported_step("normalizer", type);
}

Status load_bert(Json step, Normalizer& normalizer) {
  STATOR_TRY(const bool clean, get_bool(step, "clean_text", true));
  STATOR_TRY(const bool isolate, get_bool(step, "handle_chinese_chars", true));
  STATOR_TRY(const bool lowercase, get_bool(step, "lowercase", true));
  STATOR_TRY(const bool strip_accents, get_bool(step, "strip_accents", lowercase));
  auto& steps = normalizer.steps;
  if (clean) {
    steps.emplace_back(Normalizer::CleanText{});
  }
  if (isolate) {
    steps.emplace_back(Normalizer::IsolateIdeographs{});
  }
  if (strip_accents) {
    steps.emplace_back(Normalizer::ToForm{Form::kNfd});
    steps.emplace_back(Normalizer::RemoveClass{kNonspacingMark});
  }
  if (lowercase) {
    steps.emplace_back(Normalizer::Lowercase{});
  }
  return {};
}

Status load_into(Json step, int nesting, Normalizer& normalizer);

Status load_sequence(Json step, int nesting, Normalizer& normalizer) {
  if (nesting >= kMaxNesting) {
    return Error(Code::kCorrupt, fmt::format("normalizers are nested deeper than {}", kMaxNesting));
  }
  STATOR_TRY(const auto steps, get_array(step, "normalizers"));
  for (const Json inner : steps) {
    STATOR_CHECK(load_into(inner, nesting + 1, normalizer));
  }
  return {};
}

Status load_into(Json step, int nesting, Normalizer& normalizer) {
  STATOR_TRY(const std::string_view type, get_type(step), "normalizer");
  for (const auto& [name, form] : kForms) {
    if (type == name) {
      normalizer.steps.emplace_back(Normalizer::ToForm{form});
      return {};
    }
  }
  if (type == "Sequence") {
    return load_sequence(step, nesting, normalizer);
  }
  if (type == "BertNormalizer") {
    return load_bert(step, normalizer);
  }
  STATOR_TRY(Normalizer::Step loaded, load_one(step, type));
  normalizer.steps.push_back(std::move(loaded));
  return {};
}

}  // namespace

Result<Normalizer> load_normalizer(Json root) {
  Normalizer normalizer;
  if (const auto step = find_field(root, "normalizer")) {
    STATOR_CHECK(load_into(*step, 0, normalizer));
  }
  return normalizer;
}

}  // namespace stator::tokenizer
