// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/instance_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "stator/json/value.h"

namespace stator::discovery {
namespace {

constexpr uint64_t kWorkerIdMax = (uint64_t{1} << 53) - 1;
constexpr size_t kNameMax = 63;
constexpr size_t kAddressMax = 300;
constexpr std::array<std::string_view, 3> kStateNames = {"starting", "ready", "draining"};

Error corrupt(std::string_view field, std::string_view wanted) {
  return {Code::kCorrupt, fmt::format("instance record: field \"{}\" must be {}", field, wanted)};
}

/// Reads optional fields of one JSON object into typed targets; the first wrong one is remembered.
class FieldReader {
 public:
  explicit FieldReader(const json::Value& object) : object_(object) {}

  void text(std::string_view name, std::string& target) {
    if (const json::Value* value = find(name)) {
      if (value->is_string()) {
        target = value->text();
      } else {
        fail(name, "a string");
      }
    }
  }
  void boolean(std::string_view name, bool& target) {
    if (const json::Value* value = find(name)) {
      if (value->is_bool()) {
        target = *value->as_bool();
      } else {
        fail(name, "true or false");
      }
    }
  }
  template <std::integral Integer>
  void integer(std::string_view name, Integer& target) {
    const json::Value* value = find(name);
    if (value == nullptr) {
      return;
    }
    const auto number = value->as_uint64();
    if (!number || !std::in_range<Integer>(*number)) {
      fail(name, fmt::format("an integer of at most {}", std::numeric_limits<Integer>::max()));
      return;
    }
    target = static_cast<Integer>(*number);
  }
  template <typename Target, typename Read>
  void list(std::string_view name, std::vector<Target>& target, Read read) {
    const json::Value* value = find(name);
    if (value == nullptr) {
      return;
    }
    if (!value->is_array()) {
      fail(name, "a list");
      return;
    }
    for (const json::Value& entry : value->elements()) {
      if (!read(entry, target)) {
        fail(name, "a list of the right kind of entries");
        return;
      }
    }
  }
  void fail(std::string_view name, std::string_view wanted) {
    if (status_.has_value()) {
      status_ = corrupt(name, wanted);
    }
  }
  Status take_status() { return std::move(status_); }

 private:
  const json::Value* find(std::string_view name) const {
    const json::Value* value = object_.find(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }

  const json::Value& object_;
  Status status_;
};

bool read_text(const json::Value& value, std::vector<std::string>& target) {
  if (!value.is_string()) {
    return false;
  }
  target.emplace_back(value.text());
  return true;
}

bool read_token(const json::Value& value, std::vector<TokenId>& target) {
  const auto token = value.as_uint64();
  if (!token || *token > std::numeric_limits<TokenId>::max()) {
    return false;
  }
  target.push_back(static_cast<TokenId>(*token));
  return true;
}

json::Value handoff_to_json(const inference::HandoffAbility& handoff) {
  return json::Value::object({{"kind", handoff.kind},
                              {"meeting_point", handoff.meeting_point},
                              {"runs_whole", handoff.runs_whole}});
}

Status read_handoff(const json::Value& model, inference::HandoffAbility& handoff) {
  std::string role(to_string(handoff.role));
  FieldReader reader(model);
  reader.text("worker_type", role);
  STATOR_CHECK(reader.take_status());
  const auto known = inference::find_role(role);
  if (!known) {
    return corrupt("worker_type", "one of aggregated, prefill, decode");
  }
  handoff.role = *known;
  const json::Value* ability = model.find("handoff");
  if (ability == nullptr || ability->is_null()) {
    return {};
  }
  if (!ability->is_object()) {
    return corrupt("handoff", "an object");
  }
  FieldReader fields(*ability);
  fields.text("kind", handoff.kind);
  fields.text("meeting_point", handoff.meeting_point);
  fields.boolean("runs_whole", handoff.runs_whole);
  STATOR_CHECK(fields.take_status());
  if (handoff.kind.size() > kAddressMax || handoff.meeting_point.size() > kAddressMax) {
    return corrupt("handoff", fmt::format("of at most {} bytes per text", kAddressMax));
  }
  return {};
}

json::Value texts_to_json(const std::vector<std::string>& texts) {
  return json::Value::array({texts.begin(), texts.end()});
}

constexpr std::string_view kGenerate = "generate";
constexpr size_t kLabelsMax = 4096;

void pool_to_json(const inference::PoolAbility& pool, json::Value& out) {
  json::Value tasks = json::Value::array();
  if (pool.generates) {
    tasks.push_back(kGenerate);
  }
  for (size_t i = 0; i < inference::kPoolTaskCount; ++i) {
    if (const auto task = static_cast<inference::PoolTask>(i); pool.tasks.has(task)) {
      tasks.push_back(to_string(task));
    }
  }
  out["tasks"] = std::move(tasks);
  out["vector_width"] = pool.width;
  out["labels"] = texts_to_json(pool.labels);
  out["wants_text"] = pool.wants_text;
}

/// A task we do not know is one we never ask for.
Status read_pool(const json::Value& model, inference::PoolAbility& pool) {
  std::vector<std::string> tasks;
  if (model.find("tasks") == nullptr) {
    tasks.emplace_back(kGenerate);  // of workers that know no other
  }
  FieldReader reader(model);
  reader.list("tasks", tasks, read_text);
  reader.integer("vector_width", pool.width);
  reader.list("labels", pool.labels, read_text);
  reader.boolean("wants_text", pool.wants_text);
  STATOR_CHECK(reader.take_status());
  if (pool.labels.size() > kLabelsMax) {
    return corrupt("labels", fmt::format("a list of at most {}", kLabelsMax));
  }
  pool.generates = std::ranges::find(tasks, kGenerate) != tasks.end();
  for (const std::string& name : tasks) {
    if (const auto task = inference::find_pool_task(name)) {
      pool.tasks.add(*task);
    }
  }
  return {};
}

json::Value model_to_json(const ModelCard& model) {
  json::Value out;
  out["name"] = model.name;
  out["aliases"] = texts_to_json(model.aliases);
  out["adapters"] = texts_to_json(model.adapters);
  out["taints"] = texts_to_json(model.taints);
  out["source"] = model.model_path;
  out["architectural_context"] = model.architectural_context;
  out["context_length"] = model.context_length;
  out["kv_block_size"] = model.block_size;
  out["total_kv_blocks"] = model.total_kv_blocks;
  out["max_num_seqs"] = model.max_num_seqs;
  out["max_num_batched_tokens"] = model.max_num_batched_tokens;
  out["vocab_size"] = model.vocab_size;
  out["dp_size"] = model.dp_size;
  out["kv_events"] = model.kv_events;
  out["engine_kind"] = model.engine_kind;
  out["engine_version"] = model.engine_version;
  out["eos_token_ids"] =
      json::Value::array({model.eos_token_ids.begin(), model.eos_token_ids.end()});
  out["chat_template"] = model.chat_template;
  out["default_thinking_mode"] = model.default_thinking_mode;
  out["tool_call_parser"] = model.tool_call_parser;
  out["reasoning_parser"] = model.reasoning_parser;
  out["structured_output"] = model.structured_output;
  out["structured_replay"] = model.structured_replay;
  out["prompt_logprobs"] = model.prompt_logprobs;
  out["token_filters"] = model.token_filters;
  out["media"] = texts_to_json(model.media.names());
  out["worker_type"] = to_string(model.handoff.role);
  out["handoff"] = handoff_to_json(model.handoff);
  pool_to_json(model.pool, out);
  out["checksum"] = model.checksum;
  return out;
}

Status read_model(const json::Value& object, ModelCard& model) {
  FieldReader reader(object);
  reader.text("name", model.name);
  reader.list("aliases", model.aliases, read_text);
  reader.list("adapters", model.adapters, read_text);
  reader.list("taints", model.taints, read_text);
  reader.text("source", model.model_path);
  reader.integer("architectural_context", model.architectural_context);
  reader.integer("context_length", model.context_length);
  reader.integer("kv_block_size", model.block_size);
  reader.integer("total_kv_blocks", model.total_kv_blocks);
  reader.integer("max_num_seqs", model.max_num_seqs);
  reader.integer("max_num_batched_tokens", model.max_num_batched_tokens);
  reader.integer("vocab_size", model.vocab_size);
  reader.integer("dp_size", model.dp_size);
  reader.boolean("kv_events", model.kv_events);
  reader.text("engine_kind", model.engine_kind);
  reader.text("engine_version", model.engine_version);
  reader.list("eos_token_ids", model.eos_token_ids, read_token);
  reader.text("chat_template", model.chat_template);
  reader.text("default_thinking_mode", model.default_thinking_mode);
  reader.text("tool_call_parser", model.tool_call_parser);
  reader.text("reasoning_parser", model.reasoning_parser);
  reader.boolean("structured_output", model.structured_output);
  reader.boolean("structured_replay", model.structured_replay);
  reader.boolean("prompt_logprobs", model.prompt_logprobs);
  reader.boolean("token_filters", model.token_filters);
  std::vector<std::string> media;
  reader.list("media", media, read_text);
  for (const std::string& name : media) {  // a kind we do not know is one we never send
    if (const auto kind = inference::find_media_kind(name)) {
      model.media.add(*kind);
    }
  }
  reader.text("checksum", model.checksum);
  STATOR_CHECK(reader.take_status());
  STATOR_CHECK(read_pool(object, model.pool));
  return read_handoff(object, model.handoff);
}

Result<InstanceState> parse_state(std::string_view name) {
  const auto* found = std::ranges::find(kStateNames, name);
  if (found == kStateNames.end()) {
    return corrupt("state", "one of starting, ready, draining");
  }
  return static_cast<InstanceState>(found - kStateNames.begin());
}

bool is_name(std::string_view text) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !text.empty() && text.size() <= kNameMax && std::ranges::all_of(text, allowed);
}

}  // namespace

std::string_view to_string(InstanceState state) {
  return kStateNames[static_cast<size_t>(state)];
}

std::string InstanceKey::to_string() const {
  return fmt::format("{}/{}/{}/{:x}", namespace_name, component, endpoint, worker.value());
}

std::string to_json(const InstanceRecord& record) {
  json::Value out;
  out["schema"] = 1;
  out["namespace"] = record.key.namespace_name;
  out["component"] = record.key.component;
  out["endpoint"] = record.key.endpoint;
  out["instance_id"] = record.key.worker.value();
  out["incarnation"] = record.incarnation.value();
  out["address"] = record.address;
  out["state"] = to_string(record.state);
  out["started_at_ms"] = record.started_at_ms;
  out["model"] = model_to_json(record.model);
  return json::to_text(out);
}

Result<InstanceRecord> parse_instance_record(std::string_view text) {
  if (text.size() > kRecordBytesMax) {
    return Error(Code::kTooLarge, fmt::format("instance record: {} bytes, at most {} are read",
                                              text.size(), kRecordBytesMax));
  }
  const auto document = json::parse(text);
  if (!document || !document->is_object()) {
    return Error(Code::kCorrupt, "instance record: not a JSON object");
  }
  const json::Value& object = *document;
  InstanceRecord record;
  uint64_t worker = 0;
  uint64_t incarnation = 0;
  std::string state = "ready";
  FieldReader reader(object);
  reader.text("namespace", record.key.namespace_name);
  reader.text("component", record.key.component);
  reader.text("endpoint", record.key.endpoint);
  reader.integer("instance_id", worker);
  reader.integer("incarnation", incarnation);
  reader.text("address", record.address);
  reader.text("state", state);
  reader.integer("started_at_ms", record.started_at_ms);
  STATOR_CHECK(reader.take_status());
  if (const json::Value* model = object.find("model")) {
    if (!model->is_object()) {
      return corrupt("model", "an object");
    }
    STATOR_CHECK(read_model(*model, record.model));
  }
  record.key.worker = WorkerId(worker);
  record.incarnation = Incarnation(incarnation);
  STATOR_TRY(record.state, parse_state(state));
  auto valid = validate(record);
  if (!valid.has_value()) {
    return std::move(valid.error()).with_code(Code::kCorrupt);
  }
  return record;
}

Status validate(const InstanceRecord& record) {
  const std::pair<std::string_view, const std::string&> names[] = {
      {"namespace", record.key.namespace_name},
      {"component", record.key.component},
      {"endpoint", record.key.endpoint}};
  for (const auto& [field, name] : names) {
    if (!is_name(name)) {
      return Error(Code::kInvalidArgument,
                   fmt::format("instance record: {} \"{}\" must be 1 … {} of a-z, 0-9, _ and -",
                               field, name, kNameMax));
    }
  }
  if (record.key.worker.value() == 0 || record.key.worker.value() > kWorkerIdMax) {
    return Error(Code::kInvalidArgument,
                 fmt::format("instance record: instance_id {} must be 1 … 2^53 - 1",
                             record.key.worker.value()));
  }
  if (record.address.empty() || record.address.size() > kAddressMax) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("instance record: address has {} bytes, must be host:port or \"local\" "
                    "of at most {}",
                    record.address.size(), kAddressMax));
  }
  if (record.model.block_size == 0) {
    return Error(Code::kInvalidArgument, "instance record: kv_block_size is 0");
  }
  return {};
}

}  // namespace stator::discovery
