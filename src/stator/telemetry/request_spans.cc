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
  explicit SpanMaker(const RequestFacts& facts) : facts_(facts) {}

  std::vector<Span> make() {
    out_.push_back(make_root());
    for (const Mark& mark : facts_.marks) {
      take(mark);
    }
    end_attempt(facts_.ended, facts_.error_type);
    return std::move(out_);
  }

 private:
  Span span(std::string_view name, TimePoint from, TimePoint to) {
    return {.trace = facts_.trace.trace,
            .id = derive(facts_.trace, kOther, ++others_),
            .parent = facts_.trace.span,
            .name = name,
            .start = facts_.wall(from),
            .end = facts_.wall(to)};
  }

  Span make_root() const {
    Span root{.trace = facts_.trace.trace,
              .id = facts_.trace.span,
              .parent = facts_.parent,
              .name = "http-request",
              .kind = Span::Kind::kServer,
              .start = facts_.received_wall,
              .end = facts_.wall(facts_.ended),
              .state = facts_.trace_state};
    auto& with = root.attributes;
    with.emplace_back("method", facts_.method);
    with.emplace_back("uri", facts_.path);
    with.emplace_back("status", int64_t{facts_.status});
    with.emplace_back("http.request.method", facts_.method);
    with.emplace_back("url.path", facts_.path);
    with.emplace_back("http.response.status_code", int64_t{facts_.status});
    if (!facts_.request_id.empty()) {
      with.emplace_back("request_id", facts_.request_id);
    }
    if (!facts_.x_request_id.empty()) {
      with.emplace_back("x_request_id", facts_.x_request_id);
    }
    if (!facts_.tenant.empty()) {
      with.emplace_back("tenant", facts_.tenant);
    }
    if (!facts_.model.empty()) {
      with.emplace_back("model", facts_.model);
      with.emplace_back("request_type", std::string(facts_.stream ? "stream" : "unary"));
      with.emplace_back("input_tokens", int64_t{facts_.prompt_tokens});
      with.emplace_back("cached_tokens", int64_t{facts_.cached_tokens});
      with.emplace_back("output_tokens", int64_t{facts_.output_tokens});
    }
    if (const auto ttft = facts_.ttft_ms()) {
      with.emplace_back("ttft_ms", *ttft);
    }
    if (const auto itl = facts_.itl_ms()) {
      with.emplace_back("avg_itl_ms", *itl);
    }
    if (facts_.worker) {
      with.emplace_back("decode_worker_id", std::to_string(*facts_.worker));
    }
    if (facts_.prefill_worker) {
      with.emplace_back("prefill_worker_id", std::to_string(*facts_.prefill_worker));
    }
    root.error = facts_.error_type;
    return root;
  }

  void take(const Mark& mark) {
    switch (mark.step) {
      case Step::kPrepared:
        out_.push_back(span("prepare", facts_.received, mark.at));
        out_.back().attributes.emplace_back("tokens", int64_t{facts_.prompt_tokens});
        route_from_ = mark.at;
        break;
      case Step::kQueued:
        add_route(mark, false);
        queued_ = mark.at;
        break;
      case Step::kRouted:
        if (queued_) {
          out_.push_back(span("queue", *queued_, mark.at));
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
          Span& done = out_.emplace_back(span("prefill", prefill_->at, mark.at));
          done.kind = Span::Kind::kClient;
          done.attributes.emplace_back("worker_id", std::to_string(prefill_->worker));
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
    Span& route = out_.emplace_back(span("route", route_from_, mark.at));
    if (chosen) {
      route.attributes.emplace_back("worker_id", std::to_string(mark.worker));
      route.attributes.emplace_back("overlap_tokens", int64_t{mark.tokens});
    }
    route_from_ = mark.at;
  }

  void first_token(const Mark& mark) {
    if (handed_) {
      out_.push_back(span("hand-off", *handed_, mark.at));
      handed_.reset();
    }
    if (lost_) {
      Span& move = out_.emplace_back(span("migration", *lost_, mark.at));
      move.attributes.emplace_back("worker_id", std::to_string(mark.worker));
      move.attributes.emplace_back("attempt", int64_t{attempt_});
      move.links.push_back(lost_span_);
      lost_.reset();
    }
    first_ = mark.at;
  }

  void end_attempt(TimePoint at, std::string_view error) {
    if (!submitted_) {
      return;
    }
    Span attempt = span("decode", submitted_->at, at);
    attempt.id = attempt_span(facts_.trace, attempt_);
    attempt.kind = Span::Kind::kClient;
    auto& with = attempt.attributes;
    with.emplace_back("worker_id", std::to_string(submitted_->worker));
    with.emplace_back("attempt", int64_t{attempt_});
    with.emplace_back("output_tokens", int64_t{facts_.output_tokens});
    if (first_) {
      const Duration wait = *first_ - submitted_->at;
      with.emplace_back("first_token_ms", std::chrono::duration<double, std::milli>(wait).count());
    }
    attempt.error = error;
    if (attempt_ > 0) {
      attempt.links.push_back(attempt_span(facts_.trace, attempt_ - 1));
    }
    out_.push_back(std::move(attempt));
    submitted_.reset();
    first_.reset();
    ++attempt_;
  }

  const RequestFacts& facts_;
  std::vector<Span> out_;
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

std::vector<Span> make_spans(const RequestFacts& facts) {
  return SpanMaker(facts).make();
}

}  // namespace stator::telemetry
