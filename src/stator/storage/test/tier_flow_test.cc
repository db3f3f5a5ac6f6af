// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/tier_flow.h"

#include <gtest/gtest.h>

namespace stator::storage {
namespace {

TEST(TierFlow, CountsBlocksAndBytesUnderBothNames) {
  Metrics metrics;
  TierFlow disk(metrics, "disk", SaveSource::kDevice);
  disk.saved(100, std::chrono::milliseconds(1), std::chrono::milliseconds(2));
  disk.loaded(100);
  disk.loaded(100);
  EXPECT_EQ(metrics.counter("kvbm_offload_blocks_d2d", "").value(), 1U);
  EXPECT_EQ(metrics.counter("kvbm_offload_blocks_h2d", "").value(), 0U);
  EXPECT_EQ(metrics.counter("kvbm_onboard_blocks_d2d", "").value(), 2U);
  EXPECT_EQ(metrics.counter("kvbm_onboard_blocks_d2h", "").value(), 2U);
  EXPECT_EQ(metrics.counter("stator_kv_onboard_bytes_total", "", {{"tier", "disk"}}).value(), 200U);
  EXPECT_EQ(metrics.counter("stator_kv_offload_bytes_total", "", {{"tier", "disk"}}).value(), 100U);

  TierFlow from_host(metrics, "disk", SaveSource::kHost);
  from_host.saved(100, {}, {});
  EXPECT_EQ(metrics.counter("kvbm_offload_blocks_h2d", "").value(), 1U);
}

TEST(HitWindow, IsTheShareOfTheLastLookUps) {
  Metrics metrics;
  HitWindow hits(metrics, {"disk", "object"});
  const auto disk = metrics.gauge("kvbm_disk_cache_hit_rate", "");
  const auto object = metrics.gauge("kvbm_object_cache_hit_rate", "");
  EXPECT_EQ(disk.value(), 0);
  hits.asked(10);
  hits.found(0, 5);
  hits.asked(10);
  hits.found(1, 2);
  EXPECT_DOUBLE_EQ(disk.value(), 0.25);
  EXPECT_DOUBLE_EQ(object.value(), 0.1);
  for (size_t i = 0; i < HitWindow::kWindow; ++i) {
    hits.asked(1);
  }
  EXPECT_DOUBLE_EQ(disk.value(), 0);  // those hits are too long ago
  hits.found(0, 1);
  EXPECT_DOUBLE_EQ(disk.value(), 1.0 / HitWindow::kWindow);
}

}  // namespace
}  // namespace stator::storage
