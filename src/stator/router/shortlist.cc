// SPDX-License-Identifier: Apache-2.0
#include "stator/router/shortlist.h"

#include <functional>
#include <limits>

#include "stator/router/receipt.h"

namespace stator::router {
namespace {

// Members priced in one call: enough to be worth it, few enough to stop early.
constexpr size_t kBatch = 64;
// Of a cell of equals; at least as many as a receipt shows.
constexpr size_t kSample = 32;
constexpr int kCellBits = 32;

}  // namespace

void Shortlist::Batch::clear() {
  rows.clear();
  load.clear();
  factors.clear();
  kv_blocks.clear();
}

std::span<const double> Shortlist::price(const Query& query, std::span<const LoadRow> load,
                                         std::span<const WorkerRates::Factors> factors,
                                         std::span<const uint32_t> kv_blocks) {
  const size_t count = load.size();
  if (count == 0) {
    return {};
  }
  const PolicyNeeds needs = query.policy.needs();
  zeros_.resize(std::max(zeros_.size(), count));
  costs_.resize(std::max(costs_.size(), count));
  if (needs.rates) {
    rates_.resize(std::max(rates_.size(), count));
    query.load.rates().scale(factors, std::span(rates_).first(count));
  }
  const auto zeros = std::span<const uint32_t>(zeros_).first(count);
  const auto costs = std::span(costs_).first(count);
  Random unused(0);
  query.policy.choose(
      {.request = query.request,
       .workers = query.table.all(),
       .rows = zeros,
       .kv_blocks = kv_blocks.empty() ? zeros : kv_blocks,
       .key_hashes = {},
       .load = load,
       .overlap_blocks = needs.overlap ? zeros : std::span<const uint32_t>(),
       .lower_tiers = {},
       .held_blocks = needs.held ? zeros : std::span<const uint32_t>(),
       .rates = std::span<const WorkerRates::Rates>(rates_).first(needs.rates ? count : 0),
       .taint_factors = {},
       .costs = costs},
      unused);
  return costs;
}

void Shortlist::add_members(const Query& query, std::span<const LoadSlot> slots) {
  const WorkerTable::Rows& ready = query.table.ready();
  for (const LoadSlot slot : slots) {
    if (const auto row = query.table.ready_row(slot)) {
      batch_.rows.push_back(*row);
      batch_.load.push_back(query.load.row(slot, {}));
      batch_.factors.push_back(query.load.rates().factors(slot));
      batch_.kv_blocks.push_back(ready.kv_blocks[*row]);
    }
  }
}

void Shortlist::keep(double cost, uint32_t row, bool nearly_equal_too) {
  if (cost > bound_) {
    return;
  }
  found_.emplace_back(cost, row);
  best_ = std::min(best_, cost);
  if (cheapest_.size() == kReceiptCandidatesMax) {
    if (cost >= cheapest_.front()) {
      return;
    }
    std::ranges::pop_heap(cheapest_);
    cheapest_.pop_back();
  }
  cheapest_.push_back(cost);
  std::ranges::push_heap(cheapest_);
  if (cheapest_.size() == kReceiptCandidatesMax) {
    bound_ =
        nearly_equal_too ? std::max(cheapest_.front(), nearly_equal(best_)) : cheapest_.front();
  }
}

void Shortlist::take_batch(const Query& query) {
  const auto costs = price(query, batch_.load, batch_.factors, batch_.kv_blocks);
  for (size_t i = 0; i < costs.size(); ++i) {
    keep(costs[i], batch_.rows[i], query.nearly_equal_too);
  }
  batch_.clear();
}

/// Of a cell whose members are all alike a few are as good as all. False if they are not: somebody
/// takes no work, or has too little memory.
bool Shortlist::sample(const Query& query, const LoadGrid& grid, uint32_t cell, double floor,
                       Random& random) {
  const auto members = grid.members(cell);
  const size_t begin = random.below(members.size());
  const size_t first = std::min(kSample, members.size() - begin);
  add_members(query, members.subspan(begin, first));
  add_members(query, members.first(kSample - first));  // around the end
  const auto costs = price(query, batch_.load, batch_.factors, batch_.kv_blocks);
  const bool alike = costs.size() == kSample &&
                     std::ranges::all_of(costs, [&](double cost) { return cost == floor; });
  if (alike) {
    take_batch(query);
  }
  batch_.clear();
  return alike;
}

/// Among floors that cost the same the order is drawn, so that no cell is always first.
void Shortlist::queue_cells(const Query& query, const LoadGrid& grid, Random& random) {
  cells_.clear();
  const uint64_t draw = random.next();
  const auto floors = price(query, grid.floors(), grid.factors(), {});
  for (size_t cell = 0; cell < floors.size(); ++cell) {
    cells_.emplace_back(floors[cell], (mix64(draw + cell) << kCellBits) | cell);
  }
  std::ranges::make_heap(cells_, std::greater<>());
}

/// Members cost the floor at least. More that cost what the last of those found does are no news.
bool Shortlist::worth_a_look(const Query& query, double floor) const {
  return floor < bound_ || (query.nearly_equal_too && floor <= bound_);
}

void Shortlist::find(const Query& query, const LoadGrid& grid, Random& random,
                     std::vector<uint32_t>& rows) {
  found_.clear();
  cheapest_.clear();
  batch_.clear();
  best_ = bound_ = std::numeric_limits<double>::infinity();
  queue_cells(query, grid, random);
  while (!cells_.empty() && worth_a_look(query, cells_.front().first)) {
    const double floor = cells_.front().first;
    const auto cell = static_cast<uint32_t>(cells_.front().second & ((1ULL << kCellBits) - 1));
    std::ranges::pop_heap(cells_, std::greater<>());
    cells_.pop_back();
    if (grid.alike(cell) && grid.members(cell).size() > 2 * kSample) {
      take_batch(query);
      if (!worth_a_look(query, floor) || sample(query, grid, cell, floor, random)) {
        continue;
      }
    }
    add_members(query, grid.members(cell));
    if (batch_.rows.size() >= kBatch) {
      take_batch(query);
    }
  }
  take_batch(query);
  std::erase_if(found_, [this](const auto& each) { return each.first > bound_; });
  if (!query.nearly_equal_too && found_.size() > 2 * kSample) {
    drop_ties(random);
  }
  for (const auto& [cost, row] : found_) {
    rows.push_back(row);
  }
}

/// Leaves kSample of those that cost the most of all that were found: they cost the same.
void Shortlist::drop_ties(Random& random) {
  const auto ties = std::ranges::partition(
      found_, [this](const auto& each) { return each.first < cheapest_.front(); });
  for (size_t i = 0; i < std::min(kSample, ties.size()); ++i) {
    std::swap(ties[i], ties[i + random.below(ties.size() - i)]);
  }
  found_.resize(found_.size() - ties.size() + std::min(kSample, ties.size()));
}

}  // namespace stator::router
