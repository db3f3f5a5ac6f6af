// SPDX-License-Identifier: Apache-2.0
#include "stator/router/load/load_grid.h"

#include <algorithm>
#include <bit>

namespace stator::router {
namespace {

constexpr int kStepBits = 3;  // steps of an eighth: fewer make bounds loose, more make cells many
constexpr int kSideBits = 20;
constexpr uint64_t kExactBelow = 2ULL << kStepBits;

struct Side {
  uint64_t number = 0;  // of the step; grows with the value
  double floor = 0;
};

Side side_of(double value) {
  const auto whole = static_cast<uint64_t>(std::max(0.0, value));
  if (whole < kExactBelow) {
    return {whole, static_cast<double>(whole)};
  }
  const int shift = static_cast<int>(std::bit_width(whole)) - (kStepBits + 1);
  return {(static_cast<uint64_t>(shift) << kStepBits) + (whole >> shift),
          static_cast<double>((whole >> shift) << shift)};
}

}  // namespace

uint32_t LoadGrid::open(const Key& key, const LoadRow& floor, const LoadRow& first) {
  const auto [known, fresh] = cells_.try_emplace(key, static_cast<uint32_t>(floors_.size()));
  if (fresh) {
    keys_.push_back(key);
    sides_.push_back({.floor = floor, .first = first});
    floors_.push_back(first);
    factors_.push_back(key.factors);
    members_.emplace_back();
  }
  return known->second;
}

void LoadGrid::count_other(uint32_t cell, bool before, bool now) {
  Sides& sides = sides_[cell];
  sides.others += (now ? 1U : 0U) - (before ? 1U : 0U);
  floors_[cell] = sides.others == 0 ? sides.first : sides.floor;
}

void LoadGrid::place(LoadSlot slot, const LoadRow& row, const WorkerRates::Factors& factors) {
  const Side prefill = side_of(row.prefill_tokens);
  const Side blocks = side_of(row.active_blocks);
  const Side requests = side_of(row.active_requests);
  const Key key{
      (prefill.number << (2 * kSideBits)) | (blocks.number << kSideBits) | requests.number,
      factors};
  if (slot >= places_.size()) {
    places_.resize(slot + 1);
  }
  if (places_[slot].cell != Place::kNowhere) {
    if (Place& place = places_[slot]; place.key == key) {
      const bool other = row != sides_[place.cell].first;
      count_other(place.cell, place.other, other);
      place.other = other;
      return;
    }
    remove(slot);
  }
  const uint32_t cell = open(key, {prefill.floor, blocks.floor, requests.floor}, row);
  const bool other = row != sides_[cell].first;
  places_[slot] = {cell, static_cast<uint32_t>(members_[cell].size()), other, key};
  members_[cell].push_back(slot);
  count_other(cell, false, other);
}

void LoadGrid::remove(LoadSlot slot) {
  if (slot >= places_.size() || places_[slot].cell == Place::kNowhere) {
    return;
  }
  const Place place = std::exchange(places_[slot], {});
  count_other(place.cell, place.other, false);
  std::vector<LoadSlot>& members = members_[place.cell];
  places_[members.back()].member = place.member;
  members[place.member] = members.back();
  members.pop_back();
  places_[slot] = {};  // it may have been the last itself
  if (!members.empty()) {
    return;
  }
  cells_.erase(place.key);
  const size_t last = floors_.size() - 1;
  if (place.cell != last) {  // the last cell takes the empty one's number
    keys_[place.cell] = keys_[last];
    sides_[place.cell] = sides_[last];
    floors_[place.cell] = floors_[last];
    factors_[place.cell] = factors_[last];
    members_[place.cell].swap(members_[last]);
    cells_[keys_[place.cell]] = place.cell;
    for (const LoadSlot member : members_[place.cell]) {
      places_[member].cell = place.cell;
    }
  }
  keys_.pop_back();
  sides_.pop_back();
  floors_.pop_back();
  factors_.pop_back();
  members_.pop_back();
}

}  // namespace stator::router
