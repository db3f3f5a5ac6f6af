// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/load_steps.h"

#include "stator/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <utility>

namespace stator::tokenizer {
namespace {

constexpr size_t kTemplateIdsMax = 64;  // published templates have at most two

Result<TokenId> checked_id(Json value) {
  uint64_t id = 0;
  if (value.get(id) != simdjson::SUCCESS || id > kMaxTokenId) {
    return Error(Code::kCorrupt,
                 fmt::format("post_processor has an id that is not within 0 … {}", kMaxTokenId));
  }
  return static_cast<TokenId>(id);
}

Error too_many_ids() {
  return Error(Code::kCorrupt,
               fmt::format("post_processor adds more than {} tokens", kTemplateIdsMax));
}

/// Appends the ids that the template calls by name.
Status append_named(Json step, std::string_view name, std::vector<TokenId>& out) {
  const auto tokens = find_field(step, "special_tokens");
  const auto token = tokens ? find_field(*tokens, name) : std::nullopt;
  if (!token) {
    return Error(Code::kCorrupt,
                 fmt::format("post_processor uses '{}', which is not in its special_tokens", name));
  }
  STATOR_TRY(const auto ids, get_array(*token, "ids"));
  for (const Json value : ids) {
    STATOR_TRY(const TokenId id, checked_id(value));
    out.push_back(id);
  }
  if (out.size() > kTemplateIdsMax) {
    return too_many_ids();
  }
  return {};
}

/// Of templates that have one for pairs, first text first. What stands before that is taken to be
/// as in the template for one text, as in all published ones.
Status load_pair_template(Json step, PostProcessor& processor) {
  const auto pair = find_field(step, "pair");
  simdjson::dom::array pieces;
  if (!pair || pair->get(pieces) != simdjson::SUCCESS) {
    return {};
  }
  int sequences = 0;
  for (const Json piece : pieces) {
    if (find_field(piece, "Sequence")) {
      ++sequences;
      continue;
    }
    const auto special = find_field(piece, "SpecialToken");
    if (!special || sequences == 0) {
      continue;
    }
    STATOR_TRY(const std::string_view name, get_string(*special, "id"));
    STATOR_CHECK(
        append_named(step, name, sequences == 1 ? processor.between : processor.after_pair));
  }
  return {};
}

Status load_template(Json step, PostProcessor& processor) {
  STATOR_TRY(const auto pieces, get_array(step, "single"));
  int sequences = 0;
  for (const Json piece : pieces) {
    if (find_field(piece, "Sequence")) {
      ++sequences;
      continue;
    }
    const auto special = find_field(piece, "SpecialToken");
    if (!special) {
      return Error(Code::kCorrupt,
                   "a piece of the post_processor's template is neither Sequence nor SpecialToken");
    }
    STATOR_TRY(const std::string_view name, get_string(*special, "id"));
    STATOR_CHECK(append_named(step, name, sequences == 0 ? processor.before : processor.after));
  }
  if (sequences != 1) {
    return Error(
        Code::kUnsupported,
        fmt::format("the post_processor's template has the text {} times, not once", sequences));
  }
  return load_pair_template(step, processor);
}

/// "cls": ["<s>", 0] and "sep": ["</s>", 2].
Status load_pair_field(Json step, std::string_view name, std::vector<TokenId>& out) {
  STATOR_TRY(const auto pair, get_array(step, name));
  Json value;
  if (pair.at(1).get(value) != simdjson::SUCCESS) {
    return Error(Code::kCorrupt, fmt::format("post_processor.{} must be [text, id]", name));
  }
  STATOR_TRY(const TokenId id, checked_id(value));
  out.push_back(id);
  return {};
}

Status load_into(Json step, int nesting, PostProcessor& processor) {
  STATOR_TRY(const std::string_view type, get_type(step), "post_processor");
  if (type == "ByteLevel") {
    return {};
  }
  if (type == "Sequence") {
    if (nesting >= kMaxNesting) {
      return Error(Code::kCorrupt,
                   fmt::format("post-processors are nested deeper than {}", kMaxNesting));
    }
    STATOR_TRY(const auto steps, get_array(step, "processors"));
    for (const Json inner : steps) {
      STATOR_CHECK(load_into(inner, nesting + 1, processor));
    }
    return {};
  }
  PostProcessor outer;  // goes around what is there already
  if (type == "TemplateProcessing") {
    STATOR_CHECK(load_template(step, outer));
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    STATOR_CHECK(load_pair_field(step, "cls", outer.before));
    STATOR_CHECK(load_pair_field(step, "sep", outer.after));
    outer.after_pair = outer.after;
    outer.between = outer.after;
    if (type == "RobertaProcessing") {  // <s> A </s></s> B </s>
      outer.between.insert(outer.between.end(), outer.after.begin(), outer.after.end());
    }
  } else {
    return unsupported_step("post-processor", type);
  }
  processor.before.insert(processor.before.begin(), outer.before.begin(), outer.before.end());
  processor.after.insert(processor.after.end(), outer.after.begin(), outer.after.end());
  processor.between.insert(processor.between.end(), outer.between.begin(), outer.between.end());
  processor.after_pair.insert(processor.after_pair.end(), outer.after_pair.begin(),
                              outer.after_pair.end());
  return processor.before.size() + processor.after.size() <= kTemplateIdsMax ? Status()
                                                                             : too_many_ids();
}

}  // namespace

Result<PostProcessor> load_post_processor(Json root) {
  PostProcessor processor;
  if (const auto step = find_field(root, "post_processor")) {
    STATOR_CHECK(load_into(*step, 0, processor));
  }
  return processor;
}

}  // namespace stator::tokenizer
