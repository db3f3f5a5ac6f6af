// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/engine_event_feed.h"

#include <algorithm>
#include <string>
#include <utility>

#include "stator/core/log.h"
#include "stator/kv_events/engine_events.h"

namespace stator::kv_events {

EngineEventFeed::EngineEventFeed(const NormalizerConfig& config, kv::EventLog& log,
                                 const Clock& clock, Metrics& metrics)
    : normalizer_(config),
      log_(log),
      clock_(clock),
      corrupt_(metrics.counter("stator_events_engine_corrupt_total",
                               "event batches of engines that cannot be read")),
      lag_(metrics),
      lower_tier_(metrics.counter("stator_events_engine_lower_tier_total",
                                  "events of engines about blocks that are not on the device")),
      held_blocks_(
          metrics.gauge("stator_events_engine_blocks", "blocks that engines hold by their events")),
      mismatched_block_size_(
          metrics.gauge("stator_events_engine_block_size_mismatch",
                        "block size of an engine that does not fit ours, 0: none; set "
                        "engine.block_size to a divisor of it")) {
  for (size_t reason = 0; reason < kDropCount; ++reason) {
    dropped_[reason] =
        metrics.counter("stator_events_engine_dropped_total", "engine events that did not count",
                        {{"reason", std::string(drop_name(static_cast<Drop>(reason)))}});
  }
}

void EngineEventFeed::on_batch(uint32_t rank, std::string_view payload) {
  const auto batch = decode_engine_events(payload);
  if (!batch.has_value()) {
    corrupt_.add();
    log::warn("events", batch.error().message(), {{"rank", rank}});
    on_reset(rank);
    return;
  }
  append(normalizer_.normalize(rank, *batch));
  lag_.observe(*batch, clock_.wall_now());
  count();
}

void EngineEventFeed::on_reset(uint32_t rank) {
  append(normalizer_.reset(rank));
  count();
}

void EngineEventFeed::append(std::vector<kv::KvEvent> events) {
  lower_tier_.add(static_cast<uint64_t>(std::ranges::count_if(
      events, [](const auto& event) { return event.tier != kv::StorageTier::kDevice; })));
  log_.append(std::move(events));
}

void EngineEventFeed::count() {
  const EventNormalizer::Stats& stats = normalizer_.stats();
  for (size_t reason = 0; reason < kDropCount; ++reason) {
    dropped_[reason].add(stats.drops[reason] - counted_.drops[reason]);
  }
  held_blocks_.add(static_cast<double>(stats.held_blocks) -
                   static_cast<double>(counted_.held_blocks));
  counted_ = stats;
  if (normalizer_.mismatched_block_size() != 0) {
    mismatched_block_size_.set(normalizer_.mismatched_block_size());
  }
}

}  // namespace stator::kv_events
