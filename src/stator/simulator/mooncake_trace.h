// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <memory>
#include <string>

#include "stator/simulator/trace_source.h"

namespace stator::simulator {

struct MooncakeConfig {
  std::string name = "trace";   ///< of the file, for messages
  uint32_t block_tokens = 512;  ///< per hash id
  /// Reads everything first and sorts it by arrival; otherwise requests that go back in time are an
  /// error, and only one is in memory.
  bool sort = false;
};

/// The JSON Lines of the Mooncake traces, streamed: `timestamp` (ms, alias created_time),
/// `input_length` (input_tokens), `output_length` (output_tokens), `hash_ids`; optional request_id,
/// session_id, delay (delay_ms). Other fields are ignored, empty lines skipped.
/// `input` outlives the source. Source of the format: the Mooncake FAST'25 traces.
std::unique_ptr<TraceSource> make_mooncake_trace(std::istream& input, const MooncakeConfig& config);

}  // namespace stator::simulator
