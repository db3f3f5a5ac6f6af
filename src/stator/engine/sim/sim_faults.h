// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "stator/core/clock.h"
#include "stator/core/result.h"

namespace stator {
class ConfigSchema;
class Metrics;
}  // namespace stator

namespace stator::engine {

class Engine;

/// What goes wrong with a live simulated engine, for tests of what stands before it. (How slow it
/// is and when it is ready are no faults: SimKnobs.)
struct SimFaults {
  double refuse_rate = 0;            ///< of requests: refused as by a full engine
  double fail_rate = 0;              ///< of requests: a failure in the place of a further token
  double hang_rate = 0;              ///< of requests: no further token and no end, ever
  uint32_t after_tokens = 0;         ///< of an answer, until its request fails or hangs
  uint64_t freeze_after_tokens = 0;  ///< of all answers, until the engine stands still; 0 = never
  Duration freeze_time = std::chrono::seconds(10);
  uint64_t die_after_tokens = 0;  ///< of all answers, until the process dies; 0 = never
  /// Of messages with KV events, together at most 1: never told, told twice, told behind the next.
  double lose_events = 0;
  double repeat_events = 0;
  double reorder_events = 0;
  uint64_t seed = 0;  ///< of the choice of requests and messages

  /// Of those of the engine.
  bool any() const {
    return refuse_rate > 0 || fail_rate > 0 || hang_rate > 0 || freeze_after_tokens > 0 ||
           die_after_tokens > 0;
  }
  bool any_of_events() const { return lose_events > 0 || repeat_events > 0 || reorder_events > 0; }
};

/// kInvalidArgument: the parts of the requests, or of the messages, add up to more than all.
Status validate(const SimFaults& faults);

/// `faults` outlive the schema; their values are the defaults.
void describe(ConfigSchema& schema, SimFaults& faults);

/// `engine` with those faults (they are valid); what it does otherwise is the engine's. It computes
/// on for those that fail or hang. Which requests are struck
/// depends on the seed and the order in which they are submitted. `die` is called at most once, on
/// the engine's thread, in the place of a token. A frozen engine blocks its thread, so
/// close_session may wait for freeze_time; stop() ends it. stator_sim_faults_total counts what
/// happened. `metrics` outlive it.
std::unique_ptr<Engine> make_faulty_engine(std::unique_ptr<Engine> engine, const SimFaults& faults,
                                           std::function<void()> die, Metrics& metrics);

}  // namespace stator::engine
