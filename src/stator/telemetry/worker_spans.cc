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
  explicit SpanMaker(const WorkerFacts& facts) : facts_(facts) {
    uint64_t parent = 0;
    std::memcpy(&parent, facts.parent.span.data(), sizeof parent);
    seed_ = mix64(parent ^ xxh3_64(facts.worker_id)) + facts.attempt;
  }

  std::vector<Span> make() {
    Span handled = span("handle_payload", facts_.parent.span, Duration{}, facts_.took);
    handled.kind = Span::Kind::kServer;
    handled.state = facts_.trace_state;
    handled.error = facts_.error;
    auto& with = handled.attributes;
    with.emplace_back("namespace", facts_.dynamo_namespace);
    with.emplace_back("component", facts_.component);
    with.emplace_back("endpoint", facts_.endpoint);
    with.emplace_back("instance_id", facts_.worker_id);
    with.emplace_back("attempt", int64_t{facts_.attempt});
    const SpanId handled_id = handled.id;
    out_.push_back(std::move(handled));
    add_generate(handled_id);
    return std::move(out_);
  }

 private:
  Span span(std::string_view name, const SpanId& parent, Duration from, Duration to) {
    const uint64_t made = mix64(seed_ + ++count_ * 0x9e3779b97f4a7c15ULL);
    Span out{.trace = facts_.parent.trace, .parent = parent, .name = name};
    std::memcpy(out.id.data(), &made, sizeof made);
    out.id[0] |= 1;  // never all zero
    out.start = facts_.received + from;
    out.end = facts_.received + to;
    return out;
  }

  void add_generate(const SpanId& parent) {
    Span made = span("engine.generate", parent, Duration{}, facts_.took);
    auto& with = made.attributes;
    with.emplace_back("model", facts_.model);
    with.emplace_back("disagg_role", std::string(facts_.role));
    with.emplace_back("input_tokens", int64_t{facts_.prompt_tokens});
    with.emplace_back("cached_tokens", int64_t{facts_.cached_tokens});
    with.emplace_back("output_tokens", int64_t{facts_.output_tokens});
    with.emplace_back("cancelled", facts_.cancelled);
    const bool answered = facts_.first_output > Duration::zero();
    if (answered) {
      with.emplace_back("ttft_ms", milliseconds(facts_.first_output));
    }
    if (answered && facts_.output_tokens > 1) {
      with.emplace_back("avg_itl_ms", milliseconds(facts_.took - facts_.first_output) /
                                          (facts_.output_tokens - 1));
    }
    if (!facts_.finish.empty()) {
      with.emplace_back("finish_reason", std::string(facts_.finish));
    }
    if (!facts_.error.empty()) {
      with.emplace_back("error_kind", facts_.error);
      made.error = facts_.error;
    }
    const SpanId id = made.id;
    out_.push_back(std::move(made));
    if (facts_.queued > Duration::zero()) {
      out_.push_back(span("engine.queue", id, Duration{}, facts_.queued));
    }
    if (answered) {
      out_.push_back(span("engine.prefill", id, facts_.queued, facts_.first_output));
      if (facts_.took > facts_.first_output && facts_.output_tokens > 1) {
        out_.push_back(span("engine.decode", id, facts_.first_output, facts_.took));
      }
    }
  }

  const WorkerFacts& facts_;
  std::vector<Span> out_;
  uint64_t seed_ = 0;
  uint64_t count_ = 0;
};

}  // namespace

std::vector<Span> make_worker_spans(const WorkerFacts& facts) {
  return SpanMaker(facts).make();
}

}  // namespace stator::telemetry
