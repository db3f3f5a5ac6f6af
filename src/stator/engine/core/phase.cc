// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/phase.h"

#include <fmt/format.h>

namespace stator::engine {

Status check_phase(inference::Phase phase, std::string_view giver,
                   const inference::HandoffAbility& ability, std::string_view engine) {
  if (phase == inference::Phase::kWhole) {
    return ability.role == inference::WorkerRole::kDecode && !ability.runs_whole
               ? Status(Error(Code::kUnsupported,
                              fmt::format("engine '{}' here only goes on from prompts that a "
                                          "prefill worker has computed",
                                          engine)))
               : Status();
  }
  const inference::WorkerRole wanted = phase == inference::Phase::kPrefill
                                           ? inference::WorkerRole::kPrefill
                                           : inference::WorkerRole::kDecode;
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
