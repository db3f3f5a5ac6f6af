// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"

namespace stator::simulator {

/// Workers that do the same, as a planner sees them.
struct PoolView {
  uint32_t ready = 0;
  uint32_t starting = 0;
  uint32_t draining = 0;
  uint64_t queued = 0;   ///< in the router
  uint64_t waiting = 0;  ///< in engines
  uint64_t running = 0;
  double kv_use = 0;  ///< part of the KV blocks of ready and draining workers
};

/// One worker that takes requests.
struct WorkerView {
  uint32_t worker = 0;
  bool computes_prompts = false;  ///< of a fleet that splits prefill from decode
  uint32_t waiting = 0;           ///< requests in its engine
  uint32_t running = 0;
  uint64_t kv_tokens = 0;  ///< in blocks in use
};

/// A fleet at one instant, and what it did since the last one that a planner saw.
struct FleetView {
  TimePoint now{};
  PoolView prefill;  ///< empty in a fleet without a split
  PoolView decode;
  Duration window{};
  uint64_t arrivals = 0;
  uint64_t completed = 0;
  uint64_t input_tokens = 0;   ///< of completed requests
  uint64_t output_tokens = 0;  ///< the same
  std::vector<WorkerView> workers;
};

/// How many workers there are to be; absent: as they are. Further ones start, surplus ones take
/// nothing new and go when they are idle, the youngest first. A pool never has less than one.
struct ScalingDecision {
  std::optional<uint32_t> prefill_workers;
  std::optional<uint32_t> workers;
  std::optional<TimePoint> next;  ///< when to ask again, later than now; absent: never
};

/// Decides how large a fleet is. A pure core: no clock, no I/O; the same views give the same
/// decisions.
class Planner {
 public:
  virtual ~Planner() = default;
  virtual std::optional<TimePoint> first() const = 0;
  virtual ScalingDecision decide(const FleetView& fleet) = 0;
};

struct ScalingStep {
  TimePoint time{};
  uint32_t number = 0;
};
/// "60s=4,120s=8": times that grow, numbers up to `high`. kInvalidArgument quotes what is wrong.
Result<std::vector<ScalingStep>> parse_steps(std::string_view text, uint32_t high);

/// Follows a script; each list is in the order of time.
std::unique_ptr<Planner> make_scripted_planner(std::vector<ScalingStep> prefill_workers,
                                               std::vector<ScalingStep> workers);

}  // namespace stator::simulator
