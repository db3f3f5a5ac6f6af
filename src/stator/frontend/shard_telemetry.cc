// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "stator/core/hash.h"
#include "stator/core/random.h"
#include "stator/frontend/request_record.h"
#include "stator/frontend/shard_service.h"
#include "stator/json/writer.h"

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
void ShardService::note(const Active& active, const Choice& choice, telemetry::Step step,
                        WorkerId worker, uint32_t tokens) const {
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

}  // namespace stator::frontend
