// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/telemetry/request_facts.h"
#include "stator/telemetry/span.h"

namespace stator::telemetry {

/// What a request's marks mean as spans: `http-request` (the root, or the child of the client's
/// span), and below it `prepare`, `queue`, `route`, `prefill`, `hand-off`, `decode` once per
/// attempt, and `migration` from a lost worker to the next one's first token, linked to the attempt
/// that was lost. `decode` spans have the ids that `attempt_span` gives, so that what engines say
/// of themselves hangs below them. They are appended to `out`, and point into `facts`. Pure.
void make_spans(const RequestFacts& facts, SpanList& out);

/// The id of the span of a request's attempt (from 0 on): known to who asks the engine before the
/// span exists.
SpanId attempt_span(const TraceContext& request, uint32_t attempt);

}  // namespace stator::telemetry
