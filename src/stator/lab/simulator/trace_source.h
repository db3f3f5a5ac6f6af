// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"

namespace stator::simulator {

/// One request of a trace.
struct TraceRequest {
  uint64_t line = 0;   ///< where it stands, for messages and records; from 1
  Duration arrival{};  ///< since the trace's beginning
  uint32_t input_tokens = 1;
  uint32_t output_tokens = 1;
  /// Identity of the prompt's blocks of TraceSource::block_tokens(): equal leading ids are a shared
  /// prefix. Empty: it shares nothing with anybody.
  std::vector<uint64_t> hash_ids;
  std::string request_id;         ///< empty: the line
  std::string session;            ///< turns of one session follow each other; empty: none
  std::optional<Duration> delay;  ///< after the turn before; else the difference of arrivals
  uint32_t turn = 0;              ///< of its session; Arrivals counts them
  /// Of agents: it comes `delay` after the last of these requests has ended, or with none of them
  /// at its arrival, and the session only says where it belongs. Absent: the session decides.
  std::optional<std::vector<std::string>> wait_for;
  double priority = 0;           ///< seconds of head start in the router's queue
  uint32_t strict_priority = 0;  ///< a higher one goes first there
};

/// Where requests come from, in the order of their arrivals. To add a format: a class of its own,
/// and a line in trace_format.cc.
class TraceSource {
 public:
  virtual ~TraceSource() = default;
  /// The next request into `request`, whose memory is reused; false at the end. Errors name the
  /// line and the field.
  virtual Result<bool> next(TraceRequest& request) = 0;
  /// Tokens per entry of hash_ids; the last one of a request may stand for fewer.
  virtual uint32_t block_tokens() const = 0;
  /// Of the file, for messages about a line that was read before; empty: no file.
  virtual std::string_view name() const { return {}; }
};

/// The longest prompt or answer that a trace may ask for.
inline constexpr uint32_t kTraceTokensMax = 100'000'000;

}  // namespace stator::simulator
