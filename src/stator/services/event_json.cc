// SPDX-License-Identifier: Apache-2.0
#include "stator/services/event_json.h"

#include <algorithm>
#include <array>
#include <variant>

#include "stator/json/writer.h"
#include "stator/services/json_fields.h"

namespace stator::services {
namespace {

using blocks::ExternalHash;
using blocks::LocalHash;

constexpr std::array<std::string_view, 4> kTiers = {"device", "host_pinned", "disk", "external"};

void write_data(json::Writer& out, const kv::BlocksStored& run) {
  out.begin_object().key("stored").begin_object().key("parent_hash");
  run.parent ? out.value(run.parent->value()) : out.null();
  out.key("start_position").null().key("blocks").begin_array();
  for (const kv::StoredBlock& block : run.blocks) {
    out.begin_object().key("block_hash").value(block.external.value());
    out.key("tokens_hash").value(block.local.value()).key("mm_extra_info").null().end_object();
  }
  out.end_array().end_object().end_object();
}

void write_data(json::Writer& out, const kv::BlocksRemoved& run) {
  out.begin_object().key("removed").begin_object().key("block_hashes").begin_array();
  for (const ExternalHash block : run.blocks) {
    out.value(block.value());
  }
  out.end_array().end_object().end_object();
}

void write_data(json::Writer& out, const kv::AllCleared&) {
  out.value("cleared");
}

Result<kv::KvEventData> read_stored(const Fields& stored) {
  kv::BlocksStored run;
  if (stored.has("parent_hash")) {
    const auto parent = as_hash(*stored.raw().find("parent_hash"));
    if (!parent) {
      return stored.wrong("parent_hash", "a whole 64-bit number or null");
    }
    run.parent = ExternalHash(*parent);
  }
  STATOR_TRY(const json::Value* given, stored.array("blocks"));
  if (given == nullptr) {
    return stored.wrong("blocks", "an array");
  }
  for (const json::Value& each : given->elements()) {
    const json::Value* external = each.find("block_hash");
    const json::Value* local = each.find("tokens_hash");
    const auto external_hash = external == nullptr ? std::nullopt : as_hash(*external);
    const auto local_hash = local == nullptr ? std::nullopt : as_hash(*local);
    if (!external_hash || !local_hash) {
      return stored.wrong("blocks", "objects with block_hash and tokens_hash");
    }
    run.blocks.push_back({ExternalHash(*external_hash), LocalHash(*local_hash)});
  }
  return run;
}

Result<kv::KvEventData> read_data(const json::Value& event) {
  const json::Value* data = event.find("data");
  if (data != nullptr && data->as_string() == "cleared") {
    return kv::AllCleared{};
  }
  if (data != nullptr && data->is_object()) {
    const Fields fields(*data, "data.");
    STATOR_TRY(const json::Value* stored, fields.object("stored"));
    if (stored != nullptr) {
      return read_stored(Fields(*stored, "data.stored."));
    }
    STATOR_TRY(const json::Value* removed, fields.object("removed"));
    if (removed != nullptr) {
      kv::BlocksRemoved run;
      STATOR_TRY(const auto hashes, Fields(*removed, "data.removed.").hashes("block_hashes"));
      for (const uint64_t hash : hashes) {
        run.blocks.emplace_back(hash);
      }
      return run;
    }
  }
  return Error(Code::kInvalidArgument,
               R"(event.data must be {"stored":…}, {"removed":…} or "cleared")");
}

}  // namespace

void write_event(json::Writer& out, const WorkerEvent& event) {
  out.begin_object().key("worker_id").value(event.worker.worker.value());
  out.key("storage_tier").value(kTiers[static_cast<size_t>(event.event.tier)]);
  out.key("event").begin_object().key("event_id").value(event.event.event_id);
  out.key("dp_rank").value(event.worker.dp_rank).key("data");
  std::visit([&out](const auto& data) { write_data(out, data); }, event.event.data);
  out.end_object().end_object();
}

Result<WorkerEvent> read_event(const json::Value& value) {
  if (!value.is_object()) {
    return Error(Code::kInvalidArgument, "an event must be a JSON object");
  }
  const Fields fields(value);
  STATOR_TRY(const uint64_t worker, fields.number("worker_id"));
  STATOR_TRY(const std::string tier, fields.text_or("storage_tier", kTiers[0]));
  const auto known = std::ranges::find(kTiers, tier);
  if (known == kTiers.end()) {
    return fields.wrong("storage_tier", "device, host_pinned, disk or external");
  }
  STATOR_TRY(const json::Value* inner, fields.object("event"));
  if (inner == nullptr) {
    return fields.wrong("event", "an object");
  }
  const Fields event(*inner, "event.");
  WorkerEvent out{.worker = {WorkerId(worker), 0}};
  STATOR_TRY(out.event.event_id, event.number_or("event_id", 0));
  STATOR_TRY(const auto rank, event.rank());
  out.worker.dp_rank = out.event.dp_rank = rank.value_or(0);
  out.event.tier = static_cast<kv::StorageTier>(known - kTiers.begin());
  STATOR_TRY(out.event.data, read_data(*inner));
  return out;
}

}  // namespace stator::services
