// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/worker_spans.h"

#include <cstring>

#include "stator/core/hash.h"
#include "stator/core/random.h"

namespace stator::telemetry {
namespace {

double milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

class SpanMaker {
 public:
  SpanMaker(const WorkerFacts& facts, SpanList& out) : facts_(facts), out_(out) {
    uint64_t parent = 0;
    std::memcpy(&parent, facts.parent.span.data(), sizeof parent);
    seed_ = mix64(parent ^ xxh3_64(facts.worker_id)) + facts.attempt;
  }

  void make() {
    Span& handled = add_span("handle_payload", facts_.parent.span, Duration{}, facts_.took);
    handled.kind = Span::Kind::kServer;
    handled.state = facts_.trace_state;
    handled.error = facts_.error;
    handled.add("namespace", std::string_view(facts_.dynamo_namespace));
    handled.add("component", std::string_view(facts_.component));
    handled.add("endpoint", std::string_view(facts_.endpoint));
    handled.add("instance_id", std::string_view(facts_.worker_id));
    handled.add("attempt", int64_t{facts_.attempt});
    add_generate(SpanId(handled.id));
  }

 private:
  Span& add_span(std::string_view name, const SpanId& parent, Duration from, Duration to) {
    const uint64_t made = mix64(seed_ + ++count_ * 0x9e3779b97f4a7c15ULL);
    Span& out = out_.add();
    out.trace = facts_.parent.trace;
    out.parent = parent;
    out.name = name;
    std::memcpy(out.id.data(), &made, sizeof made);
    out.id[0] |= 1;  // never all zero
    out.start = facts_.received + from;
    out.end = facts_.received + to;
    return out;
  }

  void add_generate(const SpanId& parent) {
    Span& made = add_span("engine.generate", parent, Duration{}, facts_.took);
    made.add("model", std::string_view(facts_.model));
    made.add("disagg_role", facts_.role);
    made.add("input_tokens", int64_t{facts_.prompt_tokens});
    made.add("cached_tokens", int64_t{facts_.cached_tokens});
    made.add("output_tokens", int64_t{facts_.output_tokens});
    made.add("cancelled", facts_.cancelled);
    const bool answered = facts_.first_output > Duration::zero();
    if (answered) {
      made.add("ttft_ms", milliseconds(facts_.first_output));
    }
    if (answered && facts_.output_tokens > 1) {
      made.add("avg_itl_ms",
               milliseconds(facts_.took - facts_.first_output) / (facts_.output_tokens - 1));
    }
    if (!facts_.finish.empty()) {
      made.add("finish_reason", facts_.finish);
    }
    if (!facts_.error.empty()) {
      made.add("error_kind", std::string_view(facts_.error));
      made.error = facts_.error;
    }
    add_phases(SpanId(made.id), answered);
  }

  void add_phases(const SpanId& generate, bool answered) {
    if (facts_.queued > Duration::zero()) {
      add_span("engine.queue", generate, Duration{}, facts_.queued);
    }
    if (!answered) {
      return;
    }
    add_span("engine.prefill", generate, facts_.queued, facts_.first_output);
    if (facts_.took > facts_.first_output && facts_.output_tokens > 1) {
      add_span("engine.decode", generate, facts_.first_output, facts_.took);
    }
  }

  const WorkerFacts& facts_;
  SpanList& out_;
  uint64_t seed_ = 0;
  uint64_t count_ = 0;
};

}  // namespace

void make_worker_spans(const WorkerFacts& facts, SpanList& out) {
  SpanMaker(facts, out).make();
}

}  // namespace stator::telemetry
