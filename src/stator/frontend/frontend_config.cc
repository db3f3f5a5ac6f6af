// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/frontend_config.h"

namespace stator::frontend {
namespace {

void describe_http(ConfigSchema& schema, net::HttpServerConfig& http) {
  schema.text("http.host", http.host, "address to listen on",
              {.flag = "host", .env_peer = "DYN_HTTP_HOST"});
  schema.integer("http.port", http.port, 0, 65535, "port to listen on, 0 = any free one",
                 {.flag = "port", .env_peer = "DYN_HTTP_PORT"});
  schema.text("http.tls_cert_path", http.tls_cert_path,
              "PEM certificate chain; with the key: HTTPS",
              {.flag = "tls-cert-path", .env_peer = "DYN_TLS_CERT_PATH"});
  schema.text("http.tls_key_path", http.tls_key_path, "PEM private key",
              {.flag = "tls-key-path", .env_peer = "DYN_TLS_KEY_PATH"});
  schema.text("http.tls_client_ca_path", http.tls_client_ca_path,
              "PEM file: clients must show a certificate that it signed (mutual TLS)",
              {.flag = "tls-client-ca"});
  schema.text("http.cors_origins", http.cors_origins,
              "origins whose pages may ask from a browser (CORS): a list such as "
              "https://chat.example,http://localhost:3000, or * for every page; empty = none",
              {.flag = "cors-origins"});
  schema.text("http.allowed_hosts", http.allowed_hosts,
              "names under which pages of this server itself may change something (POST "
              "/busy_threshold), beside localhost and addresses: a list with commas");
  schema.bytes("http.body_bytes_max", http.body_bytes_max,
               "largest body of a request that generates, beyond: 413",
               {.env_peer = "DYN_HTTP_BODY_LIMIT_MB"});
  schema.bytes(
      "http.bodies_bytes_max", http.bodies_bytes_max,
      "memory for all request bodies together, on their way in and being prepared, beyond: "
      "the largest are refused with 503");
  schema.bytes("http.header_bytes_max", http.header_bytes_max, "largest request head, beyond: 431");
  schema.integer("http.headers_max", http.headers_max, 1, 10000, "most header lines, beyond: 431");
  schema.integer("http.connections_max", http.connections_max, 1, 1 << 24,
                 "connections per shard, beyond: 503");
  schema.duration("http.header_timeout", http.header_timeout,
                  "first byte to end of the request head, then 408");
  schema.duration("http.body_timeout", http.body_timeout,
                  "end of head to end of body, a second more for every 16 KiB, then 408");
  schema.duration("http.body_time_max", http.body_time_max,
                  "the same for a body of any size, then 408");
  schema.bytes("http.transfer_bytes_per_second_min", http.transfer_bytes_per_second_min,
               "a body or an answer with more than 1 MiB that moves more slowly for 20 s is given "
               "up, 0 = never");
  schema.duration("http.idle_timeout", http.idle_timeout,
                  "kept-alive connection without a request");
  schema.bytes("http.stream_high_water_bytes", http.stream_high_water_bytes,
               "unsent bytes of a stream from which its client counts as slow");
  schema.bytes(
      "http.output_bytes_max", http.output_bytes_max,
      "memory for what all clients together have not taken yet, beyond: those with the most "
      "are dropped");
  schema.duration("http.slow_client_timeout", http.slow_client_timeout,
                  "how long a slow client is tolerated");
  schema.duration("http.stream_flush_interval", http.stream_flush_interval,
                  "writes of one stream closer together than this leave as one");
  schema.integer(
      "http.http2_streams_max", http.http2_streams_max, 0, 65536,
      "HTTP/2 requests at once on one connection, further ones are refused; 0: no HTTP/2");
}

void describe_kserve(ConfigSchema& schema, FrontendConfig& config) {
  schema.boolean("kserve.grpc_server", config.kserve_grpc_server,
                 "serve gRPC (KServe v2) on a port of its own, too",
                 {.env_peer = "DYN_KSERVE_GRPC_SERVER"});
  schema.integer("kserve.grpc_port", config.kserve_grpc_port, 0, 65535,
                 "that port, 0 = any free one");
}

void describe_listeners(ConfigSchema& schema, FrontendConfig& config) {
  describe_http(schema, config.http);
  config.paths.describe(schema);
  describe_kserve(schema, config);
}

void describe_migration(ConfigSchema& schema, FrontendConfig& config) {
  schema.integer("frontend.migration_limit", config.migration_limit, 0, 100,
                 "how often a request whose worker is lost goes on at another one, 0 = never",
                 {.flag = "migration-limit", .env_peer = "DYN_MIGRATION_LIMIT"});
  schema.integer("frontend.migration_max_seq_len", config.migration_max_seq_len, 0, 1 << 30,
                 "requests with more tokens, prompt and output, are not moved, 0 = no limit",
                 {.flag = "migration-max-seq-len", .env_peer = "DYN_MIGRATION_MAX_SEQ_LEN"});
  schema.duration("frontend.migration_wait", config.migration_wait,
                  "how long a request that lost its worker waits for another one");
  schema.integer("frontend.refusals_max", config.refusals_max, 0, 100,
                 "busy or draining workers asked for one request, after the first");
  schema.integer("frontend.poison_workers", config.poison_workers, 0, 100,
                 "a request under which so many workers died is refused for a minute, 0 = never");
  schema.duration("frontend.canary_interval", config.canary_interval,
                  "a worker idle for this long is asked for one token, and gets no work after "
                  "failing twice until it answers, 0 = never",
                  {.env_peer = "DYN_CANARY_WAIT_TIME"});
  schema.duration("frontend.accept_timeout", config.accept_timeout,
                  "a worker that neither takes nor refuses a request for this long loses it to "
                  "another one, 0 = never");
  schema.duration("frontend.stall_timeout", config.stall_timeout,
                  "a worker silent for this long in mid-answer loses it to another one (four times "
                  "as long before the first token), 0 = never");
}

void describe_journals(ConfigSchema& schema, continuity::JournalHubConfig& journals) {
  schema.boolean("frontend.resumable_streams", journals.enabled,
                 "another frontend keeps a copy of every stream, so that its client can go on with "
                 "Last-Event-ID at any of them when this one dies");
  schema.text("frontend.journal_host", journals.host,
              "address of the service for that, as other frontends reach it");
  schema.integer("frontend.journal_port", journals.port, 0, 65535, "its port, 0 = any free one");
  schema.text(
      "frontend.journal_tls_name", journals.tls_name,
      "with rpc.tls_*: name that other frontends' certificates have, empty = their address");
  schema.bytes("frontend.journal_bytes_max", journals.limits.bytes_max,
               "memory for copies of other frontends' streams, beyond: those have none");
  schema.duration("frontend.journal_keep", journals.limits.keep,
                  "how long after its last token a stream can be gone on with");
  schema.duration("frontend.journal_ack_timeout", journals.ack_timeout,
                  "how long tokens wait for their copy; then the stream goes on without one");
}

/// What NVIDIA Dynamo's frontend has variables for, and nobody else asks for.
void describe_dynamo(ConfigSchema& schema, FrontendConfig& config) {
  schema.text("frontend.metadata_header", config.metadata_header,
              "headers that begin so go to workers and engine servers as metadata, at most 64 and "
              "64 KiB (beyond: 431); in lower case",
              {.env_peer = "DYN_METADATA_HEADER"});
  schema.text("frontend.histograms", config.histograms,
              "buckets of its histograms, NAME=MIN:MAX:COUNT[,…]: 0 and so many points that grow "
              "by a factor; NAME is request_duration, time_to_first_token, inter_token_latency, "
              "input_sequence, output_sequence, cached_tokens or embedding_latency");
  schema.text("frontend.request_template", config.request_template,
              "JSON file with what counts where a request says nothing: temperature, top_p, top_k, "
              "min_p, max_completion_tokens, for all models and under \"models\" for single ones",
              {.flag = "request-template"});
  schema.boolean("frontend.disable_nvext", config.disable_nvext,
                 "ignore nvext and hints in headers, and name them in x-stator-ignored-fields",
                 {.env_peer = "DYN_DISABLE_FRONTEND_NVEXT"});
  schema.boolean("frontend.force_include_usage", config.force_include_usage,
                 "streams end with their usage though their client did not ask for it",
                 {.env_peer = "DYN_ENABLE_FORCE_INCLUDE_USAGE"});
  schema.integer("frontend.context_window", config.context_window, 0, 1U << 30,
                 "context_window of GET /v1/models, 0 = what the model allows",
                 {.env_peer = "DYN_CONTEXT_WINDOW"});
  schema.integer("frontend.max_output_tokens", config.max_output_tokens, 0, 1U << 30,
                 "max_output_tokens of GET /v1/models, 0 = not said",
                 {.env_peer = "DYN_MAX_OUTPUT_TOKENS"});
}

void describe_protocols(ConfigSchema& schema, FrontendConfig& config) {
  schema.boolean("frontend.strict_fields", config.strict_fields,
                 "refuse unknown request fields instead of ignoring them");
  schema.boolean("frontend.exclude_tools_when_none", config.exclude_tools_when_none,
                 "with tool_choice none the template does not see the tools",
                 {.flag = "exclude-tools-when-tool-choice-none",
                  .env_peer = "DYN_EXCLUDE_TOOLS_WHEN_TOOL_CHOICE_NONE"});
  schema.boolean(
      "frontend.ignore_builtin_tools", config.ignore_builtin_tools,
      "leave tools of the Responses API that only a provider can run (web_search, …) out "
      "instead of refusing them",
      {.flag = "ignore-builtin-tools"});
  schema.boolean("frontend.strip_preamble", config.strip_preamble,
                 "drop the first line of a system prompt if it is Claude Code's billing header, "
                 "which changes with each request and would spoil every prefix cache",
                 {.flag = "strip-anthropic-preamble", .env_peer = "DYN_STRIP_ANTHROPIC_PREAMBLE"});
  responses::describe(schema, config.responses);
  batches::describe(schema, config.batches);
  media::describe(schema, config.media);
}

}  // namespace

void describe(ConfigSchema& schema, FrontendConfig& config) {
  describe_listeners(schema, config);
  schema.integer("frontend.shards", config.shards, 0, 1024,
                 "event-loop threads, 0 = cores − 1, at least 1",
                 {.flag = "shards", .env_peer = "DYN_RUNTIME_NUM_WORKER_THREADS"});
  schema.integer("frontend.inflight_max", config.inflight_max, 1, 1 << 24,
                 "requests in flight per shard, beyond: overload status");
  describe_migration(schema, config);
  describe_journals(schema, config.journals);
  schema.integer("frontend.overload_status", config.overload_status, 200, 999,
                 "HTTP status when all workers are busy",
                 {.env_peer = "DYN_HTTP_OVERLOAD_STATUS_CODE"});
  schema.duration("frontend.retry_after", config.retry_after, "Retry-After of overload answers");
  schema.duration("frontend.keep_alive_interval", config.keep_alive_interval,
                  "SSE comment on quiet streams, 0 = never",
                  {.env_peer = "DYN_HTTP_SSE_KEEP_ALIVE_INTERVAL_MS"});
  schema.duration("frontend.stream_idle_timeout", config.stream_idle_timeout,
                  "a request without a new token for this long fails, 0 = never",
                  {.env_peer = "DYN_HTTP_BACKEND_STREAM_TIMEOUT_SECS"});
  schema.duration("frontend.drain_timeout", config.drain_timeout,
                  "how long running requests may finish after SIGTERM",
                  {.env_peer = "DYN_HTTP_GRACEFUL_SHUTDOWN_TIMEOUT_SECS"});
  schema.choice("frontend.reasoning_field", config.reasoning_field,
                {"reasoning_content", "reasoning"}, "name of the reasoning in answers",
                {.env_peer = "DYN_REASONING_FIELD_NAME"});
  schema.text("frontend.parser_spec", config.parser_spec,
              "JSON file with further tool-call and reasoning families", {.flag = "parser-spec"});
  schema.choice("frontend.unknown_tools", config.unknown_tools, {"keep", "drop"},
                "calls of tools that the request did not declare", {.flag = "unknown-tools"});
  schema.bytes(
      "frontend.answers_bytes_max", config.answers_bytes_max,
      "memory for answers without \"stream\" while they are collected, beyond: the largest "
      "end with 413");
  schema.bytes("frontend.text_body_bytes_max", config.text_body_bytes_max,
               "largest body of /tokenize and /detokenize, beyond: 413");
  schema.bytes("frontend.inline_body_bytes_max", config.inline_body_bytes_max,
               "request bodies up to this are prepared on the event loop, larger ones on the pool");
  schema.integer("frontend.compute_threads", config.compute_threads, 0, 1024,
                 "threads that parse, render and tokenize large requests, 0 = cores − shards, at "
                 "least 1",
                 {.env_peer = "DYN_COMPUTE_THREADS"});
  schema.integer("frontend.compute_queue_max", config.compute_queue_max, 1, 1 << 24,
                 "large requests that wait for those threads, beyond: overload status");
  schema.bytes("frontend.compute_queue_bytes_max", config.compute_queue_bytes_max,
               "bytes of such requests, beyond: overload status");
  schema.bytes("frontend.compute_short_bytes", config.compute_short_bytes,
               "one more such thread takes only bodies up to this, so that they need not wait for "
               "long ones, 0 = none");
  schema.integer("frontend.tokenize_tokens_max", config.tokenize_tokens_max, 1, 1 << 30,
                 "tokens of one POST /tokenize or /detokenize, or the model's context if that is "
                 "more, beyond: 413");
  schema.boolean("frontend.tokenizer_cache", config.tokenizer_cache,
                 "keep the token ids of prompts, so that only what is new in one is tokenized",
                 {.env_peer = "DYN_TOKENIZER_CACHE"});
  schema.bytes("frontend.tokenizer_cache_bytes", config.tokenizer_cache_bytes,
               "memory for that, for all models together",
               {.env_peer = "DYN_TOKENIZER_CACHE_BYTES"});
  schema.boolean("frontend.disable_admin_api", config.disable_admin_api,
                 "no /busy_threshold: the thresholds stay as configured",
                 {.env_peer = "DYN_DISABLE_FRONTEND_ADMIN_API"});
  schema.choice("frontend.trust_hints", config.trust_hints, {"all", "headers", "body", "none"},
                "where a client's priorities, worker pins, router overrides, tenant and cache salt "
                "are taken from: request headers, the body's nvext and cache_salt, both or "
                "neither; what is not trusted is ignored and named in x-stator-ignored-fields",
                {.flag = "trust-hints"});
  schema.text("frontend.metrics_prefix", config.metrics_prefix, "prefix of the frontend's metrics",
              {.flag = "metrics-prefix", .env_peer = "DYN_METRICS_PREFIX"});
  describe_dynamo(schema, config);
  describe_protocols(schema, config);
}

}  // namespace stator::frontend
