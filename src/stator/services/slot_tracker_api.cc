// SPDX-License-Identifier: Apache-2.0
#include "stator/json/writer.h"
#include "stator/services/json_fields.h"
#include "stator/services/load_json.h"
#include "stator/services/prompt_fields.h"
#include "stator/services/slot_tracker.h"

namespace stator::services {
namespace {

using blocks::SequenceHash;

/// Of the prompt's blocks; may be empty, must be there.
Result<std::vector<SequenceHash>> read_hashes(const Fields& fields) {
  if (!fields.has("sequence_hashes")) {
    return fields.wrong("sequence_hashes", "an array of whole 64-bit numbers");
  }
  STATOR_TRY(const auto hashes, fields.hashes("sequence_hashes"));
  std::vector<SequenceHash> sequences;
  for (const uint64_t hash : hashes) {
    sequences.emplace_back(hash);
  }
  return sequences;
}

Result<ServiceReply> register_worker(SlotTracker& tracker, const ServiceRequest& request) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  STATOR_TRY(const PartitionName name, read_partition(fields));
  STATOR_TRY(const uint64_t worker, fields.number("worker_id"));
  STATOR_TRY(const uint64_t block_size, fields.number("block_size", 1 << 20));
  STATOR_TRY(const uint64_t start, fields.number_or("dp_start", 0, Fields::kRankMax));
  STATOR_TRY(const uint64_t size, fields.number_or("dp_size", 1, Fields::kRankMax));
  STATOR_CHECK(tracker.add_worker(name, {.id = WorkerId(worker),
                                         .block_size = static_cast<uint32_t>(block_size),
                                         .dp_start = static_cast<uint32_t>(start),
                                         .dp_size = static_cast<uint32_t>(size)}));
  return ok_reply(201);
}

Result<ServiceReply> unregister_worker(SlotTracker& tracker, const ServiceRequest& request) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  STATOR_TRY(const PartitionName name, read_partition(fields));
  STATOR_TRY(const uint64_t worker, fields.number("worker_id"));
  STATOR_CHECK(tracker.remove_worker(name, WorkerId(worker)));
  return ok_reply();
}

Result<ServiceReply> list_workers(SlotTracker& tracker, const ServiceRequest& request) {
  const PartitionFilter filter = read_filter(request.query);
  ServiceReply reply;
  json::Writer out(reply.body);
  out.begin_array();
  for (const auto& [name, worker] : tracker.workers()) {
    if (!filter.matches(name)) {
      continue;
    }
    out.begin_object().key("worker_id").value(worker.id.value());
    out.key("model_name").value(name.model).key("routing_group").value(name.group);
    out.key("block_size").value(worker.block_size).key("dp_start").value(worker.dp_start);
    out.key("dp_size").value(worker.dp_size).end_object();
  }
  out.end_array();
  return reply;
}

Result<ServiceReply> add(SlotTracker& tracker, const ServiceRequest& request) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  STATOR_TRY(const PartitionName name, read_partition(fields));
  STATOR_TRY(const std::string id, fields.text("request_id"));
  STATOR_TRY(const uint64_t worker, fields.number("worker_id"));
  STATOR_TRY(const auto rank, fields.rank());
  STATOR_TRY(const auto hashes, read_hashes(fields));
  STATOR_TRY(const uint64_t prefill, fields.number_or("new_isl_tokens", 0, UINT32_MAX));
  STATOR_CHECK(tracker.add(name, {.id = id,
                                  .worker = {WorkerId(worker), rank.value_or(0)},
                                  .blocks = hashes,
                                  .prefill_tokens = static_cast<uint32_t>(prefill)}));
  return ok_reply(201);
}

template <typename End>
Result<ServiceReply> end_request(const ServiceRequest& request, End end) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  STATOR_TRY(const PartitionName name, read_partition(fields));
  STATOR_TRY(const std::string id, fields.text("request_id"));
  STATOR_CHECK(end(name, id));
  return ok_reply();
}

Result<ServiceReply> loads(SlotTracker& tracker, const ServiceRequest& request) {
  ServiceReply reply;
  json::Writer out(reply.body);
  out.begin_array();
  for (const PartitionLoads& partition : tracker.loads(read_filter(request.query))) {
    for (const SlotLoad& load : partition.loads) {
      out.begin_object().key("model_name").value(partition.name.model);
      out.key("routing_group").value(partition.name.group);
      write_load(out, load, "active");
      out.end_object();
    }
  }
  out.end_array();
  return reply;
}

Result<ServiceReply> potential_loads(SlotTracker& tracker, const ServiceRequest& request) {
  STATOR_TRY(const Fields fields, Fields::parse(request.body));
  STATOR_TRY(const PartitionName name, read_partition(fields));
  STATOR_TRY(const auto hashes, read_hashes(fields));
  STATOR_TRY(const uint64_t prefill, fields.number_or("new_isl_tokens", 0, UINT32_MAX));
  STATOR_TRY(const auto loads,
             tracker.potential_loads(name, hashes, static_cast<uint32_t>(prefill)));
  return ServiceReply{.body = render_potential_loads(loads)};
}

}  // namespace

void add_slot_endpoints(ServiceApi& api, SlotTracker& tracker) {
  const auto bind = [&api, &tracker](std::string_view method, std::string_view path, auto call) {
    api.add(method, path, [&tracker, call](const auto& request) { return call(tracker, request); });
  };
  bind("POST", "/register", register_worker);
  bind("POST", "/unregister", unregister_worker);
  bind("GET", "/workers", list_workers);
  bind("POST", "/add", add);
  bind("GET", "/loads", loads);
  bind("POST", "/potential_loads", potential_loads);
  api.add("POST", "/prefill_complete", [&tracker](const auto& request) {
    return end_request(request, [&](const auto& name, const auto& id) {
      return tracker.mark_prefill_completed(name, id);
    });
  });
  api.add("POST", "/free", [&tracker](const auto& request) {
    return end_request(request,
                       [&](const auto& name, const auto& id) { return tracker.free(name, id); });
  });
}

}  // namespace stator::services
