// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/load_steps.h"

#include "stator/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

namespace stator::tokenizer {
namespace {

Error bad_merge(size_t index) {
  return Error(
      Code::kCorrupt,
      fmt::format("model.merges[{}] must be \"left right\" or [\"left\", \"right\"]", index));
}

Result<VocabularyEntries> load_vocab(Json model) {
  STATOR_TRY(const auto vocab, get_object(model, "vocab"));
  VocabularyEntries entries;
  entries.reserve(vocab.size());
  for (const auto& [text, value] : vocab) {
    uint64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS || id > kMaxTokenId) {
      return Error(Code::kCorrupt,
                   fmt::format("model.vocab['{}'] must be an id within 0 … {}", text, kMaxTokenId));
    }
    entries.emplace_back(text, static_cast<TokenId>(id));
  }
  return entries;
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

Status check_dropout(Json model) {
  if (const auto dropout = find_field(model, "dropout")) {
    double value = 0;
    if (dropout->get(value) != simdjson::SUCCESS || value != 0) {
      return Error(Code::kUnsupported, "model.dropout makes tokenization random; set it to null");
    }
  }
  return {};
}

Result<ModelSpec> load_bpe(Json model, Tables tables) {
  STATOR_CHECK(check_dropout(model));
  BpeSpec spec;
  STATOR_TRY(spec.unk_token, find_string(model, "unk_token"));
  STATOR_TRY(const auto prefix, find_string(model, "continuing_subword_prefix"));
  STATOR_TRY(const auto suffix, find_string(model, "end_of_word_suffix"));
  spec.continuing_subword_prefix = prefix.value_or("");
  spec.end_of_word_suffix = suffix.value_or("");
  STATOR_TRY(spec.fuse_unk, get_bool(model, "fuse_unk", false));
  STATOR_TRY(spec.byte_fallback, get_bool(model, "byte_fallback", false));
  STATOR_TRY(spec.ignore_merges, get_bool(model, "ignore_merges", false));
  STATOR_TRY(spec.vocab, load_vocab(model));
  if (tables == Tables::kDecoding) {
    return ModelSpec(WordLevelSpec{std::move(spec.vocab), {}});
  }
  STATOR_CHECK(load_merges(model, spec));
  return ModelSpec(std::move(spec));
}

/// Scores as the reference reads them. Its JSON reader takes the digits as one integer and scales
/// it by a power of ten, so about one double in seven is the neighbour of the nearest one; among
/// equally likely ways to cut a run of equal characters that decides.
class ScoreReader {
 public:
  ScoreReader() {
    for (size_t i = 0; i < powers_.size(); ++i) {
      const std::string text = fmt::format("1e{}", i);
      std::from_chars(text.data(), text.data() + text.size(), powers_[i]);
    }
  }

  double read(double nearest) const {
    std::array<char, 32> text;
    const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(),
                                            std::abs(nearest), std::chars_format::scientific);
    uint64_t digits = 0;
    int exponent = 0;
    const char* at = text.data();
    for (bool in_fraction = false; at < end && *at != 'e'; ++at) {
      if (*at == '.') {
        in_fraction = true;
      } else {
        digits = digits * 10 + static_cast<uint64_t>(*at - '0');
        exponent -= in_fraction ? 1 : 0;
      }
    }
    int written = 0;
    const bool is_negative_power = at + 1 < end && at[1] == '-';
    std::from_chars(at + 2, end, written);  // behind "e+" or "e-"
    exponent += is_negative_power ? -written : written;
    const auto power = static_cast<size_t>(std::abs(exponent));
    if (error != std::errc() || power >= powers_.size()) {
      return nearest;
    }
    const auto whole = static_cast<double>(digits);
    return std::copysign(exponent < 0 ? whole / powers_[power] : whole * powers_[power], nearest);
  }

 private:
  std::array<double, 48> powers_{};
};

Result<ModelSpec> load_unigram(Json model) {
  UnigramSpec spec;
  const ScoreReader scores;
  STATOR_TRY(const auto vocab, get_array(model, "vocab"));
  spec.vocab.reserve(vocab.size());
  spec.scores.reserve(vocab.size());
  for (const Json entry : vocab) {
    std::string_view text;
    double score = 0;
    if (entry.at(0).get(text) != simdjson::SUCCESS || entry.at(1).get(score) != simdjson::SUCCESS ||
        spec.vocab.size() > kMaxTokenId) {
      return Error(Code::kCorrupt,
                   fmt::format("model.vocab[{}] must be [\"piece\", score], of at most {} entries",
                               spec.vocab.size(), kMaxTokenId + 1));
    }
    spec.vocab.emplace_back(text, static_cast<TokenId>(spec.vocab.size()));
    spec.scores.push_back(scores.read(score));
  }
  if (find_field(model, "unk_id")) {
    STATOR_TRY(const uint64_t unk, get_unsigned(model, "unk_id", 0));
    if (unk >= spec.vocab.size()) {
      return Error(Code::kCorrupt, fmt::format("model.unk_id is {}, but model.vocab has {} entries",
                                               unk, spec.vocab.size()));
    }
    spec.unk = static_cast<TokenId>(unk);
  }
  STATOR_TRY(spec.byte_fallback, get_bool(model, "byte_fallback", false));
  return ModelSpec(std::move(spec));
}

Result<ModelSpec> load_word_piece(Json model) {
  WordPieceSpec spec;
  STATOR_TRY(spec.unk_token, get_string(model, "unk_token"));
  STATOR_TRY(spec.continuing_subword_prefix, get_string(model, "continuing_subword_prefix"));
  STATOR_TRY(spec.max_word_chars,
             get_unsigned(model, "max_input_chars_per_word", spec.max_word_chars));
  STATOR_TRY(spec.vocab, load_vocab(model));
  return ModelSpec(std::move(spec));
}

Result<ModelSpec> load_word_level(Json model) {
  WordLevelSpec spec;
  STATOR_TRY(spec.unk_token, get_string(model, "unk_token"));
  STATOR_TRY(spec.vocab, load_vocab(model));
  return ModelSpec(std::move(spec));
}

/// Files of old library versions do not name the type: it shows in the fields.
std::string_view guess_type(Json model) {
  if (find_field(model, "merges")) {
    return "BPE";
  }
  if (find_field(model, "continuing_subword_prefix")) {
    return "WordPiece";
  }
  return find_field(model, "unk_token") ? "WordLevel" : "Unigram";
}

}  // namespace

Result<ModelSpec> load_model(Json root, Tables tables) {
  const auto model = find_field(root, "model");
  if (!model) {
    return Error(Code::kCorrupt, "tokenizer.json has no model");
  }
  STATOR_TRY(const auto named, find_string(*model, "type"));
  const std::string_view type = named ? *named : guess_type(*model);
  if (type == "BPE") {
    return load_bpe(*model, tables);
  }
  if (type == "Unigram") {
    return load_unigram(*model);
  }
  if (type == "WordPiece") {
    return load_word_piece(*model);
  }
  if (type == "WordLevel") {
    return load_word_level(*model);
  }
  return unsupported_step("model", type);
}

}  // namespace stator::tokenizer
