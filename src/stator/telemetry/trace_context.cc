// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/trace_context.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "stator/text/hex.h"

namespace stator::telemetry {
namespace {

constexpr size_t kBytes = 55;  // of version 00
constexpr size_t kTracestateBytesMax = 512;
constexpr size_t kMembersMax = 32;
constexpr size_t kMemberBytesLong = 128;
constexpr size_t kKeyBytesMax = 256;
constexpr size_t kValueBytesMax = 256;
constexpr unsigned char kSampledFlag = 1;
constexpr unsigned char kRandomFlag = 2;

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

bool key_begins(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool in_key(char c) {
  return key_begins(c) || c == '_' || c == '-' || c == '*' || c == '/' || c == '@';
}

bool in_value(char c) {
  return c >= ' ' && c <= '~' && c != ',' && c != '=';
}

/// `key=value`, without white space around it.
bool is_member(std::string_view text) {
  const size_t at = text.find('=');
  if (at == std::string_view::npos || at == 0 || at > kKeyBytesMax || !key_begins(text[0])) {
    return false;
  }
  const std::string_view value = text.substr(at + 1);
  return std::ranges::all_of(text.substr(0, at), in_key) && !value.empty() &&
         value.size() <= kValueBytesMax && value.back() != ' ' &&
         std::ranges::all_of(value, in_value);
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// Takes whole members out until the rest fits.
void shorten(std::vector<std::string_view>& members) {
  size_t bytes = members.empty() ? 0 : members.size() - 1;
  for (const std::string_view member : members) {
    bytes += member.size();
  }
  const auto drop = [&](size_t index) {
    bytes -= members[index].size() + 1;
    members.erase(members.begin() + static_cast<std::ptrdiff_t>(index));
  };
  for (size_t i = members.size(); i-- > 0 && bytes > kTracestateBytesMax;) {
    if (members[i].size() > kMemberBytesLong) {
      drop(i);
    }
  }
  while (bytes > kTracestateBytesMax) {
    drop(members.size() - 1);
  }
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
  context.random = (flags & kRandomFlag) != 0;
  return context;
}

std::string format_traceparent(const TraceContext& context) {
  std::string out;
  out.reserve(kBytes);
  out += "00-";
  append_hex(out, context.trace);
  out += '-';
  append_hex(out, context.span);
  out += "-0";
  out += static_cast<char>('0' + (context.sampled ? kSampledFlag : 0) +
                           (context.random ? kRandomFlag : 0));
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

std::string join_tracestate(std::span<const std::string_view> lines) {
  std::vector<std::string_view> members;
  for (std::string_view rest : lines) {
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      const std::string_view member = trimmed(rest.substr(0, comma));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
      if (member.empty()) {
        continue;
      }
      if (!is_member(member) || members.size() == kMembersMax) {
        return {};
      }
      members.push_back(member);
    }
  }
  shorten(members);
  return fmt::format("{}", fmt::join(members, ","));
}

}  // namespace stator::telemetry
