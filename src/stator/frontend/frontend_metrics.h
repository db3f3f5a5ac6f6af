// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/core/error_code.h"
#include "stator/core/flat_map.h"
#include "stator/core/metrics.h"
#include "stator/discovery/instance_record.h"
#include "stator/request/handover.h"
#include "stator/request/outcomes.h"

namespace stator::frontend {

/// Which endpoint a request came to, as a metric label.
enum class Endpoint : uint8_t { kChat, kCompletions };

/// The label itself; protocols of other modules bring their own (protocols/protocol.h).
struct EndpointLabel {
  std::string_view name;             ///< static text
  EndpointLabel(Endpoint endpoint);  // NOLINT(google-explicit-constructor): is a spelling of it
  explicit EndpointLabel(std::string_view label) : name(label) {}
};

using request::HandoverEnd;
using request::MigrationOutcome;

/// What was moved: a request without, or with, tokens.
enum class MigrationKind : uint8_t { kNewRequest, kOngoingRequest };

/// The series of one (model, endpoint, stream or unary).
struct RequestSeries {
  Counter started;
  Counter output_tokens;
  Gauge inflight;
  Gauge active;  ///< the same, under its newer name
  Gauge queued;  ///< before their first token
  Histogram duration;
  Histogram time_to_first_token;
  Histogram inter_token_latency;
  Histogram input_tokens;
  Histogram output_sequence;
  Histogram cached_tokens;
  Counter reasoning_tokens;
  Counter tool_calls;
  Counter expected_cached_tokens;  ///< by the router, of prompts that one worker computed
  Counter found_cached_tokens;     ///< the same prompts, by their worker
};

/// The metrics existing dashboards and the planner read, under their names
/// (`<prefix>_requests_total` and so on). One per shard: the cache of series is not thread-safe,
/// the series are.
class FrontendMetrics {
 public:
  FrontendMetrics(Metrics& metrics, std::string prefix);

  /// Valid as long as this is: a request looks its series up once.
  const RequestSeries& series(std::string_view model, EndpointLabel endpoint, bool stream);
  /// Counts the end of a request. `error_type` empty = success.
  void finished(std::string_view model, EndpointLabel endpoint, bool stream,
                std::string_view error_type);
  /// Counts a request that was refused before it became one that runs: it came, and it ended.
  void refused(std::string_view model, EndpointLabel endpoint, bool stream,
               std::string_view error_type);
  /// Of a LoRA adapter: requests that came, and those that run.
  struct AdapterSeries {
    Counter arrivals;
    Gauge active;
  };
  const AdapterSeries& adapter(std::string_view name);
  /// What the model's workers say of it, when one of them joins.
  void describe_model(const discovery::ModelCard& card, uint32_t migration_limit);
  /// Counts what `parser` survived.
  void recovered(std::string_view parser, std::string_view kind, uint32_t count);
  /// Counts a choice that is sent to another worker.
  void migrated(std::string_view model, MigrationKind kind);
  /// From the loss of a worker to the next token, or to the end without one.
  void migration_ended(std::string_view model, MigrationKind kind, MigrationOutcome outcome,
                       Duration took);
  /// Counts the end of a prompt's way from a prefill to a decode worker, from the moment the first
  /// was asked.
  void handoff_ended(std::string_view model, HandoverEnd end, Duration took);
  /// From the end of the prompt at the prefill worker to the decode worker's first token.
  void prompt_moved(Duration took);
  /// A pooling request was answered, so long after its arrival.
  void embedded(std::string_view model, Duration took);
  /// A request too long to be moved lost its worker.
  void migration_too_long(std::string_view model);
  /// The label value dashboards expect for an error.
  static std::string_view error_type(Code code);

  Counter disconnected_clients;
  Counter stale_deltas;
  Counter offset_gaps;
  Counter retried_requests;
  Counter drain_handoffs;
  Counter stalls;
  Counter poisoned;
  Counter quarantined;
  Counter retry_budget_exhausted;
  Counter resumed_streams;
  Counter resume_failures;
  Counter copies_lost;
  Counter copies_renewed;

 private:
  Metrics& metrics_;
  std::string prefix_;
  // Models × endpoints × stream or not (× error types): bounded by the served models.
  FlatMap<std::string, std::unique_ptr<const RequestSeries>> series_;
  FlatMap<std::string, Counter> ended_;
  FlatMap<std::string, Counter> recoveries_;         // families × kinds
  FlatMap<std::string, Counter> migrations_;         // models × kinds
  FlatMap<std::string, Histogram> migration_times_;  // models × kinds × outcomes
  FlatMap<std::string, Histogram> handoffs_;         // models × ends
  FlatMap<std::string, Histogram> embeddings_;       // models
  FlatMap<std::string, std::unique_ptr<const AdapterSeries>> adapters_;  // adapters workers had
  std::optional<Histogram> moves_;  // none before the first prompt moved
};

}  // namespace stator::frontend
