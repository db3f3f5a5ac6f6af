// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/load_steps.h"

#include <fmt/format.h>

#include <utility>

namespace stator::tokenizer {
namespace {

constexpr uint64_t kStripMax = 255;

/// State of reading a decoder: after Fuse all tokens are one string, where only Strip makes sense.
struct Reader {
  Decoder decoder;
  bool fused = false;
};

Status load_strip(Json step, Reader& reader) {
  STATOR_TRY(const std::string_view content, get_string(step, "content"));
  STATOR_TRY(const uint64_t start, get_unsigned(step, "start", 0));
  STATOR_TRY(const uint64_t stop, get_unsigned(step, "stop", 0));
  if (!reader.fused || content.size() != 1 || start > kStripMax || stop != 0) {
    return Error(
        Code::kUnsupported,
        fmt::format(
            "the decoder 'Strip' is supported only after Fuse, of one ASCII character and from "
            "the start; here content is '{}', start {}, stop {}",
            content, start, stop));
  }
  reader.decoder.rules.strip_char = content[0];
  reader.decoder.rules.strip_count = static_cast<uint8_t>(start);
  return {};
}

Status load_replace(Json step, Reader& reader) {
  STATOR_TRY(const std::string_view content, get_string(step, "content"));
  const auto pattern = find_field(step, "pattern");
  STATOR_TRY(const auto text,
             pattern ? find_string(*pattern, "String") : find_string(step, "pattern"));
  if (!text || text->empty()) {
    return unsupported_step("decoder", "Replace with a regular expression");
  }
  reader.decoder.steps.emplace_back(Decoder::Replace{std::string(*text), std::string(content)});
  return {};
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
  if (reader.fused) {
    return unsupported_step("decoder", fmt::format("{} after Fuse", type));
  }
  if (type == "ByteLevel") {
    // It joins the tokens, so that nothing sees single tokens after it.
    reader.decoder.steps.emplace_back(Decoder::ByteLevel{});
    reader.fused = true;
  } else if (type == "ByteFallback") {
    reader.decoder.steps.emplace_back(Decoder::ByteFallback{});
  } else if (type == "Replace") {
    return load_replace(step, reader);
  } else {
    return unsupported_step("decoder", type);
  }
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
