// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "stator/lab/simulator/json_text.h"

namespace stator::simulator {
namespace {

// Rates are collected in millionths of a token per second, as whole numbers.
constexpr double kRateUnit = 1e6;

double milliseconds(Duration duration) {
  return static_cast<double>(duration.count()) * 1e-6;
}

/// Mean time per token after the first; 0 for a single token.
Duration time_per_token(const RequestRecord& record) {
  return record.output_tokens < 2
             ? Duration()
             : (record.last_token - record.first_token) / (record.output_tokens - 1);
}

/// Tokens per second, in kRateUnit.
uint64_t rate_of(Duration each) {
  return each > Duration::zero()
             ? static_cast<uint64_t>(1e9 * kRateUnit / static_cast<double>(each.count()))
             : 0;
}

}  // namespace

std::string render_json(const RequestRecord& record) {
  static constexpr std::array<std::string_view, 5> kStatus = {"completed", "rejected", "unroutable",
                                                              "shed", "lost"};
  const auto at = [](TimePoint time) { return milliseconds(time.time_since_epoch()); };
  std::string out = fmt::format(
      R"({{"request_id":{},"line":{},"session_id":{},"turn_index":{},"status":"{}","arrival_ms":{},)",
      quote_json(record.request_id), record.line, quote_json(record.session), record.turn,
      kStatus[static_cast<size_t>(record.status)], at(record.arrival));
  out += fmt::format(
      R"("input_length":{},"output_length":{},"reused_tokens":{},"host_tokens":{},"router_overlap_blocks":{},)",
      record.input_tokens, record.output_tokens, record.cached_tokens, record.host_tokens,
      record.overlap_blocks);
  out += fmt::format(R"("prefill_worker":{},"decode_worker":{},"admissions":{},"migrations":{})",
                     record.prefill_worker, record.worker, record.admissions, record.migrations);
  if (record.status == RequestStatus::kCompleted) {
    out += fmt::format(
        R"(,"first_admit_ms":{},"first_token_ms":{},"last_token_ms":{},"ttft_ms":{},"ttst_ms":{},)",
        at(record.admitted), at(record.first_token), at(record.last_token),
        milliseconds(record.first_token - record.arrival),
        milliseconds(record.second_token - record.first_token));
    out += fmt::format(R"("itl_ms":{},"e2e_latency_ms":{})", milliseconds(time_per_token(record)),
                       milliseconds(record.last_token - record.arrival));
  }
  return out + "}\n";
}

void Recorder::on_arrival(TimePoint now) {
  timeline_.count_arrival();
  if (arrived_++ == 0) {
    first_arrival_ = now;
    last_end_ = now;
  }
}

WorkerReport& Recorder::at(uint32_t worker) {
  if (worker >= workers_.size()) {
    workers_.resize(worker + 1);
    busy_.resize(worker + 1);
  }
  return workers_[worker];
}

void Recorder::on_gap(Duration gap) {
  itl_.add(static_cast<uint64_t>(gap.count()), 1);
  user_.add(rate_of(gap), 1);
}

void Recorder::on_passes(uint32_t worker, const engine::SimOutcome& outcome) {
  WorkerReport& report = at(worker);
  report.passes += outcome.passes;
  report.dummy_passes += outcome.dummy_passes;
  report.preemptions += outcome.preemptions;
  offloaded_blocks_ += outcome.offloaded_blocks;
  busy_[worker] += outcome.end - outcome.start;
  for (const engine::SimOutcome::Gap& gap : outcome.gaps) {
    itl_.add(static_cast<uint64_t>(gap.duration.count()), gap.times);
    user_.add(rate_of(gap.duration), gap.times);
  }
}

void Recorder::on_admission(uint32_t worker, const RequestRecord& record,
                            const engine::SimOutcome::Admission& admission) {
  const uint32_t cached_tokens = admission.cached_tokens;
  timeline_.count_admission(record.input_tokens, std::min(cached_tokens, record.input_tokens));
  admitted_tokens_ += record.input_tokens;
  cached_tokens_ += std::min(cached_tokens, record.input_tokens);
  host_tokens_ += std::min(admission.host_tokens, record.input_tokens);
  WorkerReport& report = at(worker);
  report.input_tokens += record.input_tokens;
  report.cached_tokens += std::min(cached_tokens, record.input_tokens);
  if (record.admissions == 1) {
    first_admitted_tokens_ += record.input_tokens;
    first_cached_tokens_ += cached_tokens;
  }
}

bool Recorder::is_good(const RequestRecord& record) const {
  const auto within = [](Duration value, const std::optional<double>& bound) {
    return !bound || milliseconds(value) <= *bound;
  };
  return within(record.first_token - record.arrival, objectives_.ttft_ms) &&
         within(record.last_token - record.arrival, objectives_.e2e_ms) &&
         within(time_per_token(record), objectives_.tpot_ms);
}

void Recorder::on_end(const RequestRecord& record) {
  if (sink_) {
    sink_(record);
  }
  migrated_ += record.migrations > 0 ? 1 : 0;
  switch (record.status) {
    case RequestStatus::kCompleted:
      break;
    case RequestStatus::kRejected:
      ++rejected_;
      return;
    case RequestStatus::kUnroutable:
      ++unroutable_;
      return;
    case RequestStatus::kShed:
      ++shed_;
      return;
    case RequestStatus::kLost:
      ++lost_;
      return;
  }
  timeline_.count_end(record.output_tokens);
  ++completed_;
  WorkerReport& worker = at(record.worker);
  ++worker.requests;
  worker.output_tokens += record.output_tokens;
  input_tokens_ += record.input_tokens;
  output_tokens_ += record.output_tokens;
  last_end_ = std::max(last_end_, record.last_token);
  const auto count = [](Duration duration) { return static_cast<uint64_t>(duration.count()); };
  ttft_.add(count(record.first_token - record.arrival));
  e2e_.add(count(record.last_token - record.arrival));
  queue_.add(count(record.admitted - record.arrival));
  if (record.output_tokens > 1) {
    ttst_.add(count(record.second_token - record.first_token));
    const Duration each = time_per_token(record);
    tpot_.add(count(each));
    request_rate_.add(rate_of(each));
  }
  if (objectives_.any() && is_good(record)) {
    ++good_;
    good_output_tokens_ += record.output_tokens;
  }
}

Report Recorder::make_report() {
  const auto ratio = [](uint64_t part, uint64_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  Report report;
  report.requests = arrived_;
  report.completed = completed_;
  report.rejected = rejected_;
  report.unroutable = unroutable_;
  report.shed = shed_;
  report.lost = lost_;
  report.migrated = migrated_;
  report.input_tokens = input_tokens_;
  report.output_tokens = output_tokens_;
  report.duration_ms = milliseconds(last_end_ - first_arrival_);
  report.cached_ratio = ratio(cached_tokens_, admitted_tokens_);
  report.host_cached_ratio = ratio(host_tokens_, admitted_tokens_);
  report.offloaded_blocks = offloaded_blocks_;
  report.first_cached_ratio = ratio(first_cached_tokens_, first_admitted_tokens_);
  report.waiting_max = waiting_max_;
  report.ttft_ms = ttft_.summarize(1e-6);
  report.ttst_ms = ttst_.summarize(1e-6);
  report.tpot_ms = tpot_.summarize(1e-6);
  report.itl_ms = itl_.summarize(1e-6);
  report.e2e_ms = e2e_.summarize(1e-6);
  report.queue_ms = queue_.summarize(1e-6);
  report.user_rate = user_.summarize(1 / kRateUnit);
  report.request_rate = request_rate_.summarize(1 / kRateUnit);
  report.ttft_curve = ttft_.curve(1e-6);
  report.itl_curve = itl_.curve(1e-6);
  report.tpot_curve = tpot_.curve(1e-6);
  report.e2e_curve = e2e_.curve(1e-6);
  report.timeline = timeline_.points();
  if (objectives_.any()) {
    report.good = good_;
    report.good_output_tokens = good_output_tokens_;
  }
  for (size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].busy_ms = milliseconds(busy_[i]);
  }
  report.per_worker = workers_;
  for (const WorkerReport& worker : workers_) {
    report.passes += worker.passes;
    report.dummy_passes += worker.dummy_passes;
    report.preemptions += worker.preemptions;
  }
  return report;
}

}  // namespace stator::simulator
