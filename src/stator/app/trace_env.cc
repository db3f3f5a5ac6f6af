// SPDX-License-Identifier: Apache-2.0
#include "stator/app/trace_env.h"

#include <algorithm>

#include "stator/app/terminal.h"

namespace stator::app {
namespace {

bool is_truthy(const std::optional<std::string>& text) {
  std::string word = text.value_or("");
  std::ranges::transform(word, word.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  });
  return word == "1" || word == "true" || word == "yes" || word == "on";
}

std::optional<std::string> first_of(const char* name, const char* other) {
  auto value = read_env(name);
  return value && !value->empty() ? value : read_env(other);
}

std::optional<std::string> endpoint() {
  const auto enabled = read_env("OTEL_EXPORT_ENABLED");
  if (is_truthy(read_env("OTEL_SDK_DISABLED")) || (enabled && !is_truthy(enabled)) ||
      read_env("OTEL_TRACES_EXPORTER") == "none") {
    return std::nullopt;
  }
  if (auto own = read_env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); own && !own->empty()) {
    return own;
  }
  if (auto base = read_env("OTEL_EXPORTER_OTLP_ENDPOINT"); base && !base->empty()) {
    base->resize(base->find_last_not_of('/') + 1);
    return *base + "/v1/traces";  // of gRPC the path does not count
  }
  // Dynamo's switch alone means its default.
  return enabled ? std::optional<std::string>("http://localhost:4317") : std::nullopt;
}

std::optional<std::string> sample_ratio() {
  if (auto own = read_env("OTEL_TRACES_SAMPLE_RATIO")) {
    return own;
  }
  std::string sampler = read_env("OTEL_TRACES_SAMPLER").value_or("");
  constexpr std::string_view kParentBased = "parentbased_";  // as all are here
  if (sampler.starts_with(kParentBased)) {
    sampler.erase(0, kParentBased.size());
  }
  if (sampler == "always_off") {
    return "0";
  }
  return sampler == "traceidratio" ? read_env("OTEL_TRACES_SAMPLER_ARG") : std::nullopt;
}

/// Whether Dynamo's request traces are on, and written to a place that we have.
bool traces_requests() {
  return is_truthy(read_env("DYN_REQUEST_TRACE")) ||
         read_env("DYN_REQUEST_TRACE_RECORDS").value_or("").contains("request_end");
}

bool has_sink(std::string_view sink) {
  return read_env("DYN_REQUEST_TRACE_SINKS").value_or("file").contains(sink);
}

/// Older names of the sink for files say what they hold.
bool has_file() {
  return has_sink("file") || has_sink("jsonl");
}

std::optional<std::string> request_trace_path() {
  if (!traces_requests()) {
    return std::nullopt;
  }
  if (!has_file()) {
    return has_sink("stderr") ? std::optional<std::string>("/dev/stderr") : std::nullopt;
  }
  return first_of("DYN_REQUEST_TRACE_FILE_PATH", "DYN_REQUEST_TRACE_OUTPUT_PATH")
      .value_or("/tmp/dynamo-request-trace");
}

std::optional<std::string> request_trace_format() {
  if (!traces_requests() || !has_file()) {
    return std::nullopt;
  }
  const bool plain = has_sink("jsonl") && !has_sink("jsonl_gz");
  return read_env("DYN_REQUEST_TRACE_FILE_FORMAT").value_or(plain ? "jsonl" : "jsonl_gz");
}

struct Variable {
  std::string_view name;
  std::optional<std::string> (*read)();
};

constexpr Variable kVariables[] = {
    {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", endpoint},
    {"OTEL_EXPORTER_OTLP_PROTOCOL",
     [] { return first_of("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); }},
    {"OTEL_EXPORTER_OTLP_HEADERS",
     [] { return first_of("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"); }},
    {"OTEL_EXPORTER_OTLP_CERTIFICATE",
     [] {
       return first_of("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE");
     }},
    {"OTEL_TRACES_SAMPLE_RATIO", sample_ratio},
    {"DYN_REQUEST_TRACE_FILE_PATH", request_trace_path},
    {"DYN_REQUEST_TRACE_FILE_FORMAT", request_trace_format},
};

}  // namespace

bool is_trace_variable(std::string_view name) {
  return std::ranges::find(kVariables, name, &Variable::name) != std::end(kVariables);
}

std::optional<std::string> read_trace_env(std::string_view name) {
  const auto* const known = std::ranges::find(kVariables, name, &Variable::name);
  auto value = known == std::end(kVariables) ? std::nullopt : known->read();
  return value && value->empty() ? std::nullopt : value;
}

}  // namespace stator::app
