// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>

#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/core/log.h"
#include "stator/lab/fault_sim/fault_simulation.h"

namespace stator::cli {
namespace {

Result<uint64_t> read_number(const Invocation& invocation, std::string_view flag,
                             uint64_t otherwise) {
  const auto typed = invocation.options.find(flag);
  if (typed == invocation.options.end()) {
    return otherwise;
  }
  const std::string& text = typed->second;
  uint64_t value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} must be a whole number from 0, not '{}'", flag, text));
  }
  return value;
}

}  // namespace

/// `stator sim MODEL --fault …`: one seed with its log, or many with their violations.
Status run_sim_faults(Invocation& invocation) {
  STATOR_TRY(const auto faults, fault_sim::FaultSet::parse(invocation.options.at("--fault")));
  STATOR_TRY(const uint64_t first, read_number(invocation, "--seed", 42));
  STATOR_TRY(const uint64_t count, read_number(invocation, "--seeds", 1));
  log::configure(log::Format::kHuman, "off");  // its times are not ours
  STATOR_TRY(const auto simulation, fault_sim::FaultSimulation::create(model_of(invocation)));
  uint64_t broken = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    fault_sim::Options options{.seed = seed, .faults = faults, .print = nullptr};
    if (count == 1) {
      options.print = [](std::string_view line) { print(fmt::format("{}\n", line)); };
    }
    const fault_sim::Outcome out = simulation->run(options);
    broken += out.violations.empty() ? 0 : 1;
    for (const std::string& violation : out.violations) {
      print(fmt::format("seed {}: {}\n", seed, violation));
    }
    if (count == 1) {
      print(fmt::format(
          "seed {}: {} requests, {} exact, {} refused, {} gone; {} moves, {} "
          "queued, {} streams resumed, {} late deltas dropped, {} messages in {:.0f} s; log "
          "{:016x}\n",
          seed, out.requests, out.exact, out.refused, out.gone, out.moves, out.queued, out.resumed,
          out.stale, out.messages, out.virtual_s, out.log_hash));
    }
  }
  if (count > 1) {
    print(fmt::format("{} seeds, {} with violations\n", count, broken));
  }
  if (broken > 0) {
    return Error(Code::kInternal, fmt::format("{} of {} seeds broke an invariant", broken, count));
  }
  return {};
}

}  // namespace stator::cli
