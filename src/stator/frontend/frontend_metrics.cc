// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/frontend_metrics.h"

#include <fmt/format.h>

#include <array>

namespace stator::frontend {
namespace {

// Bucket bounds of NVIDIA Dynamo's frontend, so that its dashboards and alerts keep their meaning.
constexpr std::array kDurationBounds = {0.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 130.0, 260.0, 510.0};
// log .001–10 s, 15, as the reference has them
constexpr std::array kMoveBounds = {.001, .0019, .0037, .0072, .014, .027, .052, .1,
                                    .19,  .37,   .72,   1.4,   2.7,  5.2,  10.0};
constexpr std::array kTtftBounds = {0.0, .0022, .0047, .01, .022, .047, .1,   .22,  .47,
                                    1.0, 2.2,   4.7,   10., 22.,  48.,  100., 220., 480.};
constexpr std::array kItlBounds = {0.0,  .0019, .0035, .0067, .013, .024, .045,
                                   .084, .16,   .3,    .56,   1.1,  2.0};
constexpr std::array kMigrationBounds = {.001, .0025, .005, .01, .025, .05, .1,
                                         .25,  .5,    1.0,  2.5, 5.0,  10.};
constexpr std::array kInputBounds = {0.0,   100.,  210.,   430.,   870.,   1800.,
                                     3600., 7400., 15000., 31000., 63000., 130000.};
constexpr std::array kOutputBounds = {0.0,   100.,  210.,  430.,   880.,
                                      1800., 3700., 7600., 16000., 32000.};

constexpr std::array kEmbeddingBounds = {0.0, .002, .0041, .0084, .017, .035, .07,
                                         .14, .29,  .59,   1.2,   2.4,  4.9,  10.0};

std::string_view name_of(MigrationKind kind) {
  return kind == MigrationKind::kNewRequest ? "new_request" : "ongoing_request";
}

/// Looked up for every request: without memory of its own.
class SeriesKey {
 public:
  SeriesKey(std::string_view model, EndpointLabel endpoint, bool stream,
            std::string_view error_type = {}) {
    text_.append(model);
    text_.push_back('\1');
    text_.append(std::string_view(endpoint.name));
    text_.push_back(stream ? '\1' : '\2');
    text_.append(error_type);
  }
  std::string_view view() const { return {text_.data(), text_.size()}; }

 private:
  fmt::memory_buffer text_;
};

RequestSeries make_series(Metrics& metrics, const std::string& prefix, std::string_view model,
                          EndpointLabel endpoint, bool stream) {
  RequestSeries made;
  const MetricLabels by_model = {{"model", std::string(model)}};
  made.started = metrics.counter(prefix + "_requests_started_total", "requests accepted",
                                 {{"model", std::string(model)},
                                  {"endpoint", std::string(endpoint.name)},
                                  {"request_type", stream ? "stream" : "unary"}});
  made.output_tokens =
      metrics.counter(prefix + "_output_tokens_total", "tokens generated", by_model);
  made.inflight = metrics.gauge(prefix + "_inflight_requests", "requests running", by_model);
  made.active = metrics.gauge(prefix + "_active_requests", "requests running", by_model);
  made.queued = metrics.gauge(prefix + "_queued_requests",
                              "requests running that have no token yet", by_model);
  made.duration = metrics.histogram(prefix + "_request_duration_seconds", "arrival to last byte",
                                    kDurationBounds, by_model);
  made.time_to_first_token =
      metrics.histogram(prefix + "_time_to_first_token_seconds", "arrival to first generated token",
                        kTtftBounds, by_model);
  made.inter_token_latency =
      metrics.histogram(prefix + "_inter_token_latency_seconds", "time between generated tokens",
                        kItlBounds, by_model);
  made.input_tokens =
      metrics.histogram(prefix + "_input_sequence_tokens", "prompt length", kInputBounds, by_model);
  made.output_sequence = metrics.histogram(prefix + "_output_sequence_tokens", "generated length",
                                           kOutputBounds, by_model);
  made.cached_tokens =
      metrics.histogram(prefix + "_cached_tokens", "prompt tokens served from the prefix cache",
                        kInputBounds, by_model);
  made.reasoning_tokens = metrics.counter("stator_frontend_reasoning_tokens_total",
                                          "generated tokens that were reasoning", by_model);
  made.tool_calls =
      metrics.counter("stator_frontend_tool_calls_total", "tool calls that models made", by_model);
  made.expected_cached_tokens = metrics.counter(
      "stator_router_cached_tokens_expected_total",
      "prompt tokens the router expected to be cached on the chosen worker's device", by_model);
  made.found_cached_tokens =
      metrics.counter("stator_router_cached_tokens_found_total",
                      "of the same prompts, what the worker did find cached", by_model);
  return made;
}

}  // namespace

EndpointLabel::EndpointLabel(Endpoint endpoint)
    : name(endpoint == Endpoint::kChat ? "chat_completions" : "completions") {}

FrontendMetrics::FrontendMetrics(Metrics& metrics, std::string prefix)
    : disconnected_clients(metrics.counter(prefix + "_disconnected_clients",
                                           "clients that left before their answer was complete")),
      stale_deltas(metrics.counter("stator_frontend_stale_deltas_total",
                                   "worker output of an attempt that had been given up")),
      offset_gaps(metrics.counter("stator_frontend_offset_gaps_total",
                                  "worker output whose offset was not the next one")),
      retried_requests(metrics.counter("stator_frontend_retried_requests_total",
                                       "requests sent to another worker before their first token")),
      drain_handoffs(metrics.counter("stator_frontend_drain_handoffs_total",
                                     "running requests taken over from draining workers")),
      stalls(metrics.counter("stator_frontend_stalls_total",
                             "requests taken from workers that had gone silent")),
      poisoned(metrics.counter("stator_frontend_poisoned_requests_total",
                               "requests given up because workers kept dying under them")),
      quarantined(metrics.counter("stator_frontend_quarantined_requests_total",
                                  "requests refused because an equal one was poisonous")),
      retry_budget_exhausted(
          metrics.counter("stator_frontend_retry_budget_exhausted_total",
                          "moves put off because too many requests move again and again")),
      resumed_streams(metrics.counter("stator_frontend_resumed_streams_total",
                                      "streams that went on here for clients that came back")),
      resume_failures(metrics.counter("stator_frontend_resume_failures_total",
                                      "clients that came back for a stream nobody knows")),
      copies_lost(metrics.counter("stator_frontend_stream_copies_lost_total",
                                  "copies of streams' journals that another frontend lost")),
      copies_renewed(metrics.counter("stator_frontend_stream_copies_renewed_total",
                                     "copies that were made of streams under way")),
      metrics_(metrics),
      prefix_(std::move(prefix)) {}

const RequestSeries& FrontendMetrics::series(std::string_view model, EndpointLabel endpoint,
                                             bool stream) {
  const SeriesKey key(model, endpoint, stream);
  if (const auto known = series_.find(key.view()); known != series_.end()) {
    return *known->second;
  }
  return *series_
              .emplace(std::string(key.view()), std::make_unique<const RequestSeries>(make_series(
                                                    metrics_, prefix_, model, endpoint, stream)))
              .first->second;
}

void FrontendMetrics::finished(std::string_view model, EndpointLabel endpoint, bool stream,
                               std::string_view error_type) {
  const SeriesKey key(model, endpoint, stream, error_type);
  auto entry = ended_.find(key.view());
  if (entry == ended_.end()) {
    entry = ended_.try_emplace(std::string(key.view())).first;
    entry->second = metrics_.counter(prefix_ + "_requests_total", "requests ended",
                                     {{"model", std::string(model)},
                                      {"endpoint", std::string(endpoint.name)},
                                      {"request_type", stream ? "stream" : "unary"},
                                      {"status", error_type.empty() ? "success" : "error"},
                                      {"error_type", std::string(error_type)}});
  }
  entry->second.add();
  if (error_type == "overload") {
    metrics_
        .counter(prefix_ + "_model_rejection_total", "requests refused because of overload",
                 {{"model", std::string(model)}, {"endpoint", std::string(endpoint.name)}})
        .add();
  } else if (error_type == "cancelled") {
    metrics_
        .counter(prefix_ + "_model_cancellation_total", "requests whose client left",
                 {{"model", std::string(model)},
                  {"endpoint", std::string(endpoint.name)},
                  {"request_type", stream ? "stream" : "unary"}})
        .add();
  }
}

void FrontendMetrics::refused(std::string_view model, EndpointLabel endpoint, bool stream,
                              std::string_view error_type) {
  series(model, endpoint, stream).started.add();
  finished(model, endpoint, stream, error_type);
}

const FrontendMetrics::AdapterSeries& FrontendMetrics::adapter(std::string_view name) {
  const auto [entry, fresh] = adapters_.try_emplace(std::string(name));
  if (fresh) {
    const MetricLabels labels = {{"endpoint", "generate"}, {"lora", std::string(name)}};
    entry->second = std::make_unique<const AdapterSeries>(
        AdapterSeries{.arrivals = metrics_.counter(prefix_ + "_lora_raw_arrival_count",
                                                   "requests that came for the adapter", labels),
                      .active = metrics_.gauge(prefix_ + "_lora_active_requests",
                                               "requests for the adapter that run", labels)});
  }
  return *entry->second;
}

void FrontendMetrics::describe_model(const discovery::ModelCard& card, uint32_t migration_limit) {
  const auto show = [&](std::string_view name, const char* help, double value) {
    metrics_.gauge(prefix_ + "_model_" + std::string(name), help, {{"model", card.name}})
        .set(value);
  };
  show("total_kv_blocks", "KV blocks per worker", card.total_kv_blocks);
  show("max_num_seqs", "sequences a worker runs at once", card.max_num_seqs);
  show("max_num_batched_tokens", "tokens a worker computes in one step",
       card.max_num_batched_tokens);
  show("context_length", "tokens, prompt and output", card.context_length);
  show("kv_cache_block_size", "tokens per KV block", card.block_size);
  show("migration_limit", "how often a request may move to another worker", migration_limit);
}

void FrontendMetrics::recovered(std::string_view parser, std::string_view kind, uint32_t count) {
  std::string key(parser);
  key += '\1';
  key += kind;
  const auto [entry, fresh] = recoveries_.try_emplace(std::move(key));
  if (fresh) {
    entry->second = metrics_.counter(
        "stator_frontend_parser_recoveries_total", "malformed output that was survived",
        {{"parser", std::string(parser)}, {"kind", std::string(kind)}});
  }
  entry->second.add(count);
}

void FrontendMetrics::migrated(std::string_view model, MigrationKind kind) {
  std::string key(model);
  key += static_cast<char>(kind);
  const auto [entry, fresh] = migrations_.try_emplace(std::move(key));
  if (fresh) {
    entry->second = metrics_.counter(
        prefix_ + "_model_migration_total", "requests that went on at another worker",
        {{"model", std::string(model)}, {"migration_type", std::string(name_of(kind))}});
  }
  entry->second.add();
}

void FrontendMetrics::migration_ended(std::string_view model, MigrationKind kind,
                                      MigrationOutcome outcome, Duration took) {
  constexpr std::array<std::string_view, 3> kOutcomes = {"success", "failure", "cancelled"};
  std::string key(model);
  key += static_cast<char>(kind);
  key += static_cast<char>(outcome);
  const auto [entry, fresh] = migration_times_.try_emplace(std::move(key));
  if (fresh) {
    entry->second =
        metrics_.histogram(prefix_ + "_model_migration_duration_seconds",
                           "loss of the worker to the next token", kMigrationBounds,
                           {{"model", std::string(model)},
                            {"migration_type", std::string(name_of(kind))},
                            {"outcome", std::string(kOutcomes[static_cast<size_t>(outcome)])}});
  }
  entry->second.observe(std::chrono::duration<double>(took).count());
}

void FrontendMetrics::handoff_ended(std::string_view model, HandoverEnd end, Duration took) {
  std::string key(model);
  key += static_cast<char>(end);
  const auto [entry, fresh] = handoffs_.try_emplace(std::move(key));
  if (fresh) {
    entry->second = metrics_.histogram(
        "stator_frontend_handoff_seconds",
        "prompts handed from prefill to decode workers: asking the first to the outcome",
        kTtftBounds, {{"model", std::string(model)}, {"outcome", std::string(describe(end))}});
  }
  entry->second.observe(std::chrono::duration<double>(took).count());
}

void FrontendMetrics::prompt_moved(Duration took) {
  if (!moves_) {
    moves_ = metrics_.histogram("dynamo_component_router_kv_transfer_estimated_latency_seconds",
                                "from the end of a prompt at its prefill worker to the first token "
                                "of the decode worker",
                                kMoveBounds);
  }
  moves_->observe(std::chrono::duration<double>(took).count());
}

void FrontendMetrics::embedded(std::string_view model, Duration took) {
  const auto [entry, fresh] = embeddings_.try_emplace(std::string(model));
  if (fresh) {
    entry->second = metrics_.histogram(prefix_ + "_embedding_latency_seconds",
                                       "arrival of a pooling request to its answer",
                                       kEmbeddingBounds, {{"model", std::string(model)}});
  }
  entry->second.observe(std::chrono::duration<double>(took).count());
}

void FrontendMetrics::migration_too_long(std::string_view model) {
  metrics_
      .counter(prefix_ + "_model_migration_max_seq_len_exceeded_total",
               "requests not moved because of frontend.migration_max_seq_len",
               {{"model", std::string(model)}})
      .add();
}

std::string_view FrontendMetrics::error_type(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kTooLarge:
    case Code::kUnsupportedMedia:
      return "validation";
    case Code::kNotFound:
      return "not_found";
    case Code::kOverloaded:
    case Code::kRateLimited:
      return "overload";
    case Code::kUnavailable:
    case Code::kDraining:
    case Code::kDisconnected:
      return "unavailable";
    case Code::kCancelled:
      return "cancelled";
    case Code::kDeadline:
      return "response_timeout";
    case Code::kUnsupported:
      return "not_implemented";
    default:
      return "internal";
  }
}

}  // namespace stator::frontend
