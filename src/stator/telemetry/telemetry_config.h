// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/config.h"

namespace stator::telemetry {

/// Where spans go.
struct TraceConfig {
  std::string endpoint;           ///< of an OpenTelemetry collector; empty: no spans
  std::string protocol = "auto";  ///< "http/protobuf", "http/json", "grpc", or by the port
  std::string service_name = "stator";
  std::string resource_attributes;  ///< further ones, as OTEL_RESOURCE_ATTRIBUTES has them
  std::string header;               ///< NAME=VALUE that every batch carries; a secret
  std::string headers;  ///< further ones, as OTEL_EXPORTER_OTLP_HEADERS has them; a secret
  std::string ca_path;  ///< PEM file that signs the collector's certificate; empty: the system's
  std::string version;
  double sample_ratio = 1;
  uint32_t spans_max = 16384;                   ///< that wait to be sent
  Duration interval = std::chrono::seconds(5);  ///< an unfilled batch leaves after this
};

/// Lines about requests, in files.
struct RequestLogConfig {
  std::string access_log;  ///< file, "-" for standard output; empty: none
  std::string access_log_format = "json";
  std::string request_trace;                   ///< file; empty: none
  std::string request_trace_format = "jsonl";  ///< "jsonl_gz": its name is a prefix of segments
  std::string audit_log;                       ///< the same
  std::string audit_content = "none";          ///< "requests", or "all": answers, too
  uint64_t answers_bytes_max = 64ULL << 20;    ///< of answers under way, for the audit log
  uint64_t file_bytes_max = 256ULL << 20;      ///< then it becomes FILE.1; 0: never
  uint32_t files_max = 5;                      ///< FILE.1 … that are kept
  uint64_t buffer_bytes_max = 8ULL << 20;      ///< lines that wait to be written, per file
};

struct TelemetryConfig {
  TraceConfig trace;
  RequestLogConfig log;
  uint32_t recent_max = 256;  ///< ended requests that operators can look at
};

/// Declares them under trace.* and request_log.*.
void describe(ConfigSchema& schema, TelemetryConfig& config);

}  // namespace stator::telemetry
