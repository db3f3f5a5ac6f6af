// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>

#include "stator/json/writer.h"
#include "stator/services/indexer_api.h"
#include "stator/services/load_json.h"
#include "stator/services/selection.h"

namespace stator::services {
namespace {

constexpr double kWeightMax = 1e6;
constexpr std::string_view kDefaultModel = "default";

Status read_override(const Fields& request, router::CostOverride& out) {
  STATOR_TRY(const json::Value* given, request.object("router_config_override"));
  if (given == nullptr) {
    return {};
  }
  const Fields fields(*given, "router_config_override.");
  // Deprecated, and overruled by the field that replaced it.
  STATOR_TRY(const auto weight, fields.real("overlap_score_weight", 0, kWeightMax));
  if (weight) {
    out.prefill_load_scale = *weight;
    out.overlap_credit = *weight == 0 ? std::optional(0.0) : std::nullopt;
  }
  const auto take = [&](std::string_view name, std::optional<double>& field) -> Status {
    STATOR_TRY(const auto value, fields.real(name, 0, kWeightMax));
    field = value ? value : field;
    return {};
  };
  STATOR_CHECK(take("overlap_score_credit", out.overlap_credit));
  STATOR_CHECK(take("prefill_load_scale", out.prefill_load_scale));
  STATOR_CHECK(take("router_temperature", out.temperature));
  STATOR_CHECK(take("shared_cache_multiplier", out.shared_multiplier));
  STATOR_TRY(out.assume_kv_reuse, fields.flag("assume_kv_reuse"));
  STATOR_TRY(out.track_prefill_tokens, fields.flag("track_prefill_tokens"));
  return {};
}

Status read_constraints(const Fields& fields, SelectionRequest& out) {
  STATOR_TRY(const json::Value* pinned, fields.object("pinned_worker"));
  if (pinned != nullptr) {
    const Fields pin(*pinned, "pinned_worker.");
    STATOR_TRY(const uint64_t worker, pin.number("worker_id"));
    out.pinned = WorkerId(worker);
    STATOR_TRY(out.pinned_rank, pin.rank());
  }
  STATOR_TRY(const auto allowed, fields.hashes("allowed_worker_ids"));
  for (const uint64_t worker : allowed) {
    out.allowed.emplace_back(worker);
  }
  STATOR_TRY(const json::Value* given, fields.object("routing_constraints"));
  if (given == nullptr) {
    return {};
  }
  const Fields constraints(*given, "routing_constraints.");
  STATOR_TRY(out.required_taints, constraints.texts("required_taints"));
  STATOR_TRY(const json::Value* preferred, constraints.object("preferred_taints"));
  if (preferred == nullptr) {
    return {};
  }
  const Fields weights(*preferred, "routing_constraints.preferred_taints.");
  for (const auto& [name, value] : preferred->members()) {
    // Two that are beyond floats would add up to no number, and nobody would be the cheapest.
    STATOR_TRY(const auto weight, weights.real(name, -kWeightMax, kWeightMax));
    out.preferred_taints.emplace_back(name, static_cast<float>(weight.value_or(0)));
  }
  return {};
}

enum class Prompt : uint8_t { kRequired, kOptional };

Result<SelectionRequest> read_request(std::string_view body, Prompt need) {
  STATOR_TRY(const Fields fields, Fields::parse(body));
  SelectionRequest request;
  STATOR_TRY(request.partition, read_partition(fields, kDefaultModel));
  STATOR_TRY(request.prompt, read_prompt(fields));
  if (need == Prompt::kRequired && request.prompt.empty() && request.prompt.isl_tokens == 0) {
    return fields.wrong("token_ids", "the prompt (or block_hashes, sequence_hashes, isl_tokens)");
  }
  if (request.prompt.by_hash() && (!fields.has("sequence_hashes") || !fields.has("isl_tokens"))) {
    return fields.wrong("block_hashes", "with sequence_hashes and isl_tokens");
  }
  STATOR_TRY(request.selection_id, fields.text_or("selection_id", ""));
  STATOR_CHECK(read_override(fields, request.override));
  STATOR_CHECK(read_constraints(fields, request));
  if (fields.has("expected_output_tokens")) {
    STATOR_TRY(const uint64_t tokens, fields.number("expected_output_tokens", UINT32_MAX));
    request.expected_output_tokens = static_cast<uint32_t>(tokens);
  }
  if (fields.has("effective_prefill_tokens")) {
    STATOR_TRY(const uint64_t tokens, fields.number("effective_prefill_tokens", UINT32_MAX));
    request.prefill_tokens = static_cast<uint32_t>(tokens);
  }
  STATOR_TRY(const auto track, fields.flag("track_prefill_tokens"));
  if (track) {
    request.override.track_prefill_tokens = track;
  }
  return request;
}

std::string render_answer(const SelectionAnswer& answer, bool booked) {
  std::string body;
  json::Writer out(body);
  out.begin_object();
  if (!answer.selection_id.empty()) {
    out.key("selection_id").value(answer.selection_id);
  }
  out.key("model_name").value(answer.partition.model);
  out.key("routing_group").value(answer.partition.group);
  out.key("worker_id").value(answer.worker.worker.value());
  out.key("dp_rank").value(answer.worker.dp_rank);
  out.key("endpoint").value(answer.endpoint);
  out.key("block_size").value(answer.block_size);
  out.key("overlap").raw(render_instance(answer.overlap));
  out.key("effective_prefill_tokens").value(answer.prefill_tokens);
  out.key("potential_decode_blocks").value(answer.potential_blocks);
  if (booked) {
    out.key("sequence_hashes").begin_array();
    for (const blocks::SequenceHash hash : answer.tracked) {
      out.value(static_cast<int64_t>(hash.value()));  // signed on the wire
    }
    out.end_array().key("isl_tokens").value(answer.isl_tokens);
    out.key("track_prefill_tokens").value(answer.track_prefill);
  }
  out.end_object();
  return body;
}

Result<WorkerId> read_id(std::string_view text) {
  uint64_t id = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (failed != std::errc() || end != text.data() + text.size()) {
    return Error(Code::kInvalidArgument, fmt::format("'{}' is not a worker id", text));
  }
  return WorkerId(id);
}

Result<ServiceReply> put_worker(SelectionService& service, const ServiceRequest& request) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  STATOR_TRY(const uint64_t id, fields.number("worker_id"));
  STATOR_TRY(std::string body,
             service.write_worker(WorkerId(id), fields, SelectionService::Write::kUpsert));
  return ServiceReply{.status = 201, .body = std::move(body)};
}

Result<ServiceReply> patch_worker(SelectionService& service, const ServiceRequest& request) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  STATOR_TRY(const WorkerId id, read_id(request.id));
  STATOR_TRY(std::string body, service.write_worker(id, fields, SelectionService::Write::kPatch));
  return ServiceReply{.body = std::move(body)};
}

Result<ServiceReply> delete_worker(SelectionService& service, const ServiceRequest& request) {
  STATOR_TRY(const WorkerId id, read_id(request.id));
  STATOR_TRY(std::string body, service.remove_worker(id));
  return ServiceReply{.body = std::move(body)};
}

Result<ServiceReply> list_workers(SelectionService& service, const ServiceRequest& request) {
  return ServiceReply{.body = service.list_workers(read_filter(request.query))};
}

Result<ServiceReply> ready(SelectionService& service, const ServiceRequest&) {
  const auto readiness = service.readiness();
  const bool is_ready = readiness.schedulable > 0;
  return ServiceReply{.status = is_ready ? 200 : 503,
                      .body = fmt::format(R"({{"ready":{},"schedulable_workers":{},"workers":{}}})",
                                          is_ready, readiness.schedulable, readiness.workers)};
}

Result<ServiceReply> select(SelectionService& service, const ServiceRequest& request) {
  STATOR_TRY(const SelectionRequest wanted, read_request(request.body, Prompt::kRequired));
  STATOR_TRY(const SelectionAnswer answer, service.select(wanted));
  return ServiceReply{.body = render_answer(answer, false)};
}

Result<ServiceReply> select_and_reserve(SelectionService& service, const ServiceRequest& request) {
  STATOR_TRY(SelectionRequest wanted, read_request(request.body, Prompt::kRequired));
  STATOR_TRY(const SelectionAnswer answer, service.reserve(std::move(wanted)));
  return ServiceReply{.body = render_answer(answer, true)};
}

Result<ServiceReply> reserve(SelectionService& service, const ServiceRequest& request) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  if (!fields.has("worker_id")) {
    STATOR_TRY(const PartitionName name, read_partition(fields, kDefaultModel));
    STATOR_TRY(const std::string id, fields.text("selection_id"));
    STATOR_TRY(const SelectionAnswer answer, service.reserve_selected(name, id));
    return ServiceReply{.status = 201, .body = render_answer(answer, true)};
  }
  STATOR_TRY(SelectionRequest wanted, read_request(request.body, Prompt::kRequired));
  STATOR_TRY(const uint64_t worker, fields.number("worker_id"));
  STATOR_TRY(const auto rank, fields.rank());
  STATOR_TRY(const SelectionAnswer answer,
             service.reserve_at({WorkerId(worker), rank.value_or(0)}, std::move(wanted)));
  return ServiceReply{.status = 201, .body = render_answer(answer, true)};
}

Result<ServiceReply> prefill_complete(SelectionService& service, const ServiceRequest& request) {
  STATOR_CHECK(service.mark_prefill_completed(request.id));
  return ok_reply();
}

Result<ServiceReply> output_block(SelectionService& service, const ServiceRequest& request) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  STATOR_TRY(const auto weight, fields.real("decay_fraction", 0, 1));
  STATOR_CHECK(service.add_output_block(request.id, weight));
  return ok_reply();
}

Result<ServiceReply> free_reservation(SelectionService& service, const ServiceRequest& request) {
  STATOR_CHECK(service.free(request.id));
  return ok_reply();
}

Result<ServiceReply> loads(SelectionService& service, const ServiceRequest& request) {
  ServiceReply reply;
  json::Writer out(reply.body);
  out.begin_array();
  for (const PartitionLoads& partition : service.loads(read_filter(request.query))) {
    out.begin_object().key("model_name").value(partition.name.model);
    out.key("routing_group").value(partition.name.group);
    out.key("loads").raw(render_potential_loads(partition.loads));
    // Nobody waits here: the answer of a full service is 429.
    out.key("pending_count").value(0).key("pending_isl_tokens").value(0).end_object();
  }
  out.end_array();
  return reply;
}

Result<ServiceReply> potential_loads(SelectionService& service, const ServiceRequest& request) {
  STATOR_TRY(const SelectionRequest wanted, read_request(request.body, Prompt::kOptional));
  STATOR_TRY(const auto loads, service.potential_loads(wanted));
  return ServiceReply{.body = render_potential_loads(loads)};
}

Result<ServiceReply> overlap_scores(SelectionService& service, const ServiceRequest& request) {
  STATOR_TRY(const SelectionRequest wanted, read_request(request.body, Prompt::kRequired));
  STATOR_TRY(std::string body, service.overlap_scores(wanted));
  return ServiceReply{.body = std::move(body)};
}

}  // namespace

void add_selection_endpoints(ServiceApi& api, SelectionService& service, Indexer& indexer) {
  const auto bind = [&api, &service](std::string_view method, std::string_view path, auto call) {
    api.add(method, path, [&service, call](const auto& request) { return call(service, request); });
  };
  bind("POST", "/workers", put_worker);
  bind("PATCH", "/workers/{id}", patch_worker);
  bind("DELETE", "/workers/{id}", delete_worker);
  bind("GET", "/ready", ready);
  bind("POST", "/select", select);
  bind("POST", "/select_and_reserve", select_and_reserve);
  bind("POST", "/reservations", reserve);
  bind("POST", "/reservations/{id}/prefill_complete", prefill_complete);
  bind("POST", "/reservations/{id}/output_block", output_block);
  bind("DELETE", "/reservations/{id}", free_reservation);
  bind("GET", "/loads", loads);
  bind("POST", "/potential_loads", potential_loads);
  bind("POST", "/overlap_scores", overlap_scores);
  bind("GET", "/workers", list_workers);
  api.add("GET", "/dump",
          [&indexer](const auto&) { return ServiceReply{.body = render_dump(indexer)}; });
  add_event_endpoint(api, indexer);
}

}  // namespace stator::services
