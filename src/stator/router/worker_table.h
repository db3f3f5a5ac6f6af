// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/ids.h"
#include "stator/core/random.h"
#include "stator/router/kv_index.h"
#include "stator/router/load/prompt_trie.h"

namespace stator::router {

/// What a worker said about itself that matters for choosing it; zeros are unknown.
struct WorkerFacts {
  uint32_t total_kv_blocks = 0;
  uint32_t max_num_batched_tokens = 0;
  bool accelerated = true;          ///< not a plain CPU
  bool kv_events = true;            ///< it tells what it has cached; else that is guessed
  uint32_t dp_size = 1;             ///< data-parallel ranks, each as described here
  std::vector<std::string> taints;  ///< e.g. "dynamo.topology/zone=a"
};

/// Why a worker may not take a request.
enum class Exclusion : uint8_t {
  kNone,  ///< it may
  kNotAllowed,
  kDraining,
  kNotNamed,
  kTried,
  kTaint,
  kBusy,
};
/// For a person; empty for kNone. Static text.
std::string_view describe(Exclusion exclusion);

/// Which workers a request may go to at all.
struct RouteConstraints {
  std::optional<WorkerId> pinned;  ///< only this worker will do
  std::optional<uint32_t> pinned_rank;
  std::span<const WorkerId> allowed{};    ///< empty: all
  std::span<const WorkerKey> excluded{};  ///< tried already
  std::span<const std::string> required_taints{};
  std::span<const std::pair<std::string, float>>
      preferred_taints{};  ///< only weigh, see taint_factor

  /// No worker is ruled out beforehand.
  bool none() const {
    return !pinned && !pinned_rank && allowed.empty() && excluded.empty() &&
           required_taints.empty();
  }
};

/// The workers of one model, in the order of their keys. A pure core.
class WorkerTable {
 public:
  struct Worker {
    WorkerKey key;
    LoadSlot slot = 0;
    bool draining = false;
    WorkerFacts facts;
    const std::atomic<Trust>* trust = nullptr;  ///< the index'; null = exact
  };
  /// Indexes into all(), and what every decision reads of the workers there; in step.
  struct Rows {
    std::vector<uint32_t> workers;
    std::vector<LoadSlot> slots;
    std::vector<uint32_t> kv_blocks;
    std::vector<uint64_t> key_hashes;
    void clear() {
      workers.clear();
      slots.clear();
      kv_blocks.clear();
      key_hashes.clear();
    }
    /// A row of `other`.
    void push(const Rows& other, size_t row) {
      workers.push_back(other.workers[row]);
      slots.push_back(other.slots[row]);
      kv_blocks.push_back(other.kv_blocks[row]);
      key_hashes.push_back(other.key_hashes[row]);
    }
    void push(uint32_t index, const Worker& worker) {
      workers.push_back(index);
      slots.push_back(worker.slot);
      kv_blocks.push_back(worker.facts.total_kv_blocks);
      key_hashes.push_back(hash_of(worker.key));
    }
  };

  static uint64_t hash_of(WorkerKey key) { return mix64(key.worker.value() + mix64(key.dp_rank)); }

  /// The key must not be in the table.
  void add(WorkerKey key, LoadSlot slot, WorkerFacts facts);
  /// Its slot, or none when unknown.
  std::optional<LoadSlot> remove(WorkerKey key);
  Worker* find(WorkerKey key);
  /// Marks every rank of a draining state.
  void set_draining(WorkerKey key, bool draining);

  std::span<const Worker> all() const { return workers_; }
  /// Position in all(); none when unknown. O(1).
  std::optional<uint32_t> position(WorkerKey key) const;
  /// Those that take new work. Valid until the table changes.
  const Rows& ready() const;
  /// Row in ready() of the worker with this slot, if it takes new work. O(1).
  std::optional<uint32_t> ready_row(LoadSlot slot) const {
    refresh();
    const uint32_t row = slot < ready_by_slot_.size() ? ready_by_slot_[slot] : kNotReady;
    return row == kNotReady ? std::nullopt : std::optional(row);
  }
  /// Those of them that the constraints allow.
  void filter(const RouteConstraints& constraints, Rows& out) const;
  /// Why `worker` may not be chosen; never kBusy.
  static Exclusion exclusion(const Worker& worker, const RouteConstraints& constraints);

 private:
  void refresh() const;

  std::vector<Worker> workers_;  // sorted by key
  // Derived from workers_ when first needed after a change: ten thousand joins cost one rebuild.
  mutable bool stale_ = true;
  mutable Rows ready_;
  static constexpr uint32_t kNotReady = ~0U;
  mutable std::vector<uint32_t> ready_by_slot_;
  mutable FlatMap<WorkerKey, uint32_t> positions_;
};

/// exp(−tanh(Σ weights of the preferred taints that the worker has)): what its cost is multiplied
/// by. Below 1 attracts, above 1 (negative weights) repels.
double taint_factor(std::span<const std::string> taints,
                    std::span<const std::pair<std::string, float>> preferred);

}  // namespace stator::router
