// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "stator/router/cost.h"
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

/// What the scores below are made of.
struct OverlapTerms {
  uint32_t block_size = 0;
  size_t prompt_blocks = 0;  ///< full ones
  router::CostConfig cost;
};

/// {"block_size","num_blocks","workers":[…],"shared_cache":{…}}: one row per overlap, in blocks. As
/// above a tier includes those before it; the "_extension" is what it adds, and
/// "router_credit_blocks" what the reference cost counts of all. There is no shared cache.
std::string render_overlaps(std::span<const router::Overlap> overlaps, const OverlapTerms& terms);

}  // namespace stator::services
