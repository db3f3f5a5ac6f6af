// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "stator/core/log.h"
#include "stator/kv_events/engine_events.h"
#include "stator/kv_events/engine_lag.h"
#include "stator/kv_events/event_normalizer.h"
#include "stator/services/zmq_feeds.h"

namespace stator::services {
namespace {

struct FeedCounters {
  explicit FeedCounters(Metrics& metrics)
      : corrupt(metrics.counter("stator_events_engine_corrupt_total",
                                "event batches of engines that cannot be read")),
        lag(metrics) {
    for (size_t reason = 0; reason < kv_events::kDropCount; ++reason) {
      dropped[reason] = metrics.counter(
          "stator_events_engine_dropped_total", "engine events that did not count",
          {{"reason", std::string(drop_name(static_cast<kv_events::Drop>(reason)))}});
    }
  }
  Counter corrupt;
  std::array<Counter, kv_events::kDropCount> dropped;
  kv_events::EngineLag lag;
};

/// One publisher: its batches in our hashes, those of its own rank only.
class ZmqFeed final : public EventFeed, public kv_events::EngineBatchListener {
 public:
  ZmqFeed(const FeedSpec& spec, EventFeeds::Deliver deliver, const FeedCounters& counters,
          const Clock& clock)
      : worker_(spec.worker),
        deliver_(std::move(deliver)),
        counters_(counters),
        clock_(clock),
        normalizer_({.block_size = spec.block_size, .dp_ranks = spec.worker.dp_rank + 1}) {}
  ~ZmqFeed() override { subscription_.reset(); }  // before what it calls

  Status start(kv_events::ZmqSources& sources, const FeedSpec& spec) {
    STATOR_TRY(subscription_,
               sources.subscribe(
                   {.endpoint = spec.endpoint, .replay_endpoint = spec.replay_endpoint}, *this));
    return {};
  }

  std::string_view status() const override {
    return heard_.load(std::memory_order_relaxed) ? "active" : "pending";
  }

  void on_batch(uint32_t rank, std::string_view payload) override {
    heard_.store(true, std::memory_order_relaxed);
    const auto batch = kv_events::decode_engine_events(payload);
    if (!batch) {
      counters_.corrupt.add();
      log::warn("services", batch.error().message(), {{"worker", worker_.worker.value()}});
      on_reset(rank);
      return;
    }
    pass_on(normalizer_.normalize(worker_.dp_rank, *batch));
    counters_.lag.observe(*batch, clock_.wall_now());
  }

  void on_reset(uint32_t) override { pass_on(normalizer_.reset(worker_.dp_rank)); }

 private:
  void pass_on(std::vector<kv::KvEvent> events) {
    std::erase_if(events, [this](const auto& each) { return each.dp_rank != worker_.dp_rank; });
    if (!events.empty()) {
      deliver_(std::move(events));
    }
    const auto& drops = normalizer_.stats().drops;
    for (size_t reason = 0; reason < drops.size(); ++reason) {
      counters_.dropped[reason].add(drops[reason] - counted_[reason]);
    }
    counted_ = drops;
  }

  const WorkerKey worker_;
  const EventFeeds::Deliver deliver_;
  const FeedCounters counters_;
  const Clock& clock_;
  kv_events::EventNormalizer normalizer_;
  std::array<uint64_t, kv_events::kDropCount> counted_{};
  std::atomic<bool> heard_{false};
  std::unique_ptr<kv_events::ZmqSources::Subscription> subscription_;
};

class ZmqFeeds final : public EventFeeds {
 public:
  ZmqFeeds(kv_events::ZmqSources& sources, const Clock& clock, Metrics& metrics)
      : sources_(sources), clock_(clock), counters_(metrics) {}
  Result<std::unique_ptr<EventFeed>> open(const FeedSpec& spec, Deliver deliver) override {
    auto feed = std::make_unique<ZmqFeed>(spec, std::move(deliver), counters_, clock_);
    STATOR_CHECK(feed->start(sources_, spec));
    return std::unique_ptr<EventFeed>(std::move(feed));
  }

 private:
  kv_events::ZmqSources& sources_;
  const Clock& clock_;
  const FeedCounters counters_;
};

}  // namespace

std::unique_ptr<EventFeeds> make_zmq_feeds(kv_events::ZmqSources& sources, const Clock& clock,
                                           Metrics& metrics) {
  return std::make_unique<ZmqFeeds>(sources, clock, metrics);
}

}  // namespace stator::services
