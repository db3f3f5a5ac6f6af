// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/net/http_client.h"
#include "stator/net/thread.h"
#include "stator/telemetry/span.h"
#include "stator/telemetry/telemetry_config.h"

namespace stator::telemetry {

/// Sends spans to an OpenTelemetry collector, in batches, from a thread of its own.
///
/// X1  Nobody waits for it: beyond `spans_max` spans are dropped and counted.
/// X2  A collector that is away costs spans, nothing else: a batch is tried again twice while it
///     says 429, 502, 503 or 504, or cannot be reached, and then dropped.
class SpanExporter {
 public:
  /// kInvalidArgument for an endpoint that is no http:// or https:// URL.
  static Result<std::unique_ptr<SpanExporter>> start(const TraceConfig& config, Clock& clock,
                                                     Metrics& metrics);
  /// Sends what is there, for at most two seconds.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  /// Any thread.
  void add(std::vector<Span> spans);

 private:
  enum class Protocol : uint8_t { kHttp, kGrpc };
  SpanExporter(const TraceConfig& config, std::string url, Protocol protocol, Clock& clock,
               Metrics& metrics);
  void loop();
  void send(const std::vector<Span>& batch);
  Status try_send(const std::string& message, bool& again) const;
  bool wait(Duration time);

  const TraceConfig config_;
  const std::string url_;
  const Protocol protocol_;
  Clock& clock_;
  Counter sent_;
  Counter dropped_full_;
  Counter dropped_unsent_;
  TimePoint complained_{};
  Mutex mutex_;
  std::condition_variable_any wake_;
  std::vector<Span> waiting_ STATOR_GUARDED_BY(mutex_);
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  net::Thread thread_;
};

}  // namespace stator::telemetry
