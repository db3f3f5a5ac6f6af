// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/otlp.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include "stator/text/percent.h"
#include "stator/text/utf8.h"

namespace stator::telemetry {
namespace {

// Field numbers and wire types of opentelemetry/proto/{trace,common,resource}/v1.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr uint64_t kStatusError = 2;
constexpr size_t kHeadBytes = 12;  // of a field, at most: tag and length
// What a span has beside its texts and attributes: ids, times, numbers and their tags.
constexpr size_t kSpanBytes = 160;

/// Of what clients send some is no UTF-8, and collectors refuse a whole batch for one such string.
std::string_view checked(std::string_view text) {
  uint64_t bits = 0;
  size_t at = 0;
  for (; at + sizeof bits <= text.size(); at += sizeof bits) {
    uint64_t word = 0;
    std::memcpy(&word, text.data() + at, sizeof word);
    bits |= word;
  }
  for (; at < text.size(); ++at) {
    bits |= static_cast<unsigned char>(text[at]);
  }
  constexpr uint64_t kHighBits = 0x8080808080808080ULL;
  const bool plain = (bits & kHighBits) == 0;
  return plain || text::is_valid_utf8(text) ? text : std::string_view("(not UTF-8)");
}

/// Writes a message from its end to its beginning, so that the length of what stands inside another
/// field is known when that field's head is written: one pass, and no sizes beforehand. The memory
/// is used again.
class Output {
 public:
  Output() : buffer_(kFirstBytes, '\0') { clear(); }
  void clear() { at_ = buffer_.data() + buffer_.size(); }
  std::string_view view() const { return {at_, written()}; }
  size_t written() const { return static_cast<size_t>(buffer_.data() + buffer_.size() - at_); }

  /// Room for so much; what follows does not look.
  void need(size_t bytes) {
    if (static_cast<size_t>(at_ - buffer_.data()) < bytes) {
      grow(bytes);
    }
  }
  void varint(uint64_t value) {
    if (value < 0x80) {
      *--at_ = static_cast<char>(value);
      return;
    }
    const size_t size = (static_cast<size_t>(std::bit_width(value)) + 6) / 7;
    at_ -= size;
    char* to = at_;
    for (; value >= 0x80; value >>= 7) {
      *to++ = static_cast<char>(value | 0x80);
    }
    *to = static_cast<char>(value);
  }
  void varint_field(uint32_t field, uint64_t value) {
    varint(value);
    varint(field << 3 | kVarint);
  }
  template <typename T>
  void fixed_field(uint32_t field, T value) {
    static_assert(std::endian::native == std::endian::little);
    at_ -= sizeof value;
    std::memcpy(at_, &value, sizeof value);
    varint(field << 3 | (sizeof value == sizeof(uint64_t) ? kFixed64 : kFixed32));
  }
  void bytes_field(uint32_t field, std::string_view value) {
    at_ -= value.size();
    std::memcpy(at_, value.data(), value.size());
    varint(value.size());
    varint(field << 3 | kBytes);
  }
  template <size_t kSize>
  void bytes_field(uint32_t field, const std::array<unsigned char, kSize>& value) {
    bytes_field(field, {reinterpret_cast<const char*>(value.data()), value.size()});
  }
  /// The head of a field that holds what was written since `written()` was `end`.
  void head(uint32_t field, size_t end) {
    varint(written() - end);
    varint(field << 3 | kBytes);
  }

 private:
  static constexpr size_t kFirstBytes = size_t{8} << 10;

  void grow(size_t bytes) {
    const std::string old(view());
    buffer_.resize(2 * (buffer_.size() + bytes));
    at_ = buffer_.data() + buffer_.size() - old.size();
    std::memcpy(at_, old.data(), old.size());
  }

  std::string buffer_;
  char* at_ = nullptr;  // the first byte of what was written
};

/// An AnyValue's one field.
void write_value(Output& out, const Span::Value& value) {
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    out.bytes_field(1, checked(*text));
  } else if (const auto* number = std::get_if<int64_t>(&value)) {
    out.varint_field(3, static_cast<uint64_t>(*number));
  } else if (const auto* id = std::get_if<Span::Id>(&value)) {
    std::array<char, 20> digits;  // NOLINT(cppcoreguidelines-pro-type-member-init): written next
    const char* end = std::to_chars(digits.data(), digits.data() + digits.size(), id->value).ptr;
    out.bytes_field(1, {digits.data(), static_cast<size_t>(end - digits.data())});
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    out.varint_field(2, *flag ? 1 : 0);
  } else {
    out.fixed_field(4, std::bit_cast<uint64_t>(std::get<double>(value)));
  }
}

void write_attribute(Output& out, uint32_t field, const Span::Attribute& attribute) {
  const auto* text = std::get_if<std::string_view>(&attribute.value);
  out.need(attribute.key.size() + (text == nullptr ? 0 : text->size()) + 8 * kHeadBytes);
  const size_t end = out.written();
  write_value(out, attribute.value);
  out.head(2, end);
  out.bytes_field(1, attribute.key);
  out.head(field, end);
}

uint64_t unix_ns(WallTime time) {
  return static_cast<uint64_t>(time.time_since_epoch().count());
}

/// Fields from the last to the first.
void write_span(Output& out, const Span& span) {
  const std::string_view error = checked(span.error);
  const std::string_view state = checked(span.state);
  out.need(kSpanBytes + error.size());
  const size_t end = out.written();
  out.fixed_field(16, uint32_t{1});  // sampled
  if (!error.empty()) {
    const size_t status = out.written();
    out.varint_field(3, kStatusError);
    out.bytes_field(2, error);
    out.head(15, status);
  }
  if (span.link) {
    const size_t link = out.written();
    out.bytes_field(2, *span.link);
    out.bytes_field(1, span.trace);
    out.head(13, link);
  }
  for (auto attribute = span.attributes.rbegin(); attribute != span.attributes.rend();
       ++attribute) {
    write_attribute(out, 9, *attribute);
  }
  out.need(kSpanBytes + span.name.size() + state.size());
  out.fixed_field(8, unix_ns(span.end));
  out.fixed_field(7, unix_ns(span.start));
  out.varint_field(6, static_cast<uint64_t>(span.kind));
  out.bytes_field(5, span.name);
  if (span.parent != SpanId{}) {
    out.bytes_field(4, span.parent);
  }
  if (!state.empty()) {
    out.bytes_field(3, state);
  }
  out.bytes_field(2, span.id);
  out.bytes_field(1, span.trace);
  out.head(2, end);  // of ScopeSpans
}

}  // namespace

OtlpBytes::OtlpBytes(const OtlpResource& resource) {
  Output out;
  const auto pairs = read_resource_attributes(resource.attributes);
  for (auto pair = pairs.rbegin(); pair != pairs.rend(); ++pair) {
    write_attribute(out, 1, {pair->first, std::string_view(pair->second)});
  }
  write_attribute(out, 1, {"telemetry.sdk.name", std::string_view("stator")});
  write_attribute(out, 1, {"service.version", std::string_view(resource.version)});
  write_attribute(out, 1, {"service.name", std::string_view(resource.service)});
  out.need(kHeadBytes);
  out.head(1, 0);
  resource_ = out.view();
  out.clear();
  out.need(resource.version.size() + 4 * kHeadBytes);
  out.bytes_field(2, resource.version);
  out.bytes_field(1, std::string_view("stator"));
  out.head(1, 0);
  scope_ = out.view();
}

void OtlpBytes::append(std::string& out, const SpanList& spans) const {
  static thread_local Output output;
  output.clear();
  for (size_t i = spans.size(); i-- > 0;) {
    write_span(output, spans[i]);
  }
  out += output.view();
}

std::string OtlpBytes::frame(std::string_view spans) const {
  Output heads;
  const size_t scope_spans = scope_.size() + spans.size();
  heads.varint(scope_spans);
  heads.varint(2U << 3 | kBytes);
  const std::string inner(heads.view());
  heads.clear();
  heads.varint(resource_.size() + inner.size() + scope_spans);
  heads.varint(1U << 3 | kBytes);
  std::string out(heads.view());
  out.reserve(out.size() + resource_.size() + inner.size() + scope_spans);
  out += resource_;
  out += inner;
  out += scope_;
  out += spans;
  return out;
}

std::vector<std::pair<std::string, std::string>> read_resource_attributes(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> out;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view pair = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const size_t at = pair.find('=');
    if (at == std::string_view::npos || at == 0) {
      continue;
    }
    const size_t begin = std::min(pair.find_first_not_of(' '), at);
    std::string key;
    text::append_lossy(key, pair.substr(begin, at - begin));
    std::string value;
    text::append_lossy(value, text::percent_decode(pair.substr(at + 1)));
    out.emplace_back(std::move(key), std::move(value));
  }
  return out;
}

}  // namespace stator::telemetry
