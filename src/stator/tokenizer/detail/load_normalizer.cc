// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/load_steps.h"

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
  if (type == "Lowercase") {
    normalizer.steps.emplace_back(Normalizer::Lowercase{});
  } else if (type == "ByteLevel") {
    normalizer.steps.emplace_back(Normalizer::MapBytes{});
  } else if (type == "Strip") {
    STATOR_TRY(const bool left, get_bool(step, "strip_left", true));
    STATOR_TRY(const bool right, get_bool(step, "strip_right", true));
    normalizer.steps.emplace_back(Normalizer::Strip{left, right});
  } else if (type == "Prepend") {
    STATOR_TRY(const std::string_view text, get_string(step, "prepend"));
    normalizer.steps.emplace_back(Normalizer::Prepend{std::string(text)});
  } else if (type == "Replace") {
    STATOR_TRY(Normalizer::Step replace, load_replace(step));
    normalizer.steps.push_back(std::move(replace));
  } else {
    return unsupported_step("normalizer", type);
  }
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
