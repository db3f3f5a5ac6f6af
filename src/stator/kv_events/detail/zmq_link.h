// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/kv_events/detail/replay_cursor.h"
#include "stator/kv_events/zmq_sources.h"

#include <zmq.hpp>

namespace stator::kv_events::detail {

/// What all links of a process count into.
struct ZmqMetrics {
  explicit ZmqMetrics(Metrics& metrics);
  Counter messages;
  Counter malformed;
  Counter gaps;
  Counter replays;
  Counter restarts;
  Counter resets;
  Counter replay_failures;
  Gauge waiting;  ///< messages held back until a replay ends
};

/// The sockets to one rank's publisher. On the thread of its ZmqSources, except that it may be made
/// elsewhere; may throw zmq::error_t.
class ZmqLink {
 public:
  ZmqLink(zmq::context_t& context, const ZmqSourceConfig& config, uint32_t rank,
          EngineBatchListener& listener, ZmqMetrics& metrics);
  ZmqLink(const ZmqLink&) = delete;
  ZmqLink& operator=(const ZmqLink&) = delete;
  ~ZmqLink();

  /// Subscribes at this rank's endpoints.
  void open(const std::string& endpoint, const std::string& replay_endpoint);

  /// Appends what to wait for; `on_ready` takes the same number of items.
  void add_poll_items(std::vector<zmq::pollitem_t>& items);
  void on_ready(TimePoint now);
  std::optional<TimePoint> deadline() const { return deadline_; }  ///< when to call on_time
  void on_time(TimePoint now);

 private:
  static constexpr int kMessagesPerTurn = 256;

  void read_monitor(TimePoint now);
  void read_live(TimePoint now);
  void read_replay(TimePoint now);
  void apply(ReplayCursor::Steps steps, TimePoint now);
  void send_replay_request(TimePoint now);
  void end_replay();
  void count();

  zmq::context_t& context_;
  const ZmqSourceConfig config_;
  const uint32_t rank_;
  EngineBatchListener& listener_;
  ZmqMetrics& metrics_;
  ReplayCursor cursor_;
  ReplayCursor::Stats counted_;
  size_t waiting_counted_ = 0;
  zmq::socket_t live_;
  zmq::socket_t monitor_;
  zmq::socket_t replay_;  // open while a replay runs
  std::string replay_endpoint_;
  uint64_t replay_from_ = 0;
  uint32_t attempt_ = 0;
  std::optional<TimePoint> deadline_;  // of the replay's next message; else of the quiet check
};

}  // namespace stator::kv_events::detail
