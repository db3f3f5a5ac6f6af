// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include "stator/core/clock.h"

namespace stator::transfer {

/// Copies past the cache from this many bytes on: what is written is not read soon, and reading
/// each line only to overwrite it costs a third of the memory bandwidth. SIZE_MAX: never.
struct CopyPlan {
  size_t streaming_from = SIZE_MAX;
};

/// Measures once how this machine copies cold blocks (4 ms), with the result for all later calls.
const CopyPlan& calibrated_copy(Clock& clock);

/// `source` to `target`, of equal length, which do not overlap.
void copy_bytes(std::span<std::byte> target, std::span<const std::byte> source,
                const CopyPlan& plan);

}  // namespace stator::transfer
