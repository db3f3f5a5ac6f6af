// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/ids.h"
#include "stator/core/random.h"
#include "stator/router/cost.h"
#include "stator/router/load_lease.h"
#include "stator/router/worker_table.h"

namespace stator::router {

/// The request as a policy sees it.
struct PolicyRequest {
  CostRequest shape;
  uint32_t prompt_blocks = 0;  ///< a partial one included
  std::span<const blocks::SequenceHash> sequences{};
  uint32_t expected_output_tokens = 0;  ///< 0 = not said
  uint32_t shared_blocks = 0;           ///< see RouteRequest
  CostConfig cost;                      ///< the operator's, with what the request overrides
};

/// Leading blocks a worker holds behind those on its device; disk includes object stores.
struct LowerTiers {
  uint32_t host_blocks = 0;
  uint32_t disk_blocks = 0;
};

/// What a policy may look at: one row per eligible worker, at least one. Columns it did not ask for
/// in needs() are empty.
struct PolicyInput {
  const PolicyRequest& request;
  std::span<const WorkerTable::Worker> workers;  ///< all; `rows` says which are eligible
  std::span<const uint32_t> rows;
  std::span<const uint32_t> kv_blocks;   ///< each one's memory; 0 = not known
  std::span<const uint64_t> key_hashes;  ///< of their keys, well mixed
  std::span<const LoadRow> load;
  std::span<const uint32_t> overlap_blocks;   ///< cached there
  std::span<const LowerTiers> lower_tiers;    ///< with overlap; empty = nobody has any
  std::span<const uint32_t> held_blocks;      ///< in use there by running requests
  std::span<const WorkerRates::Rates> rates;  ///< learned speeds
  std::span<const double> taint_factors;      ///< for costs; empty = all 1
  std::span<double> costs;                    ///< may be written, for the receipt

  size_t size() const { return rows.size(); }
  const WorkerTable::Worker& worker(size_t row) const { return workers[rows[row]]; }
  /// Prompt tokens that need no prefill there; at most what full blocks cover.
  double cached_tokens(size_t row) const {
    const LowerTiers lower = lower_tiers.empty() ? LowerTiers{} : lower_tiers[row];
    return router::cached_tokens(request.cost,
                                 {.device_overlap = static_cast<double>(overlap_blocks[row]),
                                  .host_extension = static_cast<double>(lower.host_blocks),
                                  .disk_extension = static_cast<double>(lower.disk_blocks)},
                                 request.shape) +
           request.cost.shared_multiplier * shared_beyond(row) * request.shape.block_size;
  }
  /// Blocks that a cache of all workers has behind those that this one has in any tier.
  double shared_beyond(size_t row) const {
    const LowerTiers lower = lower_tiers.empty() ? LowerTiers{} : lower_tiers[row];
    const uint32_t own = overlap_blocks[row] + lower.host_blocks + lower.disk_blocks;
    return request.shared_blocks > own ? request.shared_blocks - own : 0;
  }
  /// Prompt tokens this worker would have to compute.
  double uncached_tokens(size_t row) const {
    return std::max(0.0, request.shape.prompt_tokens - cached_tokens(row));
  }
  /// KV blocks in use there once the request runs there.
  double potential_blocks(size_t row) const {
    return load[row].active_blocks + request.prompt_blocks - held_blocks[row];
  }
};

struct Choice {
  size_t row = 0;
  std::string_view reason;  ///< static text for the receipt
};

/// Why the cheapest worker was chosen, in view of what it and the others have cached.
std::string_view explain_cheapest(const PolicyInput& input, const Pick& pick);

/// What of PolicyInput a policy reads; the rest is not computed.
struct PolicyNeeds {
  bool load = true;
  bool overlap = false;
  bool held = false;
  bool rates = false;
};

/// Chooses among eligible workers. One object per router; it may keep state (a round-robin cursor).
class Policy {
 public:
  virtual ~Policy() = default;
  virtual PolicyNeeds needs() const { return {}; }
  /// Whether the request must name its worker.
  virtual bool needs_pin() const { return false; }
  /// Whether it writes `costs`.
  virtual bool prices() const { return false; }
  /// Whether a worker's price depends on itself alone, never falls with its load (LoadRow) and
  /// never rises with its memory: then not every worker of a large fleet need be priced.
  virtual bool rises_with_load() const { return false; }
  virtual Choice choose(const PolicyInput& input, Random& random) = 0;
};

/// A policy's name and how to make it. To add one: a file in policies/ that ends with a PolicyInfo,
/// and its row in policy.cc.
struct PolicyInfo {
  std::string_view name;
  std::unique_ptr<Policy> (*make)();
};

/// Names accepted by find_policy, in the order they are documented.
std::vector<std::string> policy_names();

/// Null for an unknown name. Lives as long as the program.
const PolicyInfo* find_policy(std::string_view name);

/// For a policy without arguments: `const PolicyInfo kFoo = {"foo", make<FooPolicy>};`
template <typename T>
std::unique_ptr<Policy> make() {
  return std::make_unique<T>();
}

}  // namespace stator::router
