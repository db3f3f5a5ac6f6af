// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/telemetry/span.h"
#include "stator/telemetry/trace_context.h"

namespace stator::telemetry {

/// What a worker knows of one request when it ends. Durations count from its arrival there.
struct WorkerFacts {
  TraceContext parent;  ///< of the frontend's span that asked
  std::string trace_state;
  std::string worker_id;
  std::string dynamo_namespace;
  std::string component;
  std::string endpoint;
  std::string model;
  std::string_view role;  ///< "aggregated", "prefill" or "decode"; static text
  WallTime received;
  Duration queued{};        ///< until the engine's first step; zero: not known
  Duration first_output{};  ///< zero: there was none
  Duration took{};
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t output_tokens = 0;
  uint16_t attempt = 0;
  bool cancelled = false;
  std::string_view finish;  ///< static text; empty: it did not finish
  std::string error;        ///< empty: it went well
};

/// `handle_payload` (a server's span below the frontend's) with `engine.generate` in it, and in
/// that one `engine.queue`, `engine.prefill` and `engine.decode` as far as they are known. Ids
/// follow from the parent's and the worker's, so that no two workers give the same. They are
/// appended to `out`, and point into `facts`.
void make_worker_spans(const WorkerFacts& facts, SpanList& out);

}  // namespace stator::telemetry
