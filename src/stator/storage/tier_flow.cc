// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/tier_flow.h"

#include <string>

namespace stator::storage {
namespace {

constexpr double kSeconds[] = {1e-4, 3e-4, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3};

Counter blocks(Metrics& metrics, bool down, std::string_view tier, std::string_view result) {
  return metrics.counter(
      down ? "stator_kv_offload_blocks_total" : "stator_kv_onboard_blocks_total",
      down ? "KV blocks written to a lower tier" : "KV blocks loaded from a lower tier",
      {{"tier", std::string(tier)}, {"result", std::string(result)}});
}

Histogram stage(Metrics& metrics, std::string_view tier, std::string_view name) {
  return metrics.histogram("stator_kv_offload_stage_seconds",
                           "time of a block on its way down, by stage: waiting, or being written",
                           kSeconds, {{"lane", std::string(tier)}, {"stage", std::string(name)}});
}

}  // namespace

TierFlow::TierFlow(Metrics& metrics, std::string_view tier, SaveSource source) {
  const MetricLabels labels = {{"tier", std::string(tier)}};
  const bool disk = tier == "disk";
  loaded_ = blocks(metrics, false, tier, "ok");
  saved_ = blocks(metrics, true, tier, "ok");
  failed_ = blocks(metrics, true, tier, "failed");
  refused_ = blocks(metrics, true, tier, "refused");
  loaded_bytes_ = metrics.counter("stator_kv_onboard_bytes_total",
                                  "bytes of KV blocks loaded from a lower tier", labels);
  saved_bytes_ = metrics.counter("stator_kv_offload_bytes_total",
                                 "bytes of KV blocks written to a lower tier", labels);
  integrity_ =
      metrics.counter("stator_kv_integrity_errors_total",
                      "blocks whose checksum was wrong: dropped, and computed again", labels);
  io_errors_ =
      metrics.counter("stator_kv_load_errors_total", "blocks that could not be loaded, by cause",
                      {{"tier", std::string(tier)}, {"cause", "io"}});
  enabled_ = metrics.gauge("stator_kv_tier_enabled",
                           "1: the tier takes blocks; 0: an error switched it off", labels);
  path_ = metrics.gauge("stator_kv_xfer_path_available",
                        "1: blocks can be moved between host memory and the tier",
                        {{"path", "host_" + std::string(tier)}});
  read_seconds_ = metrics.histogram("stator_kv_xfer_seconds", "time of a read of blocks, by path",
                                    kSeconds, {{"path", std::string(tier) + "_host"}});
  queue_seconds_ = stage(metrics, tier, "queue");
  write_seconds_ = stage(metrics, tier, "write");
  if (disk) {
    // A block from disk lands in host memory on its way to the device.
    kvbm_loaded_.push_back(
        metrics.counter("kvbm_onboard_blocks_d2h", "blocks loaded from disk into host memory"));
    kvbm_loaded_.push_back(metrics.counter("kvbm_onboard_blocks_d2d", "blocks loaded from disk"));
    // Both series are there for those who ask; only one moves.
    Counter of_device =
        metrics.counter("kvbm_offload_blocks_d2d", "blocks written from the device to disk");
    Counter of_host =
        metrics.counter("kvbm_offload_blocks_h2d", "blocks written from host memory to disk");
    kvbm_saved_ = source == SaveSource::kHost ? of_host : of_device;
  } else {
    kvbm_loaded_.push_back(metrics.counter("kvbm_onboard_blocks_o2d", "blocks loaded from stores"));
    kvbm_saved_ = metrics.counter("kvbm_offload_blocks_d2o", "blocks written to stores");
    read_failures_ =
        metrics.counter("kvbm_object_read_failures", "blocks that stores did not give");
    write_failures_ =
        metrics.counter("kvbm_object_write_failures", "blocks that stores did not take");
  }
}

void TierFlow::loaded(uint64_t bytes) {
  loaded_.add();
  loaded_bytes_.add(bytes);
  for (Counter& counter : kvbm_loaded_) {
    counter.add();
  }
}

void TierFlow::read_took(Duration took) {
  read_seconds_.observe(std::chrono::duration<double>(took).count());
}

void TierFlow::saved(uint64_t bytes, Duration waited, Duration took) {
  saved_.add();
  saved_bytes_.add(bytes);
  kvbm_saved_.add();
  queue_seconds_.observe(std::chrono::duration<double>(waited).count());
  write_seconds_.observe(std::chrono::duration<double>(took).count());
}

void TierFlow::failed() {
  failed_.add();
  write_failures_.add();
}

void TierFlow::set_enabled(bool enabled) {
  enabled_.set(enabled ? 1 : 0);
  path_.set(enabled ? 1 : 0);
}

HitWindow::HitWindow(Metrics& metrics, const std::vector<std::string_view>& tiers) {
  for (const std::string_view tier : tiers) {
    ratios_.push_back(metrics.gauge("stator_kv_hit_ratio",
                                    "share of prompt tokens found there, of the last 1000 requests",
                                    {{"tier", std::string(tier)}}));
    is_disk_.push_back(tier == "disk");
  }
  kvbm_disk_ = metrics.gauge("kvbm_disk_cache_hit_rate",
                             "share of the prompts' blocks looked up lately that the disk gave");
  kvbm_object_ = metrics.gauge("kvbm_object_cache_hit_rate",
                               "share of the prompts' blocks looked up lately that stores gave");
  const MutexLock lock(mutex_);
  now_.found.resize(tiers.size());
}

void HitWindow::asked(size_t blocks) {
  const MutexLock lock(mutex_);
  marks_.push_back(now_);
  if (marks_.size() > kWindow) {
    marks_.pop_front();
  }
  now_.asked += blocks;
  update();
}

void HitWindow::found(size_t row, size_t blocks) {
  const MutexLock lock(mutex_);
  now_.found[row] += blocks;
  update();
}

void HitWindow::update() {
  if (marks_.empty() || now_.asked == marks_.front().asked) {
    return;
  }
  const Mark& then = marks_.front();
  const auto asked = static_cast<double>(now_.asked - then.asked);
  double disk = 0;
  double stores = 0;
  for (size_t i = 0; i < ratios_.size(); ++i) {
    const double ratio = static_cast<double>(now_.found[i] - then.found[i]) / asked;
    ratios_[i].set(ratio);
    (is_disk_[i] ? disk : stores) += ratio;
  }
  kvbm_disk_.set(disk);
  kvbm_object_.set(stores);
}

}  // namespace stator::storage
