// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/trace_context.h"

#include <algorithm>

#include "stator/text/hex.h"

namespace stator::telemetry {
namespace {

constexpr size_t kBytes = 55;  // of version 00
constexpr size_t kTracestateBytesMax = 512;
constexpr unsigned char kSampledFlag = 1;

bool read_byte(std::string_view text, size_t at, unsigned char& out) {
  const auto lower = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (!lower(text[at]) || !lower(text[at + 1])) {
    return false;
  }
  out = static_cast<unsigned char>(text::hex_value(text[at]) << 4 | text::hex_value(text[at + 1]));
  return true;
}

template <size_t kSize>
bool read_bytes(std::string_view text, size_t at, std::array<unsigned char, kSize>& out) {
  for (size_t i = 0; i < kSize; ++i) {
    if (!read_byte(text, at + 2 * i, out[i])) {
      return false;
    }
  }
  return true;
}

template <size_t kSize>
void append_hex(std::string& out, const std::array<unsigned char, kSize>& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<char, 2 * kSize> text;  // NOLINT(cppcoreguidelines-pro-type-member-init): below
  for (size_t i = 0; i < kSize; ++i) {
    text[2 * i] = kDigits[bytes[i] >> 4];
    text[2 * i + 1] = kDigits[bytes[i] & 15];
  }
  out.append(text.data(), text.size());
}

}  // namespace

std::optional<TraceContext> parse_traceparent(std::string_view text) {
  if (text.size() < kBytes || text[2] != '-' || text[35] != '-' || text[52] != '-') {
    return std::nullopt;
  }
  unsigned char version = 0;
  unsigned char flags = 0;
  TraceContext context;
  if (!read_byte(text, 0, version) || !read_bytes(text, 3, context.trace) ||
      !read_bytes(text, 36, context.span) || !read_byte(text, 53, flags) || !context.valid()) {
    return std::nullopt;
  }
  const bool longer = text.size() > kBytes;
  if (version == 0xff || (version == 0 && longer) || (longer && text[kBytes] != '-')) {
    return std::nullopt;
  }
  context.sampled = (flags & kSampledFlag) != 0;
  return context;
}

std::string format_traceparent(const TraceContext& context) {
  std::string out;
  out.reserve(kBytes);
  out += "00-";
  append_hex(out, context.trace);
  out += '-';
  append_hex(out, context.span);
  out += context.sampled ? "-01" : "-00";
  return out;
}

std::string to_hex(const TraceId& id) {
  std::string out;
  append_hex(out, id);
  return out;
}

std::string to_hex(const SpanId& id) {
  std::string out;
  append_hex(out, id);
  return out;
}

std::string_view check_tracestate(std::string_view text) {
  const bool visible = std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
  return text.size() <= kTracestateBytesMax && visible ? text : std::string_view();
}

}  // namespace stator::telemetry
