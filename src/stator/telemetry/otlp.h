// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/telemetry/span.h"

namespace stator::telemetry {

/// Who the spans are of, as OTLP's resource.
struct OtlpResource {
  std::string service;
  std::string version;
  /// Further attributes, "key=value,…" as OTEL_RESOURCE_ATTRIBUTES has them, percent-decoded.
  std::string attributes;
};

/// How an ExportTraceServiceRequest (opentelemetry-proto, trace/v1) is written, with one resource
/// and one scope. Spans are encoded one by one as they come, and framed when a batch leaves, so
/// that nothing is kept of them but their bytes. Pure.
class OtlpEncoding {
 public:
  virtual ~OtlpEncoding() = default;
  /// Appends the list's spans.
  virtual void append(std::string& out, const SpanList& spans) const = 0;
  /// A whole message of what append() has written, one or more times.
  virtual std::string frame(std::string_view spans) const = 0;
};

/// Its bytes by protobuf.
class OtlpBytes final : public OtlpEncoding {
 public:
  explicit OtlpBytes(const OtlpResource& resource);
  void append(std::string& out, const SpanList& spans) const override;
  std::string frame(std::string_view spans) const override;

 private:
  std::string resource_;  // field 1 of ResourceSpans
  std::string scope_;     // field 1 of ScopeSpans
};

/// Its JSON: ids in hex, integers of 64 bits as text.
class OtlpJson final : public OtlpEncoding {
 public:
  explicit OtlpJson(const OtlpResource& resource);
  void append(std::string& out, const SpanList& spans) const override;
  std::string frame(std::string_view spans) const override;

 private:
  std::string head_;
};

/// "a=1,b=x%20y" as pairs; what is none is left out.
std::vector<std::pair<std::string, std::string>> read_resource_attributes(std::string_view text);

}  // namespace stator::telemetry
