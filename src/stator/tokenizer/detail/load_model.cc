// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/load_steps.h"

#include "stator/tokenizer/tokenizer.h"

#include <fmt/format.h>

namespace stator::tokenizer {
namespace {

Error bad_merge(size_t index) {
  return Error(
      Code::kCorrupt,
      fmt::format("model.merges[{}] must be \"left right\" or [\"left\", \"right\"]", index));
}

Status load_vocab(Json model, BpeSpec& spec) {
  STATOR_TRY(const auto vocab, get_object(model, "vocab"));
  spec.vocab.reserve(vocab.size());
  for (const auto& [text, value] : vocab) {
    uint64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS || id > kMaxTokenId) {
      return Error(Code::kCorrupt,
                   fmt::format("model.vocab['{}'] must be an id within 0 … {}", text, kMaxTokenId));
    }
    spec.vocab.emplace_back(text, static_cast<TokenId>(id));
  }
  return {};
}

/// "left right", split at the only space.
Status append_legacy_merge(std::string_view text, size_t index, BpeSpec& spec) {
  if (text.starts_with("#version")) {
    return {};  // a header line that old converters left in; the reference skips it too
  }
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
    return bad_merge(index);
  }
  spec.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  return {};
}

Status load_merges(Json model, BpeSpec& spec) {
  STATOR_TRY(const auto merges, get_array(model, "merges"));
  spec.merges.reserve(merges.size());
  size_t index = 0;
  for (const Json merge : merges) {
    std::string_view text;
    if (merge.get(text) == simdjson::SUCCESS) {
      STATOR_CHECK(append_legacy_merge(text, index, spec));
    } else {
      std::string_view left;
      std::string_view right;
      if (merge.at(0).get(left) != simdjson::SUCCESS ||
          merge.at(1).get(right) != simdjson::SUCCESS) {
        return bad_merge(index);
      }
      spec.merges.emplace_back(left, right);
    }
    ++index;
  }
  return {};
}

Status check_type(Json model) {
  // Files of old library versions do not name the type; only BPE has merges.
  STATOR_TRY(const auto type, find_string(model, "type"));
  if (type ? *type != "BPE" : !find_field(model, "merges")) {
    return unsupported_step("model", type.value_or("without a type"));
  }
  if (const auto dropout = find_field(model, "dropout")) {
    double value = 0;
    if (dropout->get(value) != simdjson::SUCCESS || value != 0) {
      return Error(Code::kUnsupported, "model.dropout makes tokenization random; set it to null");
    }
  }
  return {};
}

}  // namespace

Result<BpeSpec> load_model(Json root) {
  const auto model = find_field(root, "model");
  if (!model) {
    return Error(Code::kCorrupt, "tokenizer.json has no model");
  }
  STATOR_CHECK(check_type(*model));
  BpeSpec spec;
  STATOR_TRY(spec.unk_token, find_string(*model, "unk_token"));
  STATOR_TRY(const auto prefix, find_string(*model, "continuing_subword_prefix"));
  STATOR_TRY(const auto suffix, find_string(*model, "end_of_word_suffix"));
  spec.continuing_subword_prefix = prefix.value_or("");
  spec.end_of_word_suffix = suffix.value_or("");
  STATOR_TRY(spec.fuse_unk, get_bool(*model, "fuse_unk", false));
  STATOR_TRY(spec.byte_fallback, get_bool(*model, "byte_fallback", false));
  STATOR_TRY(spec.ignore_merges, get_bool(*model, "ignore_merges", false));
  STATOR_CHECK(load_vocab(*model, spec));
  STATOR_CHECK(load_merges(*model, spec));
  return spec;
}

}  // namespace stator::tokenizer
