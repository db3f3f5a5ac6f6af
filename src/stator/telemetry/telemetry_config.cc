// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/telemetry_config.h"

namespace stator::telemetry {
namespace {

void describe_trace(ConfigSchema& schema, TraceConfig& trace) {
  schema.text("trace.otlp_endpoint", trace.endpoint,
              "URL of an OpenTelemetry collector that takes spans, http://HOST:4318 (HTTP) or "
              "http://HOST:4317 (gRPC); empty = no spans",
              {.flag = "otlp-endpoint", .env_peer = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"});
  schema.choice("trace.otlp_protocol", trace.protocol,
                {"auto", "http/protobuf", "http/json", "grpc"},
                "how spans are sent; auto = gRPC to port 4317, else HTTP",
                {.flag = "otlp-protocol", .env_peer = "OTEL_EXPORTER_OTLP_PROTOCOL"});
  schema.secret("trace.otlp_header", trace.header,
                "NAME=VALUE, a header that every batch carries, such as a collector's key");
  schema.secret("trace.otlp_headers", trace.headers,
                "further ones, NAME=VALUE,NAME=VALUE with percent-encoded values",
                {.env_peer = "OTEL_EXPORTER_OTLP_HEADERS"});
  schema.text("trace.otlp_ca", trace.ca_path,
              "PEM file that signs the certificate of an https:// collector, empty = the system's",
              {.env_peer = "OTEL_EXPORTER_OTLP_CERTIFICATE"});
  schema.text("trace.service_name", trace.service_name, "service.name of the spans",
              {.env_peer = "OTEL_SERVICE_NAME"});
  schema.text("trace.resource_attributes", trace.resource_attributes,
              "further attributes of the spans' resource, key=value,key=value",
              {.env_peer = "OTEL_RESOURCE_ATTRIBUTES"});
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
              {.flag = "request-trace", .env_peer = "DYN_REQUEST_TRACE_FILE_PATH"});
  schema.choice("request_log.request_trace_format", log.request_trace_format, {"jsonl", "jsonl_gz"},
                "jsonl_gz: compressed, in files NAME.000000.jsonl.gz, NAME.000001.jsonl.gz …",
                {.flag = "request-trace-format", .env_peer = "DYN_REQUEST_TRACE_FILE_FORMAT"});
  schema.text("request_log.audit_log", log.audit_log,
              "file with who was refused, who changed what and who asked for what, empty = none",
              {.flag = "audit-log"});
  schema.choice("request_log.audit_content", log.audit_content, {"none", "requests", "all"},
                "whether the audit log has the bodies of requests, without media and with "
                "credentials masked, and of answers, too (all)",
                {.flag = "audit-content"});
  schema.bytes("request_log.answers_bytes_max", log.answers_bytes_max,
               "memory for answers under way that the audit log will have, beyond: cut short");
  schema.bytes("request_log.file_bytes_max", log.file_bytes_max,
               "a file of this size becomes FILE.1, FILE.1 becomes FILE.2 …, 0 = never");
  schema.integer("request_log.files_max", log.files_max, 1, 1000, "such older files that are kept");
  schema.bytes("request_log.buffer_bytes_max", log.buffer_bytes_max,
               "memory for lines that wait for the disk, per file, beyond: dropped and counted");
  schema.integer("request_log.recent_max", config.recent_max, 1, 1 << 20,
                 "ended requests that operators can look at (GET /requests)");
}

}  // namespace stator::telemetry
