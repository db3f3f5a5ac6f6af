// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "stator/json/writer.h"
#include "stator/telemetry/otlp.h"

namespace stator::telemetry {
namespace {

void write_value(json::Writer& json, const Span::Value& value) {
  json.key("value").begin_object();
  if (const auto* text = std::get_if<std::string_view>(&value)) {
    json.key("stringValue").value(*text);
  } else if (const auto* number = std::get_if<int64_t>(&value)) {
    json.key("intValue").value(fmt::to_string(*number));
  } else if (const auto* id = std::get_if<Span::Id>(&value)) {
    json.key("stringValue").value(fmt::to_string(id->value));
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    json.key("boolValue").value(*flag);
  } else {
    json.key("doubleValue").value(std::get<double>(value));
  }
  json.end_object();
}

void write_attribute(json::Writer& json, std::string_view key, const Span::Value& value) {
  json.begin_object().key("key").value(key);
  write_value(json, value);
  json.end_object();
}

std::string unix_ns(WallTime time) {
  return fmt::to_string(time.time_since_epoch().count());
}

void write_span(json::Writer& json, const Span& span) {
  json.begin_object().key("traceId").value(to_hex(span.trace)).key("spanId").value(to_hex(span.id));
  if (!span.state.empty()) {
    json.key("traceState").value(span.state);
  }
  if (span.parent != SpanId{}) {
    json.key("parentSpanId").value(to_hex(span.parent));
  }
  json.key("name").value(span.name).key("kind").value(static_cast<int>(span.kind));
  json.key("startTimeUnixNano").value(unix_ns(span.start));
  json.key("endTimeUnixNano").value(unix_ns(span.end));
  json.key("attributes").begin_array();
  for (const Span::Attribute& attribute : span.attributes) {
    write_attribute(json, attribute.key, attribute.value);
  }
  json.end_array();
  if (span.link) {
    json.key("links").begin_array().begin_object();
    json.key("traceId").value(to_hex(span.trace)).key("spanId").value(to_hex(*span.link));
    json.end_object().end_array();
  }
  if (!span.error.empty()) {
    json.key("status").begin_object().key("message").value(span.error).key("code").value(2);
    json.end_object();
  }
  json.key("flags").value(1).end_object();
}

}  // namespace

OtlpJson::OtlpJson(const OtlpResource& resource) {
  json::Writer json(head_);
  json.begin_object().key("resourceSpans").begin_array().begin_object();
  json.key("resource").begin_object().key("attributes").begin_array();
  write_attribute(json, "service.name", std::string_view(resource.service));
  write_attribute(json, "service.version", std::string_view(resource.version));
  write_attribute(json, "telemetry.sdk.name", std::string_view("stator"));
  for (const auto& [key, value] : read_resource_attributes(resource.attributes)) {
    write_attribute(json, key, std::string_view(value));
  }
  json.end_array().end_object().key("scopeSpans").begin_array().begin_object();
  json.key("scope").begin_object().key("name").value("stator");
  json.key("version").value(resource.version).end_object().key("spans").begin_array();
}

void OtlpJson::append(std::string& out, const SpanList& spans) const {
  for (const Span& span : spans) {
    out += ',';
    json::Writer json(out);
    write_span(json, span);
  }
}

std::string OtlpJson::frame(std::string_view spans) const {
  return fmt::format("{}{}]}}]}}]}}", head_, spans.substr(spans.empty() ? 0 : 1));
}

}  // namespace stator::telemetry
