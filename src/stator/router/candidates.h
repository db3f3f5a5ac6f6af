// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/random.h"
#include "stator/router/busy_thresholds.h"
#include "stator/router/kv_index.h"
#include "stator/router/load_lease.h"
#include "stator/router/policy.h"
#include "stator/router/receipt.h"
#include "stator/router/worker_table.h"

namespace stator::router {

/// The workers that one request may go to, and what is known of each: columns with a row per
/// worker, in the table's order. A router has one, begun anew for each request, so that the columns
/// keep their memory. A pure core; table and book outlive it.
///
///   begin ► read_load ► drop_busy ► (narrow_to ► read_load) ► read_columns ► input ► describe
class Candidates {
 public:
  Candidates(const WorkerTable& table, const LoadBook& book) : table_(table), book_(book) {}
  Candidates(const Candidates&) = delete;
  Candidates& operator=(const Candidates&) = delete;

  /// Workers that take new work and meet the constraints.
  void begin(const RouteConstraints& constraints);
  /// Only these of them: rows of the table's ready(), sorted.
  void narrow_to(std::span<const uint32_t> ready_rows);

  size_t size() const { return rows_->workers.size(); }
  /// How many there were before they were narrowed down.
  size_t eligible() const { return eligible_; }
  const WorkerTable::Worker& worker(size_t row) const { return table_.all()[rows_->workers[row]]; }
  /// None: it is not among them.
  std::optional<size_t> find_row(WorkerKey worker) const;

  void read_load();
  enum class Left : uint8_t {
    kSome,
    kNone,
    kNoneOfTier,  ///< requests of a higher tier would have some
  };
  /// Takes those out that are beyond the thresholds for requests of this tier. Their load was read.
  Left drop_busy(const BusyThresholds& thresholds, const BrownOut& brown_out, int32_t tier);
  /// Of those whose load was read; true if it was not.
  bool all_exceed(const BusyThresholds& thresholds) const;

  /// What a request brings to the columns.
  struct Prompt {
    std::span<const Overlap> overlaps;  ///< who has cached what of it
    std::span<const blocks::SequenceHash>
        tracked{};  ///< its blocks in load bookings; empty: no look
    std::span<const std::pair<std::string, float>> preferred_taints{};
  };
  void read_columns(const Prompt& prompt, const PolicyNeeds& needs, bool prices);
  void ignore_taints() { taint_factors_.clear(); }
  PolicyInput input(const PolicyRequest& request);

  uint32_t overlap_of(size_t row) const {
    return overlap_blocks_.empty() ? 0 : overlap_blocks_[row];
  }
  LowerTiers lower_tiers_of(size_t row) const {
    return lower_tiers_.empty() ? LowerTiers{} : lower_tiers_[row];
  }
  uint32_t best_overlap() const;
  double cost_of(size_t row) const { return costs_.empty() ? 0 : costs_[row]; }
  std::span<const WorkerRates::Rates> rates() const { return rates_; }
  /// Power of two among the near-equal: what looks cheapest to one router looks so to all.
  Choice spread(Choice choice, Random& random) const;

  /// All workers of a small fleet, those who are no candidates with the reason; else the chosen one
  /// and the cheapest others.
  std::vector<ReceiptCandidate> describe(const RouteConstraints& constraints, size_t chosen) const;

 private:
  ReceiptCandidate describe(size_t row, const LoadRow& load) const;
  std::vector<ReceiptCandidate> describe_all(const RouteConstraints& constraints) const;

  const WorkerTable& table_;
  const LoadBook& book_;
  const WorkerTable::Rows* rows_ = nullptr;
  WorkerTable::Rows own_rows_;
  size_t eligible_ = 0;
  std::vector<LoadRow> load_;  // empty: not read
  std::vector<uint32_t> overlap_blocks_;
  std::vector<LowerTiers> lower_tiers_;  // empty unless some worker has blocks there
  std::vector<uint32_t> depths_;
  std::vector<uint32_t> held_blocks_;
  std::vector<WorkerRates::Rates> rates_;
  std::vector<double> taint_factors_;
  std::vector<double> costs_;
};

}  // namespace stator::router
