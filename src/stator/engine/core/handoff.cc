// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/api/handoff.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "stator/engine/core/phase.h"

namespace stator::engine {
namespace {

constexpr std::array<std::string_view, kWorkerRoleCount> kNames = {"aggregated", "prefill",
                                                                   "decode"};

}  // namespace

std::string_view to_string(WorkerRole role) {
  return kNames[static_cast<size_t>(role)];
}

std::optional<WorkerRole> find_role(std::string_view name) {
  const auto* found = std::ranges::find(kNames, name);
  if (found == kNames.end()) {
    return std::nullopt;
  }
  return static_cast<WorkerRole>(found - kNames.begin());
}

Status check_phase(Phase phase, std::string_view giver, const HandoffAbility& ability,
                   std::string_view engine) {
  if (phase == Phase::kWhole) {
    return ability.role == WorkerRole::kDecode && !ability.runs_whole
               ? Status(Error(Code::kUnsupported,
                              fmt::format("engine '{}' here only goes on from prompts that a "
                                          "prefill worker has computed",
                                          engine)))
               : Status();
  }
  const WorkerRole wanted = phase == Phase::kPrefill ? WorkerRole::kPrefill : WorkerRole::kDecode;
  if (ability.role != wanted) {
    return Error(Code::kUnsupported, fmt::format("engine '{}' is no {} worker (worker.role)",
                                                 engine, to_string(wanted)));
  }
  if (giver != ability.kind) {
    return Error(Code::kUnsupported, fmt::format("a prompt handed over by '{}' is nothing for '{}'",
                                                 giver, ability.kind));
  }
  return {};
}

}  // namespace stator::engine
