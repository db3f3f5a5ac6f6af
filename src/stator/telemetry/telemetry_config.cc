// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/telemetry_config.h"

namespace stator::telemetry {
namespace {

void describe_trace(ConfigSchema& schema, TraceConfig& trace) {
  schema.text("trace.otlp_endpoint", trace.endpoint,
              "URL of an OpenTelemetry collector that takes spans, http://HOST:4318 (HTTP) or "
              "http://HOST:4317 (gRPC); empty = no spans",
              {.flag = "otlp-endpoint", .env_peer = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"});
  schema.choice("trace.otlp_protocol", trace.protocol, {"auto", "http/protobuf", "grpc"},
                "how spans are sent; auto = gRPC to port 4317, else HTTP",
                {.flag = "otlp-protocol", .env_peer = "OTEL_EXPORTER_OTLP_PROTOCOL"});
  schema.secret("trace.otlp_header", trace.header,
                "NAME=VALUE, a header that every batch carries, such as a collector's key");
  schema.text("trace.service_name", trace.service_name, "service.name of the spans",
              {.env_peer = "OTEL_SERVICE_NAME"});
  schema.number("trace.sample_ratio", trace.sample_ratio, 0, 1,
                "share of the requests without a traceparent that have spans; those with one "
                "follow it",
                {.flag = "trace-sample-ratio", .env_peer = "OTEL_TRACES_SAMPLE_RATIO"});
  schema.integer("trace.spans_max", trace.spans_max, 1, 1 << 24,
                 "spans that wait to be sent, beyond: dropped and counted");
  schema.duration("trace.interval", trace.interval,
                  "a batch of fewer than 512 spans leaves after this, at most 5 s");
}

}  // namespace

void describe(ConfigSchema& schema, TelemetryConfig& config) {
  describe_trace(schema, config.trace);
  RequestLogConfig& log = config.log;
  schema.text("request_log.access_log", log.access_log,
              "file with one line per request, - for standard output, empty = none",
              {.flag = "access-log"});
  schema.choice("request_log.access_log_format", log.access_log_format, {"json", "human"},
                "how its lines look", {.flag = "access-log-format"});
  schema.text("request_log.request_trace", log.request_trace,
              "file with one record per generated answer (dynamo.request.trace.v1: lengths, times "
              "and hashes, no text) that `stator sim` and `stator bench` replay, empty = none",
              {.flag = "request-trace"});
  schema.text("request_log.audit_log", log.audit_log,
              "file with who was refused, who changed what and who asked for what, empty = none",
              {.flag = "audit-log"});
  schema.choice("request_log.audit_content", log.audit_content, {"none", "requests"},
                "whether the audit log has the bodies of requests, without media and with "
                "credentials masked",
                {.flag = "audit-content"});
  schema.bytes("request_log.file_bytes_max", log.file_bytes_max,
               "a file of this size becomes FILE.1, FILE.1 becomes FILE.2 …, 0 = never");
  schema.integer("request_log.files_max", log.files_max, 1, 1000, "such older files that are kept");
  schema.bytes("request_log.buffer_bytes_max", log.buffer_bytes_max,
               "memory for lines that wait for the disk, per file, beyond: dropped and counted");
  schema.integer("request_log.recent_max", config.recent_max, 1, 1 << 20,
                 "ended requests that operators can look at (GET /requests)");
}

}  // namespace stator::telemetry
