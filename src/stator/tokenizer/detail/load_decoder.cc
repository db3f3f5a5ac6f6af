// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/load_steps.h"
#include "stator/tokenizer/unicode.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace stator::tokenizer {
namespace {

constexpr uint64_t kStripMax = 255;

/// State of reading a decoder: after Fuse all tokens are one string, where only Strip makes sense.
struct Reader {
  Decoder decoder;
  bool fused = false;
};

using StepResult = Result<Decoder::Step>;

Result<std::string_view> get_character(Json step, std::string_view name) {
  STATOR_TRY(const std::string_view text, get_string(step, name));
  if (text.empty() || decode_at(text, 0).bytes != text.size()) {
    return Error(Code::kCorrupt, fmt::format("a decoder's {} must be one character", name));
  }
  return text;
}

/// Strip before Fuse works on each token, after it on the whole text.
Status load_strip(Json step, Reader& reader) {
  STATOR_TRY(const std::string_view content, get_character(step, "content"));
  STATOR_TRY(const uint64_t start, get_unsigned(step, "start", 0));
  STATOR_TRY(const uint64_t stop, get_unsigned(step, "stop", 0));
  if (start > kStripMax || stop > kStripMax) {
    return Error(Code::kUnsupported, fmt::format("the decoder 'Strip' takes {} and {} characters "
                                                 "off the ends; at most {} are supported",
                                                 start, stop, kStripMax));
  }
  if (!reader.fused) {
    reader.decoder.steps.emplace_back(Decoder::Strip{
        std::string(content), static_cast<uint32_t>(start), static_cast<uint32_t>(stop)});
    return {};
  }
  Tokenizer::DecodeRules& rules = reader.decoder.rules;
  if (content.size() != 1 || rules.strip_count + rules.strip_end_count > 0) {
    return Error(Code::kUnsupported,
                 fmt::format("the decoder 'Strip' after Fuse is supported once and of one ASCII "
                             "character; here content is '{}'",
                             content));
  }
  rules.strip_char = content[0];
  rules.strip_count = static_cast<uint8_t>(start);
  rules.strip_end_count = static_cast<uint8_t>(stop);
  return {};
}

StepResult load_replace(Json step) {
  STATOR_TRY(const std::string_view content, get_string(step, "content"));
  const auto pattern = find_field(step, "pattern");
  STATOR_TRY(const auto text,
             pattern ? find_string(*pattern, "String") : find_string(step, "pattern"));
  if (text && !text->empty()) {
    return Decoder::Replace{std::string(*text), std::string(content)};
  }
  if (!pattern) {
    return Error(Code::kCorrupt, "a Replace decoder has no pattern");
  }
  STATOR_TRY(const std::string_view expression, get_string(*pattern, "Regex"));
  STATOR_TRY(Regex regex, Regex::compile(expression));
  return Decoder::ReplaceMatches{std::move(regex), std::string(content)};
}

StepResult load_metaspace(Json step) {
  STATOR_TRY(const std::string_view replacement, get_character(step, "replacement"));
  STATOR_TRY(const auto scheme, find_string(step, "prepend_scheme"));
  STATOR_TRY(const bool add_prefix_space, get_bool(step, "add_prefix_space", true));
  return Decoder::Metaspace{std::string(replacement), !add_prefix_space || scheme == "never"};
}

StepResult load_word_piece(Json step) {
  STATOR_TRY(const std::string_view prefix, get_string(step, "prefix"));
  STATOR_TRY(const bool cleanup, get_bool(step, "cleanup", true));
  return Decoder::WordPiece{std::string(prefix), cleanup};
}

/// It drops repeated tokens and empty ones, so that it must see the tokens first and nothing after
/// it may count them.
StepResult load_ctc(Json step, Reader& reader) {
  if (!reader.decoder.steps.empty()) {
    return unsupported_step("decoder", "CTC after another decoder");
  }
  STATOR_TRY(const std::string_view pad, get_string(step, "pad_token"));
  STATOR_TRY(const std::string_view delimiter, get_string(step, "word_delimiter_token"));
  STATOR_TRY(const bool cleanup, get_bool(step, "cleanup", true));
  reader.decoder.rules.drops_repeats = true;
  return Decoder::Ctc{std::string(pad), std::string(delimiter), cleanup};
}

StepResult load_one(Json step, std::string_view type, Reader& reader) {
  if (type == "ByteLevel") {
    reader.fused = true;  // it joins the tokens
    return Decoder::ByteLevel{};
  }
  if (type == "ByteFallback") {
    return Decoder::ByteFallback{};
  }
  if (type == "Replace") {
    return load_replace(step);
  }
  if (type == "CTC") {
    return load_ctc(step, reader);
  }
  const bool counts = type == "Metaspace" || type == "WordPiece" || type == "BPEDecoder";
  if (counts && reader.decoder.rules.drops_repeats) {
    return unsupported_step("decoder", fmt::format("{} after CTC", type));
  }
  if (type == "Metaspace") {
    return load_metaspace(step);
  }
  if (type == "WordPiece") {
    return load_word_piece(step);
  }
  if (type == "BPEDecoder") {
    STATOR_TRY(const std::string_view suffix, get_string(step, "suffix"));
    reader.decoder.rules.last_is_special = true;
    return Decoder::EndOfWord{std::string(suffix)};
  }
  return unsupported_step("decoder", type);
}

/// What Replace of one character does to single tokens it does to the whole text, too, unless
/// tokens are parts of characters.
bool may_follow_fuse(std::string_view type, Json step, const Reader& reader) {
  const auto pattern = type == "Replace" ? find_field(step, "pattern") : std::nullopt;
  std::string_view text;
  if (!pattern || (*pattern)["String"].get(text) != simdjson::SUCCESS || text.empty()) {
    return false;
  }
  return decode_at(text, 0).bytes == text.size() && reader.decoder.rules.strip_count == 0 &&
         std::ranges::none_of(reader.decoder.steps, [](const Decoder::Step& earlier) {
           return std::holds_alternative<Decoder::ByteFallback>(earlier) ||
                  std::holds_alternative<Decoder::ByteLevel>(earlier);
         });
}

Status load_into(Json step, int nesting, Reader& reader) {
  STATOR_TRY(const std::string_view type, get_type(step), "decoder");
  if (type == "Sequence") {
    if (nesting >= kMaxNesting) {
      return Error(Code::kCorrupt, fmt::format("decoders are nested deeper than {}", kMaxNesting));
    }
    STATOR_TRY(const auto steps, get_array(step, "decoders"));
    for (const Json inner : steps) {
      STATOR_CHECK(load_into(inner, nesting + 1, reader));
    }
    return {};
  }
  if (type == "Strip") {
    return load_strip(step, reader);
  }
  if (type == "Fuse") {
    reader.fused = true;
    return {};
  }
  if (reader.fused && !may_follow_fuse(type, step, reader)) {
    return unsupported_step("decoder", fmt::format("{} after Fuse", type));
  }
  STATOR_TRY(Decoder::Step loaded, load_one(step, type, reader));
  reader.decoder.steps.push_back(std::move(loaded));
  return {};
}

}  // namespace

Result<Decoder> load_decoder(Json root) {
  Reader reader;
  const auto step = find_field(root, "decoder");
  if (!step) {
    reader.decoder.rules.space_between = true;
    return reader.decoder;
  }
  STATOR_CHECK(load_into(*step, 0, reader));
  return reader.decoder;
}

}  // namespace stator::tokenizer
