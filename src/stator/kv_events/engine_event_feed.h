// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/kv/event_log.h"
#include "stator/kv_events/engine_lag.h"
#include "stator/kv_events/event_normalizer.h"
#include "stator/kv_events/zmq_sources.h"

namespace stator::kv_events {

/// Writes what one engine publishes, all ranks and tiers of it, into our event log, from where it
/// is streamed to routers like the events of our own engines.
///
///   kv::EventLog log;
///   EngineEventFeed feed({.block_size = 16, .dp_ranks = 2}, log, clock, metrics);
///   auto subscription = sources->subscribe({.endpoint = "tcp://127.0.0.1:5557"}, feed);
///
/// Its log outlives it; others may write there that all is cleared. One thread at a time.
class EngineEventFeed final : public EngineBatchListener {
 public:
  EngineEventFeed(const NormalizerConfig& config, kv::EventLog& log, const Clock& clock,
                  Metrics& metrics);

  /// A batch that cannot be read voids the rank: nobody knows what it would have removed.
  void on_batch(uint32_t rank, std::string_view payload) override;
  void on_reset(uint32_t rank) override;

  const EventNormalizer& normalizer() const { return normalizer_; }

 private:
  void append(std::vector<kv::KvEvent> events);
  void count();

  EventNormalizer normalizer_;
  kv::EventLog& log_;
  const Clock& clock_;
  EventNormalizer::Stats counted_;
  std::array<Counter, kDropCount> dropped_;
  Counter corrupt_;
  EngineLag lag_;
  Counter lower_tier_;
  Gauge held_blocks_;
  Gauge mismatched_block_size_;
};

}  // namespace stator::kv_events
