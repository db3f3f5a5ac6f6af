// SPDX-License-Identifier: Apache-2.0
#include "stator/services/selection_worker.h"

#include <fmt/format.h>

#include <charconv>

#include "stator/json/writer.h"
#include "stator/services/prompt_fields.h"

namespace stator::services {
namespace {

constexpr uint32_t kRanksMax = 4096;

Status merge_number(const Fields& fields, std::string_view name, uint32_t& out, uint64_t max) {
  STATOR_TRY(const uint64_t value, fields.number_or(name, out, max));
  out = static_cast<uint32_t>(value);
  return {};
}

Status merge_text(const Fields& fields, std::string_view name, std::string& out) {
  STATOR_TRY(out, fields.text_or(name, out));
  return {};
}

Status merge_endpoints(SelectionWorker& worker, const Fields& fields) {
  STATOR_CHECK(merge_text(fields, "kv_events_endpoint", worker.kv_events_endpoint));
  if (!worker.kv_events_endpoint.empty()) {
    STATOR_CHECK(check_endpoint(worker.kv_events_endpoint), "kv_events_endpoint");
  }
  STATOR_CHECK(merge_text(fields, "replay_endpoint", worker.replay_endpoint));
  STATOR_TRY(const json::Value* given, fields.object("kv_events_endpoints"));
  if (given == nullptr) {
    return {};
  }
  worker.kv_events_endpoints.clear();
  for (const auto& [key, value] : given->members()) {
    uint32_t rank = 0;
    const std::string_view text = key;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (failed != std::errc() || end != text.data() + text.size() || !value.is_string()) {
      return fields.wrong("kv_events_endpoints", "an object of rank: endpoint");
    }
    worker.kv_events_endpoints[rank] = std::string(value.text());
    STATOR_CHECK(check_endpoint(worker.kv_events_endpoints[rank]), "kv_events_endpoints");
  }
  return {};
}

Status merge_topology(SelectionWorker& worker, const Fields& fields) {
  if (fields.has("taints")) {
    STATOR_TRY(worker.taints, fields.texts("taints"));
  }
  STATOR_CHECK(merge_text(fields, "kv_transfer_domain", worker.kv_transfer_domain));
  STATOR_CHECK(merge_text(fields, "kv_transfer_enforcement", worker.kv_transfer_enforcement));
  STATOR_TRY(const auto weight, fields.real("kv_transfer_preferred_weight", 0, 1));
  worker.kv_transfer_preferred_weight = weight.value_or(worker.kv_transfer_preferred_weight);
  STATOR_TRY(const json::Value* given, fields.object("topology_domains"));
  if (given == nullptr) {
    return {};
  }
  worker.topology.clear();
  for (const auto& [key, value] : given->members()) {
    if (!value.is_string()) {
      return fields.wrong("topology_domains", "an object of domain: value");
    }
    worker.topology[std::string(key)] = std::string(value.text());
  }
  return {};
}

/// "lifecycle": "draining" takes a worker out of rotation, "schedulable" puts it back.
Status merge_lifecycle(SelectionWorker& worker, const Fields& fields) {
  STATOR_TRY(const auto draining, fields.flag("draining"));
  worker.draining = draining.value_or(worker.draining);
  STATOR_TRY(const std::string lifecycle, fields.text_or("lifecycle", ""));
  if (lifecycle == "draining" || lifecycle == "unschedulable") {
    worker.draining = true;
  } else if (lifecycle == "schedulable") {
    worker.draining = false;
  } else if (!lifecycle.empty()) {
    return fields.wrong("lifecycle", "schedulable, draining or unschedulable");
  }
  return {};
}

void write_texts(json::Writer& out, const std::vector<std::string>& texts) {
  out.begin_array();
  for (const std::string& text : texts) {
    out.value(text);
  }
  out.end_array();
}

void write_placement(json::Writer& out, const SelectionWorker& worker) {
  out.key("taints");
  write_texts(out, worker.taints);
  out.key("topology_domains").begin_object();
  for (const auto& [domain, value] : worker.topology) {
    out.key_escaped(domain).value(value);
  }
  out.end_object();
  out.key("kv_transfer_domain").value(worker.kv_transfer_domain);
  out.key("kv_transfer_enforcement").value(worker.kv_transfer_enforcement);
  out.key("kv_transfer_preferred_weight").value(worker.kv_transfer_preferred_weight);
}

}  // namespace

std::string SelectionWorker::events_endpoint(uint32_t rank) const {
  if (const auto known = kv_events_endpoints.find(rank); known != kv_events_endpoints.end()) {
    return known->second;
  }
  const uint32_t offset = rank - dp_start;
  if (kv_events_endpoint.empty() || offset == 0) {
    return kv_events_endpoint;
  }
  // Engines publish each further rank on the next port.
  const size_t colon = kv_events_endpoint.rfind(':');
  uint32_t port = 0;
  const char* const end = kv_events_endpoint.data() + kv_events_endpoint.size();
  if (!kv_events_endpoint.starts_with("tcp://") ||
      std::from_chars(kv_events_endpoint.data() + colon + 1, end, port).ec != std::errc()) {
    return {};
  }
  return fmt::format("{}:{}", kv_events_endpoint.substr(0, colon), port + offset);
}

router::WorkerFacts SelectionWorker::facts() const {
  router::WorkerFacts facts{.total_kv_blocks = total_kv_blocks,
                            .max_num_batched_tokens = max_num_batched_tokens,
                            .kv_events = kv_events,
                            .taints = taints};
  for (const auto& [domain, value] : topology) {
    facts.taints.push_back(fmt::format("dynamo.topology/{}={}", domain, value));
  }
  return facts;
}

Status merge(SelectionWorker& worker, const Fields& fields) {
  STATOR_CHECK(merge_text(fields, "endpoint", worker.endpoint));
  STATOR_CHECK(merge_number(fields, "block_size", worker.block_size, 1 << 20));
  STATOR_CHECK(merge_number(fields, "data_parallel_start_rank", worker.dp_start, Fields::kRankMax));
  STATOR_CHECK(merge_number(fields, "data_parallel_size", worker.dp_size, kRanksMax));
  STATOR_CHECK(
      merge_number(fields, "max_num_batched_tokens", worker.max_num_batched_tokens, UINT32_MAX));
  STATOR_CHECK(merge_number(fields, "total_kv_blocks", worker.total_kv_blocks, UINT32_MAX));
  STATOR_CHECK(merge_text(fields, "stable_routing_id", worker.stable_routing_id));
  STATOR_TRY(const auto eagle, fields.flag("is_eagle"));
  worker.is_eagle = eagle.value_or(worker.is_eagle);
  STATOR_CHECK(merge_endpoints(worker, fields));
  STATOR_CHECK(merge_topology(worker, fields));
  return merge_lifecycle(worker, fields);
}

std::vector<std::string> missing(const SelectionWorker& worker, const WorkerRules& rules) {
  std::vector<std::string> reasons;
  if (worker.endpoint.empty()) {
    reasons.emplace_back("endpoint is not set");
  }
  if (worker.block_size == 0) {
    reasons.emplace_back("block_size is not set");
  }
  if (worker.dp_size == 0) {
    reasons.emplace_back("data_parallel_size is 0");
  }
  if (worker.is_eagle) {
    reasons.emplace_back("is_eagle: blocks of token pairs are not supported");
  }
  if (rules.needs_batched_tokens && worker.max_num_batched_tokens == 0) {
    reasons.emplace_back("max_num_batched_tokens is not set, which a threshold needs");
  }
  const bool needs_events = rules.needs_events && !worker.announces_itself;
  for (uint32_t i = 0; needs_events && i < worker.dp_size; ++i) {
    if (worker.events_endpoint(worker.dp_start + i).empty()) {
      reasons.push_back(fmt::format("no kv_events_endpoint for rank {}", worker.dp_start + i));
    }
  }
  return reasons;
}

std::string render(const SelectionWorker& worker, const WorkerRules& rules) {
  const auto reasons = missing(worker, rules);
  const std::string_view lifecycle = !reasons.empty()  ? "incomplete"
                                     : worker.draining ? "draining"
                                                       : "schedulable";
  std::string body;
  json::Writer out(body);
  out.begin_object().key("worker_id").value(worker.id.value());
  out.key("model_name").value(worker.partition.model);
  out.key("routing_group").value(worker.partition.group);
  out.key("endpoint").value(worker.endpoint).key("block_size").value(worker.block_size);
  out.key("data_parallel_start_rank").value(worker.dp_start);
  out.key("data_parallel_size").value(worker.dp_size);
  out.key("kv_events_endpoints").begin_object();
  for (uint32_t i = 0; i < worker.dp_size; ++i) {
    const std::string endpoint = worker.events_endpoint(worker.dp_start + i);
    if (!endpoint.empty()) {
      out.key(std::to_string(worker.dp_start + i)).value(endpoint);
    }
  }
  out.end_object().key("replay_endpoint").value(worker.replay_endpoint);
  out.key("max_num_batched_tokens").value(worker.max_num_batched_tokens);
  out.key("total_kv_blocks").value(worker.total_kv_blocks);
  out.key("stable_routing_id").value(worker.stable_routing_id);
  out.key("is_eagle").value(worker.is_eagle);
  write_placement(out, worker);
  out.key("lifecycle").value(lifecycle).key("schedulable").value(lifecycle == "schedulable");
  out.key("not_schedulable_reasons");
  write_texts(out, reasons);
  out.end_object();
  return body;
}

}  // namespace stator::services
