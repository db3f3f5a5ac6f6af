// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/core/mutex.h"
#include "stator/router/kv_index.h"
#include "stator/router/worker_table.h"

namespace stator::router {

/// One worker as it looked when a decision was made. Small: a thousand receipts of 64 of them are
/// kept, and written by every decision.
struct ReceiptCandidate {
  WorkerKey worker;
  uint32_t overlap_blocks = 0;  ///< on its device
  uint32_t host_blocks = 0;     ///< behind them, in its host memory
  uint32_t disk_blocks = 0;     ///< behind those, on disk or in an object store
  uint32_t active_prefill_tokens = 0;
  uint32_t active_blocks = 0;
  uint32_t active_requests = 0;
  double cost = 0;                        ///< of modes that have one
  Trust trust = Trust::kExact;            ///< of what is said of its blocks
  Exclusion excluded = Exclusion::kNone;  ///< why it could not be chosen
};
static_assert(sizeof(ReceiptCandidate) <= 56);

/// Why a worker was chosen: everything the decision looked at, so that `stator explain` can show it
/// and a replay can repeat it.
struct Receipt {
  std::string request_id;
  std::string model;
  std::string_view mode;
  WallTime time;
  uint32_t prompt_tokens = 0;
  uint32_t prompt_blocks = 0;
  uint32_t block_size = 0;
  uint32_t best_overlap_blocks = 0;  ///< the longest cached prefix among the eligible workers
  double temperature = 0;
  WorkerKey chosen;
  std::string_view reason;
  uint32_t workers = 0;   ///< of the model
  uint32_t eligible = 0;  ///< of them, when the decision was made
  Duration queued{};      ///< how long the request waited in the router's queue
  /// What its blocks have beside tokens, a JSON array: kind, hash and place of each medium; empty:
  /// nothing.
  std::string media_json;
  std::vector<ReceiptCandidate> candidates;  ///< all of a small fleet, else the best ones
};

/// A fleet up to this size is shown in full, of a larger one only so many of the cheapest: a
/// decision must not cost more to write down than to make.
inline constexpr size_t kReceiptFleetMax = 64;
inline constexpr size_t kReceiptCandidatesMax = 16;

/// JSON of one receipt. Worker ids are decimal strings (they may exceed 2^53 in other stacks).
std::string render_json(const Receipt& receipt);
/// The same for a person in a terminal.
std::string render_text(const Receipt& receipt);

/// The last decisions of this process, oldest dropped at `capacity`. Thread-safe.
class ReceiptLog {
 public:
  explicit ReceiptLog(size_t capacity = 1024) : capacity_(capacity) {}
  void add(const Receipt& receipt);
  /// By request id, or the newest for "last".
  std::optional<Receipt> find(std::string_view request_id) const;

 private:
  const size_t capacity_;
  mutable Mutex mutex_;
  std::deque<Receipt> receipts_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::router
