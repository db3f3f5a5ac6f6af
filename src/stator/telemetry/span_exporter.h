// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/net/http_client.h"
#include "stator/net/thread.h"
#include "stator/telemetry/otlp.h"
#include "stator/telemetry/span.h"
#include "stator/telemetry/telemetry_config.h"

namespace stator::telemetry {

/// Sends spans to an OpenTelemetry collector, in batches, from a thread of its own, over one
/// connection. What waits is already encoded: whoever adds spans writes their bytes, which costs
/// less than to keep the spans.
///
/// X1  Nobody waits for it: beyond `spans_max` spans are dropped and counted.
/// X2  A collector that is away costs spans, nothing else: a batch is tried again twice while it
///     says 429, 502, 503 or 504, or cannot be reached, and then dropped.
class SpanExporter {
 public:
  /// kInvalidArgument for an endpoint that is no http:// or https:// URL, and for headers that are
  /// none.
  static Result<std::unique_ptr<SpanExporter>> start(const TraceConfig& config, Clock& clock,
                                                     Metrics& metrics);
  /// Sends what is there, for at most two seconds.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  /// Any thread. A list is sent as a whole or dropped as a whole.
  void add(const SpanList& spans);

 private:
  enum class Protocol : uint8_t { kBytes, kJson, kGrpc };
  struct Target {
    std::string url;
    Protocol protocol = Protocol::kBytes;
  };
  /// Spans as the encoding writes them, at most kBatchMax.
  struct Batch {
    std::string bytes;
    size_t spans = 0;
  };
  static Result<Target> target_of(const TraceConfig& config);
  SpanExporter(const TraceConfig& config, Target target, Clock& clock, Metrics& metrics);
  void loop();
  void send(const Batch& batch);
  Status try_send(const std::string& message, bool& again);
  bool wait(Duration time);

  const TraceConfig config_;
  const Target target_;
  const net::HttpHeaderList headers_;
  const std::unique_ptr<const OtlpEncoding> encoding_;
  net::HttpClient client_;  // the thread's
  Clock& clock_;
  Counter sent_;
  Counter dropped_full_;
  Counter dropped_unsent_;
  TimePoint complained_{};
  Mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Batch> waiting_ STATOR_GUARDED_BY(mutex_);  // all but the last are full
  std::atomic<size_t> waiting_spans_ = 0;                // changed under the mutex, read without
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  net::Thread thread_;
};

}  // namespace stator::telemetry
