// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/model_parsers.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "stator/io/read_file.h"

namespace stator::frontend {
namespace {

// A family is a few kilobytes of JSON.
constexpr uintmax_t kSpecFileBytesMax = 4 << 20;

/// A marker that consists of several tokens, as "<|channel>thought": the special ones among them
/// must be seen.
void add_parts(const parsers::Marker& marker, const tokenizer::Tokenizer& tokenizer,
               MarkerTokens& out) {
  std::vector<TokenId> parts;
  if (!tokenizer.encode(marker.text, {}, parts)) {
    return;
  }
  std::ranges::copy_if(parts, std::back_inserter(out.ids),
                       [&](TokenId part) { return tokenizer.is_special(part); });
}

void add_markers(const parsers::Markers& markers, const tokenizer::Tokenizer& tokenizer,
                 MarkerTokens& out) {
  for (const parsers::Marker& marker : markers) {
    const auto token = tokenizer.find(marker.text);
    if (!token) {
      add_parts(marker, tokenizer, out);
    } else if (marker.special || tokenizer.is_special(*token)) {
      out.ids.push_back(*token);
      if (marker.special) {
        out.texts.push_back(marker.text);
      }
    }  // else an entry of the vocabulary such as "[": ordinary text
  }
}

template <typename T>
void sort_unique(std::vector<T>& values) {
  std::ranges::sort(values);
  const auto rest = std::ranges::unique(values);
  values.erase(rest.begin(), rest.end());
}

MarkerTokens markers_of(const parsers::FamilySpec& spec, const tokenizer::Tokenizer& tokenizer) {
  MarkerTokens out;
  for (const auto& [key, markers] : spec.markers) {
    add_markers(markers, tokenizer, out);
  }
  sort_unique(out.ids);
  sort_unique(out.texts);
  return out;
}

MarkerTokens markers_of(const parsers::ReasoningSpec& spec, const tokenizer::Tokenizer& tokenizer) {
  MarkerTokens out;
  for (const parsers::Markers* markers : {&spec.open, &spec.close, &spec.hand_over}) {
    add_markers(*markers, tokenizer, out);
  }
  sort_unique(out.ids);
  sort_unique(out.texts);
  return out;
}

std::shared_ptr<const parsers::OutputParser> make_shared_parser(const ModelParsers& parsers,
                                                                parsers::ReasoningMode mode) {
  return parsers::OutputParser::create({.reasoning_family = parsers.reasoning,
                                        .reasoning = mode,
                                        .special_markers = parsers.reasoning_markers.texts});
}

std::string_view resolve(std::string_view wish, std::string_view automatic) {
  if (wish == "none") {
    return {};
  }
  return wish == "auto" || wish.empty() ? automatic : wish;
}

}  // namespace

bool MarkerTokens::contains(TokenId token) const {
  // A handful of ids, most of them beyond those of ordinary tokens.
  return !ids.empty() && token >= ids.front() && std::ranges::binary_search(ids, token);
}

MarkerTokens& MarkerTokens::operator+=(const MarkerTokens& other) {
  ids.insert(ids.end(), other.ids.begin(), other.ids.end());
  texts.insert(texts.end(), other.texts.begin(), other.texts.end());
  sort_unique(ids);
  sort_unique(texts);
  return *this;
}

Result<ModelParsers> choose_parsers(const parsers::FamilyRegistry& families,
                                    const ParserWishes& wishes,
                                    const tokenizer::Tokenizer& tokenizer) {
  const parsers::FamilyChoice choice =
      parsers::choose_family(families, wishes.chat_template, wishes.model_name);
  ModelParsers out;
  const std::string_view tools = resolve(wishes.tools, choice.tools);
  if (!tools.empty()) {
    STATOR_TRY(out.tools, families.find_tools(tools), "tool_call_parser");
    out.tool_markers = markers_of(*out.tools, tokenizer);
  }
  // A format named by the operator brings its usual companion where the template names none.
  const std::string_view companion =
      choice.reasoning.empty() && out.tools != nullptr ? out.tools->reasoning : choice.reasoning;
  const std::string_view reasoning = resolve(wishes.reasoning, companion);
  if (!reasoning.empty()) {
    STATOR_TRY(out.reasoning, families.find_reasoning(reasoning), "reasoning_parser");
    out.reasoning_markers = markers_of(*out.reasoning, tokenizer);
    out.reasoning_on = make_shared_parser(out, parsers::ReasoningMode::kOn);
    out.reasoning_inside = make_shared_parser(out, parsers::ReasoningMode::kStartsInside);
  }
  out.why = wishes.tools == "auto" || wishes.reasoning == "auto" ? choice.why : "as configured";
  return out;
}

Result<std::shared_ptr<const parsers::FamilyRegistry>> load_families(const std::string& spec_path) {
  if (spec_path.empty()) {
    return std::make_shared<const parsers::FamilyRegistry>(parsers::FamilyRegistry::builtin());
  }
  STATOR_TRY(const std::string text, io::read_file(spec_path, kSpecFileBytesMax),
             "frontend.parser_spec");
  STATOR_TRY(auto families, parsers::FamilyRegistry::with_specs(text),
             "frontend.parser_spec '" + spec_path + "'");
  return std::make_shared<const parsers::FamilyRegistry>(std::move(families));
}

}  // namespace stator::frontend
