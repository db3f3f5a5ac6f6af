// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/frontend/fleet_service.h"
#include "stator/frontend/generation.h"

namespace stator::frontend {

/// Refuses a request under which workers died, for a while (frontend.poison_workers). Nothing is
/// hashed while no prompt is in quarantine.
Status check_quarantine(const GenerationPlan& plan, FleetService& fleet, TimePoint now);
/// Puts one of its prompts there.
void quarantine(const GenerationPlan& plan, uint32_t prompt, FleetService& fleet, TimePoint now);

}  // namespace stator::frontend
