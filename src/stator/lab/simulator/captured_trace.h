// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/lab/simulator/line_reader.h"
#include "stator/lab/simulator/trace_source.h"

namespace stator::simulator {

/// Requests that NVIDIA Dynamo recorded (`dynamo.request.trace.v1`), each line an event or
/// `{"timestamp", "event"}`. `request_end` events count, with what `replay` says of their prompt;
/// tool events show in the times between requests. Read whole and sorted by the time of receipt,
/// which becomes the arrival; the trace's own block size is used.
///
/// With an `agent_context` in every row the requests of a session follow each other as recorded: a
/// request waits for the one before in its session, the first one of a child session for what its
/// parent had asked before, and a parent's next one for the children that had ended, each with the
/// pause that was recorded. A row has one as all have, or none has.
Result<std::unique_ptr<TraceSource>> make_captured_trace(LineReader& lines);

}  // namespace stator::simulator
