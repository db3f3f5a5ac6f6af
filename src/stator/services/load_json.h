// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "stator/services/slot_tracker.h"

namespace stator::services {

/// {"loads":[{"worker_id","dp_rank","<prefix>_prefill_tokens","<prefix>_decode_blocks",
/// "active_requests"}]}; `prefix` is "active" or "potential". Potential loads also say that nothing
/// waits: these services keep no queue.
std::string render_loads(std::span<const SlotLoad> loads, std::string_view prefix);

}  // namespace stator::services
