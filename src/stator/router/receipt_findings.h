// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/mutex.h"
#include "stator/router/receipt.h"

namespace stator::router {

/// What engines found of prompts of which the router had expected more: removals were on their way
/// when it decided. Receipts are corrected by it when they are shown, so that none claims more than
/// the truth; replays go by what was expected. The last ones of this process, oldest dropped at
/// `capacity`: as many as there are receipts. Thread-safe.
class ReceiptFindings {
 public:
  explicit ReceiptFindings(size_t capacity = 1024) : capacity_(capacity) {}

  /// The worker that began with the request found so many blocks.
  void put(std::string_view request_id, WorkerKey worker, uint32_t found_blocks);

  /// Lets the receipt claim of the chosen worker what was found. What had been expected; nothing,
  /// and no change, if that was right.
  std::optional<uint32_t> correct(Receipt& receipt) const;

 private:
  struct Finding {
    std::string request_id;
    WorkerKey worker;
    uint32_t blocks;
  };
  const size_t capacity_;
  mutable Mutex mutex_;
  std::deque<Finding> findings_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::router
