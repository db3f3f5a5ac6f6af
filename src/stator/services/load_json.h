// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "stator/services/slot_tracker.h"

namespace stator::json {
class Writer;
}

namespace stator::services {

/// "worker_id", "dp_rank", "<prefix>_prefill_tokens", "<prefix>_decode_blocks", "active_requests"
/// of the object that is open; `prefix` is "active" or "potential".
void write_load(json::Writer& out, const SlotLoad& load, std::string_view prefix);

/// The array that POST /potential_loads answers.
std::string render_potential_loads(std::span<const SlotLoad> loads);

}  // namespace stator::services
