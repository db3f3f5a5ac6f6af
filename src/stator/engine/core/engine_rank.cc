// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/engine_rank.h"

#include "stator/core/log.h"

namespace stator::engine {

void warn_of_forged_blocks(Rank& rank, const std::string& engine) {
  const uint64_t blocks = rank.scheduler.pool().collisions_total();
  if (blocks < rank.warn_at) {
    return;
  }
  rank.warn_at = 2 * blocks;
  log::warn("engine",
            "prompts have KV blocks with the hash of other blocks: somebody forges them. Answers "
            "do not depend on it, routing may; find who sends them",
            {{"engine", engine}, {"blocks", blocks}});
}

LoadReport sum(const std::vector<std::unique_ptr<Rank>>& ranks) {
  LoadReport sum;
  for (const auto& rank : ranks) {
    const LoadReport load = rank->scheduler.load();
    sum.kv_used_blocks += load.kv_used_blocks;
    sum.kv_cached_blocks += load.kv_cached_blocks;
    sum.kv_total_blocks += load.kv_total_blocks;
    sum.running += load.running;
    sum.waiting += load.waiting + (rank->lanes == nullptr ? 0 : rank->lanes->parked());
    sum.prefix_hit_tokens += load.prefix_hit_tokens;
    sum.prefix_query_tokens += load.prefix_query_tokens;
    sum.preemptions += load.preemptions;
  }
  return sum;
}

}  // namespace stator::engine
