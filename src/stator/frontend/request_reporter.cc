// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/request_reporter.h"

#include <algorithm>
#include <utility>

#include "stator/core/hash.h"
#include "stator/core/log.h"
#include "stator/core/random.h"
#include "stator/frontend/pooling/pool_plan.h"
#include "stator/frontend/request_record.h"
#include "stator/json/writer.h"
#include "stator/parsers/family_spec.h"
#include "stator/telemetry/request_spans.h"

namespace stator::frontend {
namespace {

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

RequestRecord* record_in(const std::shared_ptr<net::RequestNotes>& notes) {
  return static_cast<RequestRecord*>(notes.get());
}

/// Hashes that cover the whole prompt, as a replay needs them: of its full
/// blocks, and of what is left with what stands before it.
std::vector<uint64_t> blocks_of(const GenerationPlan& plan) {
  std::vector<uint64_t> out;
  for (const blocks::SequenceHash hash : plan.sequences.front()) {
    out.push_back(hash.value());
  }
  const std::span<const TokenId> tokens = plan.prompts.front();
  const size_t rest = tokens.size() % plan.model->block_size;
  if (rest > 0) {
    const uint64_t tail = xxh3_64(std::as_bytes(tokens.last(rest)));
    out.push_back(mix64(tail ^ (out.empty() ? plan.hash_seed() : out.back())));
  }
  return out;
}

std::string_view finish_of(const Generation& generation, std::string_view error_type) {
  if (!error_type.empty()) {
    return error_type == "cancelled" ? "cancelled" : "error";
  }
  const GenerationPlan& plan = generation.plan();
  const uint64_t choices = plan.prompts.size() * plan.choices_per_prompt;
  return generation.output_tokens() >= choices * plan.stop.front().max_tokens ? "length" : "stop";
}

/// Shows the request's trace beside the value, if it is sampled.
void exemplify(const ActiveRequest& active, const Histogram& histogram, double value, WallTime at) {
  const RequestRecord* record = record_in(active.notes);
  if (record != nullptr && record->facts.trace.sampled) {
    histogram.exemplify(value, telemetry::to_hex(record->facts.trace.trace), at);
  }
}

MigrationKind kind_of(const request::LostWorker& lost) {
  return lost.had_tokens ? MigrationKind::kOngoingRequest : MigrationKind::kNewRequest;
}

}  // namespace

/// Off the tenant's budget.
void RequestReporter::charge_tokens(const ActiveRequest& active, uint32_t tokens) const {
  if (active.notes != nullptr) {
    record_in(active.notes)->lease.charge_tokens(environment_.shard.now(), tokens);
  }
}

std::string receipt_id_of(const GenerationPlan& plan, const ChoiceRun& run) {
  const std::string& id = plan.answer.request_id;
  return run.facts().index == 0 ? id : fmt::format("{}-{}", id, run.facts().index);
}

void RequestReporter::begun(ActiveRequest& active) const {
  note_plan(active);
  active.series.started.add();
  active.series.inflight.add(1);
  active.series.active.add(1);
  active.series.queued.add(1);
  if (const std::string& adapter = active.generation.plan().adapter; !adapter.empty()) {
    environment_.metrics.adapter(adapter).arrivals.add();
    environment_.metrics.adapter(adapter).active.add(1);
  }
  active.series.input_tokens.observe(active.generation.prompt_tokens());
}

void RequestReporter::note_plan(ActiveRequest& active) const {
  charge_tokens(active, active.generation.prompt_tokens());
  RequestRecord* record = record_in(active.notes);
  if (record == nullptr || record->telemetry == nullptr) {
    return;
  }
  const GenerationPlan& plan = active.generation.plan();
  telemetry::RequestFacts& facts = record->facts;
  facts.request_id = plan.answer.request_id;
  facts.model = plan.answer.model;
  facts.stream = plan.answer.stream;
  facts.prompt_tokens = active.generation.prompt_tokens();
  if (facts.tenant.empty()) {
    facts.tenant = plan.routing.tenant;
  }
  record->note({.step = telemetry::Step::kPrepared, .at = environment_.shard.now()});
  record->running = record->telemetry->list_running(facts);
  if (record->telemetry->wants_blocks()) {
    facts.block_size = plan.model->block_size;
    facts.blocks = blocks_of(plan);
  }
}

void RequestReporter::step(ActiveRequest& active, const ChoiceRun& run, telemetry::Step step,
                           WorkerKey worker, uint32_t tokens) const {
  const TimePoint now = environment_.shard.now();
  environment_.meters.step(active.seats[run.facts().index].place, step, now,
                           run.prompt().handover().active());
  RequestRecord* record = record_in(active.notes);
  if (record == nullptr || run.facts().index != 0) {
    return;
  }
  record->note({.step = step, .at = now, .worker = worker.worker.value(), .tokens = tokens},
               worker.dp_rank);
}

void RequestReporter::accepted(const ActiveRequest& active, const ChoiceRun& run) const {
  environment_.meters.accepted(active.seats[run.facts().index].place, environment_.shard.now());
}

void RequestReporter::output(ActiveRequest& active, const ChoiceRun& run,
                             const inference::Delta& delta, TimePoint last_token) const {
  if (delta.token_count == 0) {
    return;
  }
  active.series.output_tokens.add(delta.token_count);
  RequestRecord* const record = record_in(active.notes);
  if (record != nullptr && record->running != nullptr) {
    record->running->add_tokens(delta.token_count);
    if (delta.offset == 0) {
      record->running->first_token(environment_.shard.now(), delta.cached_tokens);
    }
  }
  if (delta.offset == 0) {
    first_token(active, run, delta);
  } else {
    active.series.inter_token_latency.observe(
        seconds(run.facts().last_token - last_token) / delta.token_count, delta.token_count);
  }
}

/// Of a choice, whichever attempt brought it.
void RequestReporter::first_token(ActiveRequest& active, const ChoiceRun& run,
                                  const inference::Delta& delta) const {
  net::Shard& shard = environment_.shard;
  const double took = seconds(shard.now() - active.generation.received());
  active.series.time_to_first_token.observe(took);
  exemplify(active, active.series.time_to_first_token, took, shard.clock().wall_now());
  if (std::exchange(active.queued, false)) {
    active.series.queued.add(-1);
  }
  if (!run.prompt().from()) {
    active.series.expected_cached_tokens.add(run.facts().expected_cached_tokens);
    active.series.found_cached_tokens.add(delta.cached_tokens);
    if (delta.cached_tokens < run.facts().expected_cached_tokens) {
      const GenerationPlan& plan = active.generation.plan();
      environment_.findings.put(receipt_id_of(plan, run), run.facts().worker,
                                delta.cached_tokens / plan.model->block_size);
    }
  }
  if (environment_.gauges != nullptr) {
    const GenerationPlan& plan = active.generation.plan();
    environment_.gauges->first_token(
        run.facts().worker, took, static_cast<uint32_t>(plan.prompts[run.facts().prompt].size()));
  }
}

void RequestReporter::answered(const ChoiceRun& run) const {
  const uint32_t tokens = run.journal().generated();
  if (environment_.gauges != nullptr && tokens > 1 && run.facts().first_token != TimePoint()) {
    environment_.gauges->inter_token(
        run.facts().worker,
        seconds(run.facts().last_token - run.facts().first_token) / (tokens - 1));
  }
}

void RequestReporter::counted(const ActiveRequest& active, const request::Action& action) const {
  FrontendMetrics& metrics = environment_.metrics;
  switch (action.event) {
    case request::Event::kStaleDelta:
      metrics.stale_deltas.add();
      break;
    case request::Event::kOffsetGap:
      metrics.offset_gaps.add();
      break;
    case request::Event::kRetried:
      metrics.retried_requests.add();
      break;
    case request::Event::kMigrated:
      metrics.migrated(active.answer().model, kind_of(action.lost));
      break;
    case request::Event::kDrainHandoff:
      metrics.drain_handoffs.add();
      break;
    case request::Event::kRetryBudgetSpent:
      metrics.retry_budget_exhausted.add();
      break;
    case request::Event::kTooLong:
      metrics.migration_too_long(active.answer().model);
      break;
    case request::Event::kPromptMoved:
      metrics.prompt_moved(action.wait);
      break;
    case request::Event::kPoisoned:
      metrics.poisoned.add();
      log::error("frontend", "workers keep dying under one request, it is refused for a while",
                 {{"request_id", active.answer().request_id}, {"workers", action.tokens}});
      break;
  }
}

void RequestReporter::report(ActiveRequest& active, const ChoiceRun& run,
                             const request::Action& action) {
  switch (action.kind) {
    case request::Action::Kind::kNote:
      step(active, run, action.step, action.worker, action.tokens);
      break;
    case request::Action::Kind::kCount:
      counted(active, action);
      break;
    case request::Action::Kind::kHandoverEnded:
      environment_.metrics.handoff_ended(active.answer().model, action.end, action.wait);
      break;
    case request::Action::Kind::kRecovered:
      recovered(active, action);
      break;
    default:
      break;
  }
}

void RequestReporter::recovered(const ActiveRequest& active, const request::Action& action) {
  const TimePoint now = environment_.shard.now();
  environment_.metrics.migration_ended(active.answer().model, kind_of(action.lost),
                                       action.migration, now - action.lost.at);
  if (action.migration == MigrationOutcome::kSuccess) {
    moves_.moved(action.lost.worker, action.worker.worker, action.lost.why, now);
  }
}

void RequestReporter::log_moves(TimePoint now) {
  const ModelCatalog& catalog = environment_.catalog;
  for (const MoveLog::Line& line : moves_.take(now)) {
    log::info("frontend", "streams moved to another worker",
              {{"streams", line.streams},
               {"from", line.from.value()},
               {"from_url", catalog.place_of(line.from)},
               {"to", line.to.value()},
               {"to_url", catalog.place_of(line.to)},
               {"why", line.why}});
  }
}

void RequestReporter::choice_over(ActiveRequest& active, uint32_t index) const {
  environment_.meters.leave(active.seats[index].place);
}

void RequestReporter::ended(ActiveRequest& active, std::string_view error_type) const {
  note_end(active, error_type);
  const RequestSeries& series = active.series;
  series.inflight.add(-1);
  for (ActiveRequest::Seat& seat : active.seats) {
    environment_.meters.leave(seat.place);
  }
  series.active.add(-1);
  if (std::exchange(active.queued, false)) {
    series.queued.add(-1);
  }
  const Generation& generation = active.generation;
  if (const std::string& adapter = generation.plan().adapter; !adapter.empty()) {
    environment_.metrics.adapter(adapter).active.add(-1);
  }
  net::Shard& shard = environment_.shard;
  const double took = seconds(shard.now() - generation.received());
  series.duration.observe(took);
  exemplify(active, series.duration, took, shard.clock().wall_now());
  series.output_sequence.observe(generation.output_tokens());
  series.cached_tokens.observe(generation.cached_tokens());
  series.reasoning_tokens.add(generation.reasoning_tokens());
  parsed(active);
  const AnswerSpec& answer = active.answer();
  environment_.metrics.finished(answer.model, answer.label(), answer.stream, error_type);
}

void RequestReporter::note_end(ActiveRequest& active, std::string_view error_type) const {
  const Generation& generation = active.generation;
  charge_tokens(active, generation.output_tokens());
  RequestRecord* record = record_in(active.notes);
  if (record == nullptr || record->telemetry == nullptr) {
    return;
  }
  record->running.reset();
  telemetry::RequestFacts& facts = record->facts;
  facts.error_type = error_type;
  facts.finish_reason = finish_of(generation, error_type);
  facts.output_tokens = generation.output_tokens();
  facts.cached_tokens = generation.cached_tokens();
  facts.first_token = generation.first_token();
  for (const ChoiceRun& choice : active.generation.choices()) {
    facts.last_token = std::max(facts.last_token, choice.facts().last_token);
  }
}

void RequestReporter::parsed(const ActiveRequest& active) const {
  const Generation& generation = active.generation;
  if (generation.plan().format == nullptr) {
    return;
  }
  const ParserCounts& counts = generation.parser_counts();
  active.series.tool_calls.add(counts.tool_calls);
  uint32_t recoveries = 0;
  for (size_t kind = 0; kind < counts.recoveries.size(); ++kind) {
    if (counts.recoveries[kind] > 0) {
      recoveries += counts.recoveries[kind];
      environment_.metrics.recovered(generation.plan().format->name,
                                     parsers::describe(static_cast<parsers::Recovery>(kind)),
                                     counts.recoveries[kind]);
    }
  }
  if (recoveries > 0) {
    log::warn("frontend", "the model's output was malformed in places",
              {{"request_id", generation.plan().answer.request_id},
               {"parser", generation.plan().format->name},
               {"recoveries", recoveries}});
  }
}

namespace {

/// What engines see of the request's trace: their spans belong below `parent`.
void set_trace(inference::EngineRequest& request, const telemetry::TraceContext& parent,
               const std::string& state) {
  auto context = request.context == nullptr
                     ? std::make_shared<inference::RequestContext>()
                     : std::make_shared<inference::RequestContext>(*request.context);
  context->traceparent = telemetry::format_traceparent(parent);
  context->tracestate = state;
  request.context = std::move(context);
}

}  // namespace

void RequestReporter::add_trace(const ActiveRequest& active, const ChoiceRun& run,
                                inference::EngineRequest& request) const {
  const auto sent = std::chrono::duration_cast<std::chrono::microseconds>(
      environment_.shard.clock().wall_now().time_since_epoch());
  request.sent_unix_us = static_cast<uint64_t>(sent.count());
  const RequestRecord* record = record_in(active.notes);
  if (record == nullptr || record->telemetry == nullptr || !record->facts.trace.valid()) {
    return;
  }
  const telemetry::RequestFacts& facts = record->facts;
  telemetry::TraceContext parent = facts.trace;
  if (run.facts().index == 0 && request.phase != inference::Phase::kPrefill) {
    const auto attempts =
        std::ranges::count(facts.marks, telemetry::Step::kSubmitted, &telemetry::Mark::step);
    parent.span = telemetry::attempt_span(facts.trace, static_cast<uint32_t>(attempts));
  }
  set_trace(request, parent, facts.trace_state);
}

void note_pool_plan(const net::HttpRequest& request, const PoolPlan& plan, TimePoint now) {
  RequestRecord* record = record_of(request);
  if (record == nullptr) {
    return;
  }
  record->lease.charge_tokens(now, plan.prompt_tokens);
  record->facts.request_id = plan.request_id;
  record->facts.model = plan.model->name;
  record->facts.prompt_tokens = plan.prompt_tokens;
  record->note({.step = telemetry::Step::kPrepared, .at = now});
}

void note_pool_part(net::RequestNotes* notes, WorkerKey worker, TimePoint now,
                    inference::EngineRequest& request) {
  auto* record = static_cast<RequestRecord*>(notes);
  if (record == nullptr || record->telemetry == nullptr) {
    return;
  }
  if (!record->facts.worker) {
    for (const telemetry::Step step : {telemetry::Step::kRouted, telemetry::Step::kSubmitted}) {
      record->note({.step = step, .at = now, .worker = worker.worker.value()}, worker.dp_rank);
    }
  }
  if (record->facts.trace.valid()) {
    telemetry::TraceContext parent = record->facts.trace;
    parent.span = telemetry::attempt_span(parent, 0);
    set_trace(request, parent, record->facts.trace_state);
  }
}

void note_pool_end(net::RequestNotes* notes, std::string_view error_type) {
  if (auto* record = static_cast<RequestRecord*>(notes)) {
    record->facts.error_type = error_type;
  }
}

void note_refusal(const net::HttpRequest& request, std::string_view request_id, const Error& error,
                  std::string_view model, bool stream) {
  if (RequestRecord* record = record_of(request)) {
    record->facts.request_id = request_id;
    record->facts.error_type = FrontendMetrics::error_type(error.code());
    record->facts.model = model;
    record->facts.stream = stream;
  }
}

void audit_request(const net::HttpRequest& request, std::string_view request_id) {
  const RequestRecord* record = record_of(request);
  if (record == nullptr || record->telemetry == nullptr || !record->telemetry->audits()) {
    return;
  }
  std::string members;
  json::Writer json(members);
  json.begin_object().key("request_id").value(request_id).key("path").value(request.path());
  json.key("client").value(record->facts.client).key("tenant").value(record->caller.tenant);
  json.key("key_id").value(record->caller.key_id);
  if (record->telemetry->audits_content()) {
    json.key("body").raw(telemetry::redact_body(request.body()));
  }
  json.end_object();
  record->telemetry->audit("request", std::string_view(members).substr(1, members.size() - 2));
}

}  // namespace stator::frontend
