// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/lab/simulator/json_row.h"
#include "stator/lab/simulator/line_reader.h"
#include "stator/lab/simulator/trace_source.h"

namespace stator::simulator {

/// Who says when a request of a session comes.
enum class SessionOrder : uint8_t {
  kTurns,  ///< the turn before, unless the row has `wait_for`
  kGraph,  ///< `wait_for` alone; without, it comes at its timestamp
};

struct MooncakeConfig {
  uint32_t block_tokens = 512;  ///< per hash id
  SessionOrder order = SessionOrder::kTurns;
  JsonRow::TimeUnit time_unit = JsonRow::TimeUnit::kMilliseconds;  ///< of timestamps
};

/// The JSON Lines of the Mooncake traces, streamed: `timestamp` (ms, alias created_time),
/// `input_length` (input_tokens), `output_length` (output_tokens), `hash_ids`; optional request_id,
/// session_id, delay (delay_ms), priority, strict_priority, and of agents wait_for and
/// tool_wait_ms. Other fields are ignored, blank lines skipped.
/// Source of the format: the Mooncake FAST'25 traces; of its agentic form: NVIDIA Dynamo.
std::unique_ptr<TraceSource> make_mooncake_trace(LineReader lines, const MooncakeConfig& config);

/// One line of such a trace, with its end.
std::string render_mooncake(const TraceRequest& request);

}  // namespace stator::simulator
