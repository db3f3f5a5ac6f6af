// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstring>

#include "stator/telemetry/span.h"

namespace stator::telemetry {
namespace {

// Field numbers and wire types of opentelemetry/proto/{trace,common,resource}/v1.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// Appends protobuf fields to a message.
class Message {
 public:
  void varint(uint32_t field, uint64_t value) {
    raw(field << 3 | kVarint);
    raw(value);
  }
  void fixed64(uint32_t field, uint64_t value) {
    raw(field << 3 | kFixed64);
    append(value);
  }
  void fixed32(uint32_t field, uint32_t value) {
    raw(field << 3 | kFixed32);
    append(value);
  }
  void bytes(uint32_t field, std::string_view value) {
    raw(field << 3 | kBytes);
    raw(value.size());
    out_ += value;
  }
  template <size_t kSize>
  void bytes(uint32_t field, const std::array<unsigned char, kSize>& value) {
    bytes(field, {reinterpret_cast<const char*>(value.data()), value.size()});
  }
  void message(uint32_t field, const Message& value) { bytes(field, value.out_); }
  std::string take() { return std::move(out_); }

 private:
  void raw(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      out_ += static_cast<char>(value | 0x80);
    }
    out_ += static_cast<char>(value);
  }
  template <typename T>
  void append(T value) {
    static_assert(std::endian::native == std::endian::little);
    char raw_bytes[sizeof value];
    std::memcpy(raw_bytes, &value, sizeof value);
    out_.append(raw_bytes, sizeof value);
  }

  std::string out_;
};

Message any_value(const Span::Value& value) {
  Message any;
  if (const auto* text = std::get_if<std::string>(&value)) {
    any.bytes(1, *text);
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    any.varint(2, *flag ? 1 : 0);
  } else if (const auto* number = std::get_if<int64_t>(&value)) {
    any.varint(3, static_cast<uint64_t>(*number));
  } else {
    any.fixed64(4, std::bit_cast<uint64_t>(std::get<double>(value)));
  }
  return any;
}

Message key_value(std::string_view key, const Span::Value& value) {
  Message pair;
  pair.bytes(1, key);
  pair.message(2, any_value(value));
  return pair;
}

uint64_t unix_ns(WallTime time) {
  return static_cast<uint64_t>(time.time_since_epoch().count());
}

Message encode_span(const Span& span) {
  Message out;
  out.bytes(1, span.trace);
  out.bytes(2, span.id);
  if (!span.state.empty()) {
    out.bytes(3, span.state);
  }
  if (span.parent != SpanId{}) {
    out.bytes(4, span.parent);
  }
  out.bytes(5, span.name);
  out.varint(6, static_cast<uint64_t>(span.kind));
  out.fixed64(7, unix_ns(span.start));
  out.fixed64(8, unix_ns(span.end));
  for (const auto& [key, value] : span.attributes) {
    out.message(9, key_value(key, value));
  }
  for (const SpanId& other : span.links) {
    Message link;
    link.bytes(1, span.trace);
    link.bytes(2, other);
    out.message(13, link);
  }
  if (!span.error.empty()) {
    Message status;
    status.bytes(2, span.error);
    status.varint(3, 2);  // STATUS_CODE_ERROR
    out.message(15, status);
  }
  out.fixed32(16, 1);  // sampled
  return out;
}

}  // namespace

std::string encode_otlp(std::string_view service, std::string_view version,
                        const std::vector<Span>& spans) {
  Message resource;
  resource.message(1, key_value("service.name", std::string(service)));
  resource.message(1, key_value("service.version", std::string(version)));
  resource.message(1, key_value("telemetry.sdk.name", std::string("stator")));
  Message scope;
  scope.bytes(1, "stator");
  scope.bytes(2, version);
  Message scope_spans;
  scope_spans.message(1, scope);
  for (const Span& span : spans) {
    scope_spans.message(2, encode_span(span));
  }
  Message resource_spans;
  resource_spans.message(1, resource);
  resource_spans.message(2, scope_spans);
  Message request;
  request.message(1, resource_spans);
  return request.take();
}

}  // namespace stator::telemetry
