// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/quarantine_check.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "stator/core/hash.h"

namespace stator::frontend {
namespace {

/// Equal for equal prompts to equal models.
uint64_t fingerprint_of(const GenerationPlan& plan, const std::vector<TokenId>& prompt) {
  return xxh3_64(std::as_bytes(std::span(prompt))) ^ mix64(xxh3_64(plan.model->name));
}

}  // namespace

Status check_quarantine(const GenerationPlan& plan, FleetService& fleet, TimePoint now) {
  if (!fleet.any_quarantined()) {
    return {};
  }
  for (const auto& prompt : plan.prompts) {
    const Duration left = fleet.quarantined(fingerprint_of(plan, prompt), now);
    if (left > Duration::zero()) {
      return Error(
          Code::kUnavailable,
          fmt::format("workers died while they ran this request; it is refused for another "
                      "{} s (frontend.poison_workers)",
                      std::chrono::ceil<std::chrono::seconds>(left).count()));
    }
  }
  return {};
}

void quarantine(const GenerationPlan& plan, uint32_t prompt, FleetService& fleet, TimePoint now) {
  fleet.quarantine(fingerprint_of(plan, plan.prompts[prompt]), now);
}

}  // namespace stator::frontend
