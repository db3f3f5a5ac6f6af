// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stator/router/kv_index.h"

namespace stator::services {

/// How many tokens of a prompt one instance holds. Tiers are cumulative: cpu includes gpu, disk
/// includes both and object stores; an instance takes the maximum over its ranks.
struct InstanceScore {
  WorkerId instance;
  uint64_t gpu = 0;
  uint64_t cpu = 0;
  uint64_t disk = 0;
  std::vector<std::pair<uint32_t, uint64_t>> ranks;  ///< device tokens by rank, ascending
};

/// By instance, ascending. `overlaps` in any order.
std::vector<InstanceScore> score_instances(std::span<const router::Overlap> overlaps,
                                           uint32_t block_size);

/// {"longest_matched":…,"gpu":…,"dp":{…},"cpu":…,"disk":…}
std::string render_instance(const InstanceScore& score);

/// {"scores":{…},"frequencies":[],"instances":{…}}: tokens. The shape of the Mooncake conductor's
/// proposal.
std::string render_scores(std::span<const router::Overlap> overlaps, uint32_t block_size);

}  // namespace stator::services
