// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/core/result.h"
#include "stator/inference/handoff.h"

namespace stator::engine {

/// Whether an engine of kind `engine` with this ability does that part of a request: kUnsupported,
/// and why, where it has another role or does not understand the prompt's `giver`
/// (HandoffAbility::kind).
Status check_phase(inference::Phase phase, std::string_view giver,
                   const inference::HandoffAbility& ability, std::string_view engine);

}  // namespace stator::engine
