// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "stator/lab/simulator/trace_source.h"

namespace stator::simulator {

/// How to read a trace.
struct TraceOptions {
  std::string name = "trace";   ///< of the file, for messages
  std::string format = "auto";  ///< one of trace_format_names()
  uint32_t block_tokens = 0;    ///< per hash id; 0 = the format's: 512, or what the trace says
  /// Reads everything first and sorts it by arrival; otherwise requests that go back in time are an
  /// error, and only one is in memory.
  bool sort = false;
};

/// "auto" first.
std::vector<std::string> trace_format_names();

/// The requests of a trace, in the order of their arrivals; `input` outlives them. "auto" looks at
/// the first lines. kInvalidArgument for a trace it does not know.
Result<std::unique_ptr<TraceSource>> open_trace(std::istream& input, const TraceOptions& options);

/// Sorts, or checks that there is nothing to sort. Turns of sessions, and what waits for other
/// requests, may come in any order.
std::unique_ptr<TraceSource> make_ordered(std::unique_ptr<TraceSource> trace,
                                          const TraceOptions& options);

/// The first `requests` of a trace.
std::unique_ptr<TraceSource> make_limited(std::unique_ptr<TraceSource> trace, uint64_t requests);

}  // namespace stator::simulator
