// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "stator/core/strong_id.h"

namespace stator {

// Identities that more than one module speaks about.

/// One engine process. Random 53-bit number drawn at process start (exact in JSON and JavaScript),
/// never tied to a discovery lease.
using WorkerId = StrongId<struct WorkerTag, uint64_t>;

/// Orders the lives of a reused WorkerId: nanoseconds since the epoch at process start.
using Incarnation = StrongId<struct IncarnationTag, uint64_t>;

/// One generation request of one frontend process: one choice of one prompt. Constant over
/// attempts. Unique within the frontend process; the client-visible request id is a separate
/// string.
using RequestId = StrongId<struct RequestTag, uint64_t>;

/// Which try this is, from 0. With the offset on every delta it fences output of an old worker.
using Attempt = StrongId<struct AttemptTag, uint16_t>;

/// A vocabulary entry. Plain integer on purpose: token arrays go to kernels, hashes and the wire.
using TokenId = uint32_t;

/// A worker's data-parallel rank owns its own KV pool; (worker, rank) is the unit of routing.
struct WorkerKey {
  WorkerId worker;
  uint32_t dp_rank = 0;
  friend constexpr auto operator<=>(const WorkerKey&, const WorkerKey&) noexcept = default;
  template <typename H>
  friend H AbslHashValue(
      H state, const WorkerKey& key) {  // NOLINT(readability-identifier-naming): absl's hook
    return H::combine(std::move(state), key.worker, key.dp_rank);
  }
};

}  // namespace stator
