// SPDX-License-Identifier: Apache-2.0
#include "stator/router/receipt_findings.h"

#include <algorithm>
#include <utility>

namespace stator::router {

void ReceiptFindings::put(std::string_view request_id, WorkerKey worker, uint32_t found_blocks) {
  const MutexLock lock(mutex_);
  if (findings_.size() == capacity_) {
    findings_.pop_front();
  }
  findings_.push_back({std::string(request_id), worker, found_blocks});
}

// The newest first: a request that moved may have several.
std::optional<uint32_t> ReceiptFindings::correct(Receipt& receipt) const {
  const auto chosen =
      std::ranges::find(receipt.candidates, receipt.chosen, &ReceiptCandidate::worker);
  if (chosen == receipt.candidates.end()) {
    return std::nullopt;
  }
  const MutexLock lock(mutex_);
  const auto found = std::find_if(findings_.rbegin(), findings_.rend(), [&](const Finding& each) {
    return each.worker == receipt.chosen && each.request_id == receipt.request_id;
  });
  if (found == findings_.rend() || found->blocks >= chosen->overlap_blocks) {
    return std::nullopt;
  }
  return std::exchange(chosen->overlap_blocks, found->blocks);
}

}  // namespace stator::router
