// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/mutex.h"
#include "stator/engine/adapters/adapter_metrics.h"
#include "stator/engine/adapters/adapter_service.h"
#include "stator/engine/adapters/engine_watch.h"
#include "stator/engine/adapters/silence.h"
#include "stator/kv/event_log.h"
#include "stator/net/http_streams.h"

namespace stator::engine::adapters {

/// Content type and credentials of every request to the server.
net::HttpHeaderList headers_of(const AdapterConfig& config);

/// What an adapter has to do with its server beside requests: looking after its health, load and
/// adapters, and carrying out what operators want.
///
/// U1  Wishes in the inbox plus asks_ = open_ ≤ kControlsMax; each `done` is called exactly once.
/// U2  asks_, watch_ and the poll belong to the adapter's thread, as do all methods below "the
///     adapter's thread"; the rest may be called from any.
///
/// Its arguments outlive it.
class Upkeep {
 public:
  /// Streams it has at once: its wishes, the poll and the ping.
  static constexpr size_t kStreamsMax = 18;

  struct Parts {
    const AdapterConfig& config;
    const EngineFacts& facts;
    const Dialect& dialect;
    Clock& clock;
    AdapterMetrics& metrics;
    kv::EventLog& events;
  };
  explicit Upkeep(const Parts& parts);

  bool healthy() const { return healthy_; }
  bool asleep() const { return asleep_; }
  std::vector<std::string> adapters() const;
  bool has_adapter(std::string_view name) const;
  /// With `inflight` requests of ours in the server.
  LoadReport load(size_t inflight) const;
  /// AdapterEngine::owes_prompts()
  bool owes_prompts() const;
  using Done = AdapterEngine::ControlDone;
  /// False: refused, and `done` was told. Else the adapter's thread has something to do.
  bool control(Control control, Done done);

  // ---- the adapter's thread

  /// Begins what is due. When it wants to be called again at the latest.
  TimePoint turn(net::HttpStreams& streams);
  /// Bytes came, on whatever stream.
  void heard() { silence_.heard(); }
  /// After each turn of the streams, with the time at which it began: true when the server stands
  /// still, once. It counts as unhealthy from then on.
  bool stands_still(TimePoint turn_begin, net::HttpStreams& streams);
  /// Is it the server, or only a connection that broke?
  void look_now() { next_poll_ = {}; }
  /// A prompt is kept for its taker, at most for `lease`.
  void gave_prompt(Duration lease);
  // False: not a stream of ours.
  bool on_head(net::HttpStreamId stream, int status);
  bool on_bytes(net::HttpStreamId stream, std::string_view bytes);
  bool on_end(net::HttpStreamId stream, Status& reached, net::HttpStreams& streams,
              size_t inflight);
  /// Nothing is taken any more, and what was is refused.
  void stop(net::HttpStreams& streams);

 private:
  /// An operator's wish, and what the server has said to it so far.
  struct Ask {
    Control control;
    EngineCall call;
    Done done;
    int status = 0;
    std::string body{};
  };
  void start_poll(net::HttpStreams& streams);
  void end_poll(net::HttpStreams& streams);
  void end_ping(net::HttpStreams& streams);
  TimePoint ping_if_due(net::HttpStreams& streams, TimePoint now);
  void finish_poll(const Status& reached, size_t inflight);
  void start(Ask ask, net::HttpStreams& streams);
  void finish(std::unique_ptr<Ask> ask, Status reached, net::HttpStreams& streams);
  void note(const Control& control);
  void set_healthy(bool healthy, std::string_view why);
  void set_asleep(bool asleep);
  void publish(const LoadReport& load, size_t inflight);

  const Parts parts_;
  std::atomic<bool> healthy_{true};
  std::atomic<bool> asleep_{false};

  EngineWatch watch_;
  net::HttpStreamId poll_stream_ = 0;  // 0 = no poll under way
  net::HttpStreamId ping_stream_ = 0;  // 0 = no ping under way
  TimePoint ping_begin_{};
  Silence silence_;
  std::string poll_body_;
  int poll_status_ = 0;
  TimePoint next_poll_{};
  TimePoint poll_begin_{};
  TimePoint last_gift_{};
  FlatMap<net::HttpStreamId, std::unique_ptr<Ask>> asks_;
  std::vector<Ask> begun_;  // scratch

  mutable Mutex mutex_;
  std::vector<Ask> inbox_ STATOR_GUARDED_BY(mutex_);
  size_t open_ STATOR_GUARDED_BY(mutex_) = 0;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  std::vector<std::string> adapters_ STATOR_GUARDED_BY(mutex_);  // sorted
  TimePoint owed_until_ STATOR_GUARDED_BY(mutex_){};
  LoadReport load_ STATOR_GUARDED_BY(mutex_);
  uint32_t foreign_ STATOR_GUARDED_BY(mutex_) = 0;  // requests of others, at the last scrape
};

}  // namespace stator::engine::adapters
