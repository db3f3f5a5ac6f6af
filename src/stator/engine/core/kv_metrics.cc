// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/kv_metrics.h"

#include <string>

namespace stator::engine {

KvMetrics::KvMetrics(Metrics& metrics, std::string_view engine_name, size_t block_bytes)
    : block_bytes_(block_bytes) {
  const std::string instance(engine_name);
  const auto of = [&](std::string_view tier) -> MetricLabels {
    return {{"tier", std::string(tier)}, {"instance", instance}};
  };
  const auto counter = [&](std::string_view name, std::string_view help, std::string_view tier) {
    return Follower{.counter = metrics.counter(name, help, of(tier))};
  };
  for (const auto& [tier, name] : {std::pair(&device_, "device"), std::pair(&host_, "host")}) {
    tier->blocks = metrics.gauge("stator_kv_tier_blocks", "KV blocks in the tier", of(name));
    tier->blocks_max =
        metrics.gauge("stator_kv_tier_blocks_max", "KV blocks that fit into the tier", of(name));
    tier->bytes = metrics.gauge("stator_kv_tier_bytes", "bytes of the tier's blocks", of(name));
    tier->hit_ratio =
        metrics.gauge("stator_kv_hit_ratio",
                      "share of prompt tokens found there, of the last 1000 requests", of(name));
    tier->matched_tokens =
        counter("stator_kv_matched_tokens_total", "prompt tokens found in the tier", name);
  }
  free_ = metrics.gauge("stator_kv_reset_pool", "blocks that hold nothing", of("device"));
  inactive_ =
      metrics.gauge("stator_kv_inactive_pool", "idle blocks that can be reused", of("device"));
  used_ = metrics.gauge("stator_kv_inflight_immutable", "blocks held by requests", of("device"));
  allocations_ = counter("stator_kv_allocations_total", "blocks handed out", "device");
  from_free_ = counter("stator_kv_allocations_from_reset_total",
                       "of those, blocks that held nothing", "device");
  evictions_ =
      counter("stator_kv_evictions_total", "blocks evicted from the tier for others", "device");
  host_evictions_ =
      counter("stator_kv_evictions_total", "blocks evicted from the tier for others", "host");
  registrations_ =
      counter("stator_kv_registrations_total", "blocks that became findable", "device");
  duplicates_ = counter("stator_kv_dedup_total", "blocks given up for an equal one", "device");
  asked_ =
      counter("stator_kv_match_hashes_requested_total", "blocks of prompts looked up", "device");
  returned_ = counter("stator_kv_match_blocks_returned_total", "of those, blocks found", "device");
  offloaded_ = {.counter = metrics.counter("stator_kv_offload_blocks_total",
                                           "KV blocks written to a lower tier",
                                           {{"tier", "host"}, {"result", "ok"}})};
  onboarded_ = {.counter = metrics.counter("stator_kv_onboard_blocks_total",
                                           "KV blocks loaded from a lower tier",
                                           {{"tier", "host"}, {"result", "ok"}})};
  kvbm_offloaded_ = {.counter = metrics.counter("kvbm_offload_blocks_d2h",
                                                "blocks copied from device to host memory")};
  kvbm_onboarded_ = {.counter = metrics.counter("kvbm_onboard_blocks_h2d",
                                                "blocks copied from host memory to the device")};
  kvbm_matched_ = {.counter =
                       metrics.counter("kvbm_matched_tokens", "prompt tokens found in any tier")};
  kvbm_host_ratio_ = metrics.gauge("kvbm_host_cache_hit_rate",
                                   "share of prompt tokens found in host memory lately");
}

void KvMetrics::update(const Scheduler& scheduler) {
  const kv::BlockPool& pool = scheduler.pool();
  const kv::HostTier& host = scheduler.host_tier();
  const kv::BlockPool::Counts& counts = pool.counts();
  const uint32_t in_device = pool.used_blocks() + pool.cached_blocks();
  device_.blocks.set(in_device);
  device_.blocks_max.set(pool.total_blocks());
  device_.bytes.set(static_cast<double>(in_device * block_bytes_));
  host_.blocks.set(host.stored_blocks());
  host_.blocks_max.set(host.total_blocks());
  host_.bytes.set(static_cast<double>(host.stored_blocks() * block_bytes_));
  free_.set(pool.available_blocks() - pool.cached_blocks());
  inactive_.set(pool.cached_blocks());
  used_.set(pool.used_blocks());
  allocations_.follow(counts.allocations);
  from_free_.follow(counts.allocations - counts.evictions);
  evictions_.follow(counts.evictions);
  host_evictions_.follow(host.dropped_total());
  registrations_.follow(counts.registrations);
  duplicates_.follow(counts.duplicates);
  asked_.follow(counts.matches_asked);
  returned_.follow(counts.matches_found);
  offloaded_.follow(host.stored_total());
  onboarded_.follow(host.loaded_total());
  kvbm_offloaded_.follow(host.stored_total());
  kvbm_onboarded_.follow(host.loaded_total());
  const SchedulerTotals& totals = scheduler.totals();
  device_.matched_tokens.follow(totals.prefix_hit_tokens - totals.host_hit_tokens);
  host_.matched_tokens.follow(totals.host_hit_tokens);
  kvbm_matched_.follow(totals.prefix_hit_tokens);
  update_ratios(totals);
}

void KvMetrics::update_ratios(const SchedulerTotals& totals) {
  if (!marks_.empty() && marks_.back().requests == totals.admitted_requests) {
    return;
  }
  marks_.push_back({.requests = totals.admitted_requests,
                    .asked = totals.prefix_query_tokens,
                    .device = totals.prefix_hit_tokens - totals.host_hit_tokens,
                    .host = totals.host_hit_tokens});
  while (marks_.size() > 1 && marks_.back().requests - marks_.front().requests > kWindowRequests) {
    marks_.pop_front();
  }
  const Mark& now = marks_.back();
  const Mark then = marks_.size() == 1 ? Mark() : marks_.front();
  if (now.asked == then.asked) {
    return;
  }
  const auto asked = static_cast<double>(now.asked - then.asked);
  const double host = static_cast<double>(now.host - then.host) / asked;
  device_.hit_ratio.set(static_cast<double>(now.device - then.device) / asked);
  host_.hit_ratio.set(host);
  kvbm_host_ratio_.set(host);
}

}  // namespace stator::engine
