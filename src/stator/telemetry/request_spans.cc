// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/request_spans.h"

#include <cstring>

#include "stator/core/random.h"

namespace stator::telemetry {
namespace {

SpanId derive(const TraceContext& request, uint64_t kind, uint64_t number) {
  uint64_t seed = 0;
  std::memcpy(&seed, request.span.data(), sizeof seed);
  const uint64_t made = mix64(seed ^ mix64(kind << 32 | (number + 1)));
  SpanId id;
  std::memcpy(id.data(), &made, sizeof made);
  id[0] |= 1;  // never all zero
  return id;
}

constexpr uint64_t kAttempt = 1;
constexpr uint64_t kOther = 2;

class SpanMaker {
 public:
  SpanMaker(const RequestFacts& facts, SpanList& out) : facts_(facts), out_(out) {}

  void make() {
    add_root();
    for (const Mark& mark : facts_.marks) {
      take(mark);
    }
    end_attempt(facts_.ended, facts_.error_type);
  }

 private:
  Span& add_span(std::string_view name, TimePoint from, TimePoint to) {
    Span& span = out_.add();
    span.trace = facts_.trace.trace;
    span.id = derive(facts_.trace, kOther, ++others_);
    span.parent = facts_.trace.span;
    span.name = name;
    span.start = facts_.wall(from);
    span.end = facts_.wall(to);
    return span;
  }

  void add_root() {
    Span& root = out_.add();
    root.trace = facts_.trace.trace;
    root.id = facts_.trace.span;
    root.parent = facts_.parent;
    root.name = "http-request";
    root.kind = Span::Kind::kServer;
    root.start = facts_.received_wall;
    root.end = facts_.wall(facts_.ended);
    root.state = facts_.trace_state;
    root.error = facts_.error_type;
    root.add("method", std::string_view(facts_.method));
    root.add("uri", std::string_view(facts_.path));
    root.add("status", int64_t{facts_.status});
    root.add("http.request.method", std::string_view(facts_.method));
    root.add("url.path", std::string_view(facts_.path));
    root.add("http.response.status_code", int64_t{facts_.status});
    if (!facts_.request_id.empty()) {
      root.add("request_id", std::string_view(facts_.request_id));
    }
    if (!facts_.x_request_id.empty()) {
      root.add("x_request_id", std::string_view(facts_.x_request_id));
    }
    if (!facts_.tenant.empty()) {
      root.add("tenant", std::string_view(facts_.tenant));
    }
    if (!facts_.model.empty()) {
      root.add("model", std::string_view(facts_.model));
      root.add("request_type", std::string_view(facts_.stream ? "stream" : "unary"));
      root.add("input_tokens", int64_t{facts_.prompt_tokens});
      root.add("cached_tokens", int64_t{facts_.cached_tokens});
      root.add("output_tokens", int64_t{facts_.output_tokens});
    }
    if (const auto ttft = facts_.ttft_ms()) {
      root.add("ttft_ms", *ttft);
    }
    if (const auto itl = facts_.itl_ms()) {
      root.add("avg_itl_ms", *itl);
    }
    if (facts_.worker) {
      root.add("decode_worker_id", Span::Id{*facts_.worker});
    }
    if (facts_.prefill_worker) {
      root.add("prefill_worker_id", Span::Id{*facts_.prefill_worker});
    }
  }

  void take(const Mark& mark) {
    switch (mark.step) {
      case Step::kPrepared:
        add_span("prepare", facts_.received, mark.at).add("tokens", int64_t{facts_.prompt_tokens});
        route_from_ = mark.at;
        break;
      case Step::kQueued:
        add_route(mark, false);
        queued_ = mark.at;
        break;
      case Step::kRouted:
        if (queued_) {
          add_span("queue", *queued_, mark.at);
          queued_.reset();
        } else {
          add_route(mark, true);
        }
        break;
      case Step::kPrefill:
        prefill_ = mark;
        break;
      case Step::kHandedOver:
        if (prefill_) {
          Span& done = add_span("prefill", prefill_->at, mark.at);
          done.kind = Span::Kind::kClient;
          done.add("worker_id", Span::Id{prefill_->worker});
          prefill_.reset();
        }
        handed_ = mark.at;
        break;
      case Step::kSubmitted:
        submitted_ = mark;
        break;
      case Step::kFirstToken:
        first_token(mark);
        break;
      case Step::kLost:
        lost_ = mark.at;
        lost_span_ = attempt_span(facts_.trace, attempt_);
        end_attempt(mark.at, "worker_lost");
        route_from_ = mark.at;
        break;
      case Step::kEnded:
        break;
    }
  }

  void add_route(const Mark& mark, bool chosen) {
    Span& route = add_span("route", route_from_, mark.at);
    if (chosen) {
      route.add("worker_id", Span::Id{mark.worker});
      route.add("overlap_tokens", int64_t{mark.tokens});
    }
    route_from_ = mark.at;
  }

  void first_token(const Mark& mark) {
    if (handed_) {
      add_span("hand-off", *handed_, mark.at);
      handed_.reset();
    }
    if (lost_) {
      Span& move = add_span("migration", *lost_, mark.at);
      move.add("worker_id", Span::Id{mark.worker});
      move.add("attempt", int64_t{attempt_});
      move.link = lost_span_;
      lost_.reset();
    }
    first_ = mark.at;
  }

  void end_attempt(TimePoint at, std::string_view error) {
    if (!submitted_) {
      return;
    }
    Span& attempt = add_span("decode", submitted_->at, at);
    attempt.id = attempt_span(facts_.trace, attempt_);
    attempt.kind = Span::Kind::kClient;
    attempt.add("worker_id", Span::Id{submitted_->worker});
    attempt.add("attempt", int64_t{attempt_});
    attempt.add("output_tokens", int64_t{facts_.output_tokens});
    if (first_) {
      const Duration wait = *first_ - submitted_->at;
      attempt.add("first_token_ms", std::chrono::duration<double, std::milli>(wait).count());
    }
    attempt.error = error;
    if (attempt_ > 0) {
      attempt.link = attempt_span(facts_.trace, attempt_ - 1);
    }
    submitted_.reset();
    first_.reset();
    ++attempt_;
  }

  const RequestFacts& facts_;
  SpanList& out_;
  uint64_t others_ = 0;
  uint32_t attempt_ = 0;
  TimePoint route_from_ = facts_.received;
  std::optional<TimePoint> queued_;
  std::optional<Mark> prefill_;
  std::optional<TimePoint> handed_;
  std::optional<Mark> submitted_;
  std::optional<TimePoint> first_;
  std::optional<TimePoint> lost_;
  SpanId lost_span_{};
};

}  // namespace

SpanId attempt_span(const TraceContext& request, uint32_t attempt) {
  return derive(request, kAttempt, attempt);
}

void make_spans(const RequestFacts& facts, SpanList& out) {
  SpanMaker(facts, out).make();
}

}  // namespace stator::telemetry
