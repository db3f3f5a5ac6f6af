// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "stator/core/random.h"
#include "stator/router/load/active_sequences.h"
#include "stator/router/policy.h"
#include "stator/router/worker_table.h"

namespace stator::router {

/// Costs up to here are as good as the best, when load is known only of late.
inline double nearly_equal(double best) {
  constexpr double kNearly = 0.05;
  return best + std::max(1.0, std::abs(best) * kNearly);
}

/// Finds the workers that a request needs priced in a large fleet, by branch and bound: the policy
/// prices the floor of each cell of the LoadGrid, then the members of the cells whose floor costs
/// no more than what was found. Pricing only these leads to the same choice as pricing all.
///
/// S1  Of the workers that hold nothing of the prompt, every one that is among the cheapest
///     kReceiptCandidatesMax, or nearly as cheap as the best where that is asked for, is found.
///     Of more than that at the same cost, some at random are.
/// S2  Workers that do hold something are the caller's to add.
class Shortlist {
 public:
  struct Query {
    Policy& policy;
    const PolicyRequest& request;
    const WorkerTable& table;
    const ActiveSequences& load;
    bool nearly_equal_too = false;
  };
  /// Appends rows of table.ready(). `grid` is the one of `query.load`.
  void find(const Query& query, const LoadGrid& grid, Random& random, std::vector<uint32_t>& rows);

 private:
  struct Batch {
    std::vector<uint32_t> rows;
    std::vector<LoadRow> load;
    std::vector<WorkerRates::Factors> factors;
    std::vector<uint32_t> kv_blocks;
    void clear();
  };
  /// What the policy says of workers like these that have nothing of the prompt. Valid until the
  /// next call.
  std::span<const double> price(const Query& query, std::span<const LoadRow> load,
                                std::span<const WorkerRates::Factors> factors,
                                std::span<const uint32_t> kv_blocks);
  void queue_cells(const Query& query, const LoadGrid& grid, Random& random);
  bool worth_a_look(const Query& query, double floor) const;
  void add_members(const Query& query, std::span<const LoadSlot> slots);
  bool sample(const Query& query, const LoadGrid& grid, uint32_t cell, double floor,
              Random& random);
  void take_batch(const Query& query);
  void drop_ties(Random& random);
  void keep(double cost, uint32_t row, bool nearly_equal_too);

  // Kept for their memory.
  // Floor; a draw and the number. A heap, the cheapest on top.
  std::vector<std::pair<double, uint64_t>> cells_;
  Batch batch_;
  std::vector<std::pair<double, uint32_t>> found_;  // cost and row
  std::vector<double> cheapest_;                    // costs, a heap; at most kReceiptCandidatesMax
  double best_ = 0;
  double bound_ = 0;
  std::vector<double> costs_;
  std::vector<uint32_t> zeros_;
  std::vector<WorkerRates::Rates> rates_;
};

}  // namespace stator::router
