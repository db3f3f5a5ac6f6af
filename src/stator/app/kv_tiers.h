// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "stator/app/kv_settings.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/engine/cpu/kv_arena.h"
#include "stator/storage/lower_tiers.h"

namespace stator::app {

/// The model whose blocks are kept.
struct KvModel {
  std::string folder;  ///< or file: its weights and configuration are part of the namespace
  engine::cpu::KvLayout layout;
  storage::Digest space{};  ///< kv_namespace()
};

/// What blocks of the model are, for tiers and for other engines. Reads its files once. Errors:
/// weights that cannot be read.
Result<storage::Digest> kv_namespace(const KvSettings& settings, const KvModel& model);

/// KV blocks of host memory per worker: what the settings say, or, for tiers below it that need
/// some to load into, a quarter of the device's.
uint32_t host_blocks(const KvSettings& settings, uint64_t block_bytes, uint32_t device_blocks);
/// The same for an engine that only needs some to load into.
uint32_t staging_blocks(uint32_t device_blocks);

/// The tiers below host memory. Null when none is configured or none works: a folder that cannot be
/// used is logged, counted (stator_kv_tier_enabled) and left out. Errors: settings that contradict
/// each other.
Result<std::shared_ptr<storage::LowerTiers>> open_lower_tiers(const KvSettings& settings,
                                                              const KvModel& model, Clock& clock,
                                                              Metrics& metrics);

}  // namespace stator::app
