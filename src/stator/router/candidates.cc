// SPDX-License-Identifier: Apache-2.0
#include "stator/router/candidates.h"

#include <algorithm>
#include <utility>

#include "stator/router/shortlist.h"

namespace stator::router {
namespace {

/// Of a receipt; loads are never negative.
uint32_t whole(double load) {
  return static_cast<uint32_t>(std::min(load, 4294967295.0));
}

}  // namespace

bool BusyThresholds::exceeded(const LoadRow& load, const WorkerFacts& facts,
                              double tolerance) const {
  // What the reference assumes of a worker that did not say.
  constexpr double kBatchedTokensUnknown = 10'000'000;
  const double batched =
      facts.max_num_batched_tokens > 0 ? facts.max_num_batched_tokens : kBatchedTokensUnknown;
  return (prefill_tokens >= 0 && load.prefill_tokens > tolerance * prefill_tokens) ||
         (prefill_fraction >= 0 && load.prefill_tokens > tolerance * prefill_fraction * batched) ||
         (kv_fraction >= 0 && facts.total_kv_blocks > 0 &&
          load.active_blocks > tolerance * kv_fraction * facts.total_kv_blocks);
}

int32_t tier_of(uint32_t strict_priority, double priority) {
  if (strict_priority > 0) {
    return static_cast<int32_t>(std::min<uint32_t>(strict_priority, BrownOut::kTierMax));
  }
  return priority < 0 ? BrownOut::kTierMin : 0;
}

void Candidates::begin(const RouteConstraints& constraints) {
  rows_ = &table_.ready();
  if (!constraints.none()) {
    table_.filter(constraints, own_rows_);
    rows_ = &own_rows_;
  }
  eligible_ = rows_->workers.size();
  load_.clear();
}

void Candidates::narrow_to(std::span<const uint32_t> ready_rows) {
  own_rows_.clear();
  for (const uint32_t row : ready_rows) {
    own_rows_.push(table_.ready(), row);
  }
  rows_ = &own_rows_;
}

std::optional<size_t> Candidates::find_row(WorkerKey worker) const {
  const auto position = table_.position(worker);
  if (!position || rows_->workers.size() == table_.all().size()) {
    return position;
  }
  const auto at = std::ranges::lower_bound(rows_->workers, *position);
  return at == rows_->workers.end() || *at != *position
             ? std::nullopt
             : std::optional(static_cast<size_t>(at - rows_->workers.begin()));
}

void Candidates::read_load() {
  load_.resize(rows_->slots.size());
  book_.read(rows_->slots, load_);
}

Candidates::Left Candidates::drop_busy(const BusyThresholds& thresholds, const BrownOut& brown_out,
                                       int32_t tier) {
  const double tolerance = brown_out.tolerance(tier);
  const double most = brown_out.tolerance(BrownOut::kTierMax);
  size_t kept = 0;
  WorkerTable::Rows left;
  bool higher_tiers_go_on = false;
  for (size_t i = 0; i < rows_->workers.size(); ++i) {
    const WorkerTable::Worker& candidate = worker(i);
    if (!thresholds.exceeded(load_[i], candidate.facts, tolerance)) {
      load_[kept++] = load_[i];
      left.push(rows_->workers[i], candidate);
    } else {
      higher_tiers_go_on =
          higher_tiers_go_on || !thresholds.exceeded(load_[i], candidate.facts, most);
    }
  }
  own_rows_ = std::move(left);
  rows_ = &own_rows_;
  load_.resize(kept);
  eligible_ = kept;
  if (kept > 0) {
    return Left::kSome;
  }
  return higher_tiers_go_on ? Left::kNoneOfTier : Left::kNone;
}

bool Candidates::all_exceed(const BusyThresholds& thresholds) const {
  for (size_t i = 0; i < load_.size(); ++i) {
    if (!thresholds.exceeded(load_[i], worker(i).facts)) {
      return false;
    }
  }
  return true;
}

void Candidates::read_columns(const Prompt& prompt, const PolicyNeeds& needs, bool prices) {
  const size_t count = rows_->workers.size();
  overlap_blocks_.assign(needs.overlap ? count : 0, 0);
  lower_tiers_.clear();
  for (const Overlap& overlap : prompt.overlaps) {
    const auto row = find_row(overlap.worker);
    if (!row) {
      continue;
    }
    overlap_blocks_[*row] = overlap.blocks;
    const LowerTiers tiers{.host_blocks = overlap.host_blocks,
                           .disk_blocks = overlap.disk_blocks + overlap.external_blocks};
    if (tiers.host_blocks + tiers.disk_blocks > 0) {
      lower_tiers_.resize(count);
      lower_tiers_[*row] = tiers;
    }
  }
  held_blocks_.assign(needs.held ? count : 0, 0);
  if (needs.held && !prompt.tracked.empty()) {
    book_.read_held(prompt.tracked, depths_);
    for (size_t i = 0; i < count; ++i) {
      held_blocks_[i] = depths_[rows_->slots[i]];
    }
  }
  if (needs.rates) {
    rates_.resize(count);
    book_.read_rates(rows_->slots, rates_);
  }
  taint_factors_.clear();
  if (!prompt.preferred_taints.empty()) {
    for (size_t i = 0; i < count; ++i) {
      taint_factors_.push_back(taint_factor(worker(i).facts.taints, prompt.preferred_taints));
    }
  }
  costs_.assign(prices ? count : 0, 0);
}

PolicyInput Candidates::input(const PolicyRequest& request) {
  return {.request = request,
          .workers = table_.all(),
          .rows = rows_->workers,
          .kv_blocks = rows_->kv_blocks,
          .key_hashes = rows_->key_hashes,
          .load = load_,
          .overlap_blocks = overlap_blocks_,
          .lower_tiers = lower_tiers_,
          .held_blocks = held_blocks_,
          .rates = rates_,
          .taint_factors = taint_factors_,
          .costs = costs_};
}

uint32_t Candidates::best_overlap() const {
  return overlap_blocks_.empty() ? 0 : std::ranges::max(overlap_blocks_);
}

Choice Candidates::spread(Choice choice, Random& random) const {
  if (costs_.size() < 2) {
    return choice;
  }
  const double limit = nearly_equal(costs_[choice.row]);
  std::vector<size_t> near;
  for (size_t row = 0; row < costs_.size(); ++row) {
    if (costs_[row] <= limit) {
      near.push_back(row);
    }
  }
  if (near.size() < 2) {
    return choice;
  }
  const size_t one = near[random.next() % near.size()];
  const size_t other = near[random.next() % near.size()];
  return {costs_[other] < costs_[one] ? other : one,
          "one of the nearly cheapest: other routers' load is not fresh"};
}

inline ReceiptCandidate Candidates::describe(size_t row, const LoadRow& load) const {
  const WorkerTable::Worker& candidate = worker(row);
  const LowerTiers tiers = lower_tiers_of(row);
  return {.worker = candidate.key,
          .overlap_blocks = overlap_of(row),
          .host_blocks = tiers.host_blocks,
          .disk_blocks = tiers.disk_blocks,
          .active_prefill_tokens = whole(load.prefill_tokens),
          .active_blocks = whole(load.active_blocks),
          .active_requests = whole(load.active_requests),
          .cost = cost_of(row),
          .trust = candidate.trust == nullptr ? Trust::kExact
                                              : candidate.trust->load(std::memory_order_relaxed)};
}

std::vector<ReceiptCandidate> Candidates::describe_all(const RouteConstraints& constraints) const {
  const auto all = table_.all();
  std::vector<ReceiptCandidate> described;
  described.reserve(all.size());
  size_t row = 0;
  for (uint32_t i = 0; i < all.size(); ++i) {
    if (row < rows_->workers.size() && rows_->workers[row] == i) {
      described.push_back(describe(row, load_[row]));
      ++row;
      continue;
    }
    const Exclusion why = WorkerTable::exclusion(all[i], constraints);
    described.push_back(
        {.worker = all[i].key, .excluded = why == Exclusion::kNone ? Exclusion::kBusy : why});
  }
  return described;
}

std::vector<ReceiptCandidate> Candidates::describe(const RouteConstraints& constraints,
                                                   size_t chosen) const {
  if (table_.all().size() <= kReceiptFleetMax) {
    return describe_all(constraints);
  }
  std::vector<ReceiptCandidate> described;
  described.reserve(kReceiptCandidatesMax);
  const auto add = [&](size_t row) {
    LoadRow load;
    if (load_.empty()) {  // the decision did not look
      book_.read(std::span(&rows_->slots[row], 1), std::span(&load, 1));
    } else {
      load = load_[row];
    }
    described.push_back(describe(row, load));
  };
  add(chosen);
  // The cheapest others, in one pass: the most expensive of those kept is on top of the heap.
  std::vector<std::pair<double, size_t>> cheapest;
  cheapest.reserve(kReceiptCandidatesMax);
  for (size_t i = 0; i < costs_.size(); ++i) {
    const bool full = cheapest.size() == kReceiptCandidatesMax - 1;
    if ((full && costs_[i] >= cheapest.front().first) || i == chosen) {
      continue;
    }
    if (full) {
      std::ranges::pop_heap(cheapest);
      cheapest.pop_back();
    }
    cheapest.emplace_back(costs_[i], i);
    std::ranges::push_heap(cheapest);
  }
  std::ranges::sort(cheapest);
  for (const auto& [cost, row] : cheapest) {
    add(row);
  }
  return described;
}

}  // namespace stator::router
