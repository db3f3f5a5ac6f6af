// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/router/load/load_row.h"
#include "stator/router/load/worker_rates.h"

namespace stator::router {

/// Workers in cells of nearly equal load, so that the cheapest of ten thousand are found by pricing
/// some hundred cells and the members of a few, not every worker.
///
/// A cell's sides are numbers up to 15 one by one, larger ones in steps of an eighth; its workers
/// have learned the same speeds. What a policy says of a cell's floor is therefore a lower bound of
/// what it says of each member, if its price rises with load. As long as all members have the load
/// that the first one came with, that is the floor. A pure core; moving a worker to
/// another cell costs two map probes, as many cells are kept as have members.
class LoadGrid {
 public:
  /// Adds the worker or moves it to where it belongs now.
  void place(LoadSlot slot, const LoadRow& row, const WorkerRates::Factors& factors);
  /// Unknown slots are ignored.
  void remove(LoadSlot slot);

  /// By cell, in no order, all of the same length. Valid until the next change.
  std::span<const LoadRow> floors() const { return floors_; }
  std::span<const WorkerRates::Factors> factors() const { return factors_; }
  std::span<const LoadSlot> members(size_t cell) const { return members_[cell]; }
  /// All members have the floor's load.
  bool alike(size_t cell) const { return sides_[cell].others == 0; }

 private:
  struct Key {
    uint64_t load = 0;
    WorkerRates::Factors factors;
    friend bool operator==(const Key&, const Key&) = default;
    template <typename H>
    friend H AbslHashValue(H state, const Key& key) {
      return H::combine(std::move(state), key.load, key.factors.ttft, key.factors.itl);
    }
  };
  struct Place {
    static constexpr uint32_t kNowhere = std::numeric_limits<uint32_t>::max();
    uint32_t cell = kNowhere;
    uint32_t member = 0;
    bool other = false;  // than the first member's load
    Key key;
  };
  struct Sides {
    LoadRow floor;
    LoadRow first;        // the load of the first member
    uint32_t others = 0;  // members with another load
  };
  uint32_t open(const Key& key, const LoadRow& floor, const LoadRow& first);
  void count_other(uint32_t cell, bool before, bool now);

  std::vector<Place> places_;  // by slot
  FlatMap<Key, uint32_t> cells_;
  std::vector<Key> keys_;  // this and the following by cell
  std::vector<Sides> sides_;
  std::vector<LoadRow> floors_;
  std::vector<WorkerRates::Factors> factors_;
  std::vector<std::vector<LoadSlot>> members_;
};

}  // namespace stator::router
