// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/random.h"
#include "stator/core/result.h"
#include "stator/net/byte_budget.h"
#include "stator/net/http_request.h"
#include "stator/telemetry/line_file.h"
#include "stator/telemetry/request_facts.h"
#include "stator/telemetry/running_requests.h"
#include "stator/telemetry/span_exporter.h"
#include "stator/telemetry/telemetry_config.h"

namespace stator::telemetry {

/// Where what is known of requests goes when they end: log lines, request traces, spans, and a list
/// that operators look at. Thread-safe; takes a microsecond or two per request.
class Telemetry {
 public:
  /// Errors name the setting. `keeps_recent`: operators have a listener to look from.
  static Result<std::unique_ptr<Telemetry>> start(const TelemetryConfig& config, bool keeps_recent,
                                                  Clock& clock, Metrics& metrics);
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  /// Whether anything is to be told of requests.
  static bool wanted(const TelemetryConfig& config, bool keeps_recent);
  Clock& clock() const { return clock_; }
  bool wants_blocks() const { return request_trace_ != nullptr; }
  bool wants_spans() const { return exporter_ != nullptr; }
  bool audits() const { return audit_ != nullptr; }
  bool audits_content() const { return audit_ != nullptr && config_.log.audit_content != "none"; }
  /// Bounds what is kept of answers until they end; null: the audit log has none.
  net::ByteBudget* answers_budget() const { return answers_.get(); }

  /// What of a request is known when it comes: times, ids and where its trace belongs.
  void begin(RequestFacts& facts, const net::HttpRequest& request, TimePoint now);
  /// A request that is about to be run; null: nobody looks, or too many run.
  RunningRequests::Place list_running(const RequestFacts& facts);
  /// A request that has an answer, or none any more.
  void end(RequestFacts facts);
  /// A line of the audit log; `members` is JSON, "\"a\":1,\"b\":2".
  void audit(std::string_view event, std::string_view members);

  /// Which requests operators ask for.
  enum class Shown : uint8_t { kAll, kRunning, kEnded };
  /// As a JSON array: running ones, oldest first, then ended ones, newest first; at most
  /// `count_max` of each.
  std::string render_requests(size_t count_max, std::string_view request_id = {},
                              Shown shown = Shown::kAll) const;

 private:
  Telemetry(const TelemetryConfig& config, bool keeps_recent, Clock& clock);

  const TelemetryConfig config_;
  const bool keeps_recent_;
  Clock& clock_;
  std::unique_ptr<LineFile> access_;          // null: no such file
  std::unique_ptr<LineFile> request_trace_;   // the same
  std::unique_ptr<LineFile> audit_;           // the same
  std::unique_ptr<SpanExporter> exporter_;    // null: no spans
  std::unique_ptr<net::ByteBudget> answers_;  // null: the audit log has none
  RunningRequests running_;
  mutable Mutex mutex_;
  Random random_ STATOR_GUARDED_BY(mutex_);
  std::deque<RequestFacts> recent_ STATOR_GUARDED_BY(mutex_);  // at most recent_max
};

/// The body of a request for the audit log: without media that is in it (data: URLs), and with the
/// values of members masked whose names say that they are secret. Text that is no JSON becomes its
/// length.
std::string redact_body(std::string_view body);

}  // namespace stator::telemetry
