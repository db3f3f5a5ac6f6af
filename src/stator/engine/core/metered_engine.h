// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/engine/api/engine.h"

namespace stator::engine {

/// What became of one request at a worker, for spans.
struct ServedRequest {
  std::shared_ptr<const inference::RequestContext> context;  ///< of the request; null: it had none
  std::string model;
  inference::Phase phase = inference::Phase::kWhole;
  WallTime received;        ///< by the worker
  Duration queued{};        ///< until its first step; zero where the engine does not tell
  Duration first_output{};  ///< from its arrival to the first output; zero: there was none
  Duration took{};          ///< from its arrival to its end
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t output_tokens = 0;
  uint16_t attempt = 0;
  bool cancelled = false;
  std::string_view finish;  ///< "stop", "length", …; static text; empty: none
  std::string error;        ///< name of its code; empty: it went well
};

/// What a worker's metrics say about whose they are, and who hears of each request's end.
struct MeterOptions {
  std::string model;
  /// dynamo_namespace, dynamo_component, dynamo_endpoint and worker_id (hex): in front of `model`.
  MetricLabels place;
  uint32_t queue_capacity = 0;  ///< requests that may wait in the engine; 0: not known
  /// Called on the engine's thread (or who cancels), for requests with a context, outside of locks:
  /// hand it on and return. Empty: nobody.
  std::function<void(ServedRequest)> on_served{};
};

/// The engine with the worker families that NVIDIA Dynamo's dashboards and planner read
/// (dynamo_component_*, dynamo_work_handler_*): counts what comes in and goes out. Bytes are those
/// of the payload: token ids and texts, without the framing of any wire.
///
/// M1  A request counts as in flight from submit() until its last word, its cancellation or the end
///     of its session, whichever is first; exactly one of them ends it.
///
/// Threads: as the engine's. Costs a map entry per request and a lookup per first and last output.
std::unique_ptr<Engine> make_metered_engine(std::unique_ptr<Engine> engine, MeterOptions options,
                                            Clock& clock, Metrics& metrics);

}  // namespace stator::engine
