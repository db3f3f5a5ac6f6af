// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "stator/core/hash.h"
#include "stator/core/log.h"
#include "stator/core/random.h"
#include "stator/frontend/request_record.h"
#include "stator/frontend/shard_service.h"
#include "stator/frontend/text_routes.h"
#include "stator/json/writer.h"
#include "stator/parsers/family_spec.h"
#include "stator/telemetry/request_spans.h"

namespace stator::frontend {
namespace {

RequestRecord* record_in(const std::shared_ptr<net::RequestNotes>& notes) {
  return static_cast<RequestRecord*>(notes.get());
}

/// Hashes that cover the whole prompt, as a replay needs them: of its full blocks, and of what is
/// left with what stands before it.
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

}  // namespace

/// Off the tenant's budget.
void ShardService::charge_tokens(const Active& active, uint32_t tokens) const {
  if (active.notes != nullptr) {
    record_in(active.notes)->lease.charge_tokens(shard_.now(), tokens);
  }
}

void ShardService::note_plan(Active& active) const {
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
  if (record->telemetry->wants_blocks()) {
    facts.block_size = plan.model->block_size;
    facts.blocks = blocks_of(plan);
  }
  record->mark(telemetry::Step::kPrepared, shard_.now());
}

/// Of several choices the first one's steps are written down.
void ShardService::note(const Active& active, Choice& choice, telemetry::Step step, WorkerId worker,
                        uint32_t tokens) const {
  course_.step(choice.place, step, shard_.now(), choice.course.active());
  RequestRecord* record = record_in(active.notes);
  if (record == nullptr || choice.index != 0) {
    return;
  }
  record->mark(step, shard_.now(), worker.value(), tokens);
  telemetry::RequestFacts& facts = record->facts;
  if (step == telemetry::Step::kSubmitted) {
    facts.worker = worker.value();
    facts.dp_rank = choice.worker.dp_rank;
  } else if (step == telemetry::Step::kPrefill) {
    facts.prefill_worker = worker.value();
  } else if (step == telemetry::Step::kLost) {
    ++facts.migrations;
  }
}

/// Of a choice: its first token, whichever attempt brought it.
void ShardService::note_first_token(Active& active, const Choice& choice,
                                    const engine::Delta& delta) const {
  const double took =
      std::chrono::duration<double>(shard_.now() - active.generation.received()).count();
  active.series.time_to_first_token.observe(took);
  exemplify(active, active.series.time_to_first_token, took, shard_.clock().wall_now());
  if (std::exchange(active.queued, false)) {
    active.series.queued.add(-1);
  }
  if (!choice.prompt_from) {
    active.series.expected_cached_tokens.add(choice.expected_cached_tokens);
    active.series.found_cached_tokens.add(delta.cached_tokens);
  }
  if (environment_.worker_gauges != nullptr) {
    const GenerationPlan& plan = active.generation.plan();
    environment_.worker_gauges->first_token(
        choice.worker, took, static_cast<uint32_t>(plan.prompts[choice.prompt].size()));
  }
}

/// The worker has said all of a choice.
void ShardService::note_answer(const Choice& choice) const {
  const uint32_t tokens = choice.journal.generated();
  if (environment_.worker_gauges != nullptr && tokens > 1 && choice.first_token != TimePoint()) {
    const Duration took = choice.last_token - choice.first_token;
    environment_.worker_gauges->inter_token(
        choice.worker, std::chrono::duration<double>(took).count() / (tokens - 1));
  }
}

/// What the metrics hold of a generation that ends.
void ShardService::end_course(Active& active) {
  for (Choice& choice : active.generation.choices()) {
    course_.leave(choice.place);
  }
  active.series.active.add(-1);
  if (std::exchange(active.queued, false)) {
    active.series.queued.add(-1);
  }
  const GenerationPlan& plan = active.generation.plan();
  if (!plan.adapter.empty()) {
    metrics_.adapter(plan.adapter).active.add(-1);
  }
  if (plan.context != nullptr && plan.context->session_final && !plan.routing.session.empty()) {
    plan.model->router->forget_session(plan.routing.session);
  }
  const double took =
      std::chrono::duration<double>(shard_.now() - active.generation.received()).count();
  active.series.duration.observe(took);
  exemplify(active, active.series.duration, took, shard_.clock().wall_now());
}

/// Shows the request's trace beside the value, if it is sampled.
void ShardService::exemplify(const Active& active, const Histogram& histogram, double value,
                             WallTime at) {
  const RequestRecord* record = record_in(active.notes);
  if (record != nullptr && record->facts.trace.sampled) {
    histogram.exemplify(value, telemetry::to_hex(record->facts.trace.trace), at);
  }
}

void ShardService::note_end(Active& active, std::string_view error_type) const {
  const Generation& generation = active.generation;
  charge_tokens(active, generation.output_tokens());
  RequestRecord* record = record_in(active.notes);
  if (record == nullptr || record->telemetry == nullptr) {
    return;
  }
  telemetry::RequestFacts& facts = record->facts;
  facts.error_type = error_type;
  facts.finish_reason = finish_of(generation, error_type);
  facts.output_tokens = generation.output_tokens();
  facts.cached_tokens = generation.cached_tokens();
  facts.first_token = generation.first_token();
  for (const Choice& choice : active.generation.choices()) {
    facts.last_token = std::max(facts.last_token, choice.last_token);
  }
}

/// A request that does not get as far as a plan.
void ShardService::note_refusal(const net::HttpRequest& request, std::string_view request_id,
                                const Error& error) {
  if (RequestRecord* record = record_of(request)) {
    record->facts.request_id = request_id;
    record->facts.error_type = FrontendMetrics::error_type(error.code());
  }
}

/// Before its body is given away.
void ShardService::audit_request(const net::HttpRequest& request, std::string_view request_id) {
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

/// The worker's spans belong below ours of this attempt; choices beyond the first have none of
/// their own.
void ShardService::add_trace(const Active& active, const Choice& choice,
                             engine::EngineRequest& request) const {
  const auto sent = std::chrono::duration_cast<std::chrono::microseconds>(
      shard_.clock().wall_now().time_since_epoch());
  request.sent_unix_us = static_cast<uint64_t>(sent.count());
  const RequestRecord* record = record_in(active.notes);
  if (record == nullptr || record->telemetry == nullptr || !record->facts.trace.valid()) {
    return;
  }
  const telemetry::RequestFacts& facts = record->facts;
  telemetry::TraceContext parent = facts.trace;
  if (choice.index == 0 && request.phase != engine::Phase::kPrefill) {
    const auto attempts =
        std::ranges::count(facts.marks, telemetry::Step::kSubmitted, &telemetry::Mark::step);
    parent.span = telemetry::attempt_span(facts.trace, static_cast<uint32_t>(attempts));
  }
  auto context = request.context == nullptr
                     ? std::make_shared<engine::RequestContext>()
                     : std::make_shared<engine::RequestContext>(*request.context);
  context->traceparent = telemetry::format_traceparent(parent);
  context->tracestate = facts.trace_state;
  request.context = std::move(context);
}

/// No error of ours has this status.
void ShardService::refuse_metadata(net::HttpExchange& exchange, const TextRoute& route,
                                   std::string_view request_id, std::string_view message) {
  constexpr int kStatus = 431;
  const net::HttpRequest& request = exchange.request();
  note_refusal(request, request_id, Error(Code::kInvalidArgument, std::string(message)));
  if (const auto endpoint = endpoint_of(route)) {
    const PeekedRequest peeked = peek_request(request.body(), environment_.catalog);
    metrics_.refused(peeked.model.empty() ? "unknown" : std::string_view(peeked.model), *endpoint,
                     peeked.stream, "validation");
  }
  exchange.respond(kStatus, kJson, refusal_body(request, kStatus, message),
                   request_id_headers(route, request_id));
}

void ShardService::observe_parser(const Generation& generation, const RequestSeries& series) {
  if (generation.plan().format == nullptr) {
    return;
  }
  const ParserCounts& counts = generation.parser_counts();
  series.tool_calls.add(counts.tool_calls);
  uint32_t recoveries = 0;
  for (size_t kind = 0; kind < counts.recoveries.size(); ++kind) {
    if (counts.recoveries[kind] > 0) {
      recoveries += counts.recoveries[kind];
      metrics_.recovered(generation.plan().format->name,
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

}  // namespace stator::frontend
