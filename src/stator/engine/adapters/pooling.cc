// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/pooling.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stator/engine/adapters/lower.h"
#include "stator/json/value.h"
#include "stator/json/writer.h"

namespace stator::engine::adapters {
namespace {

constexpr std::string_view kEmbeddings = "/v1/embeddings";

Error refuse(std::string text) {
  return {Code::kInvalidArgument, std::move(text)};
}

// ---- requests

/// Token ids where the server takes them, else texts; one value per sequence.
void write_inputs(json::Writer& json, const inference::EngineRequest& request, bool as_text) {
  const inference::PoolRequest& pool = *request.pool;
  json.begin_array();
  if (as_text) {
    for (const std::string& text : pool.texts) {
      json.value(text);
    }
  } else {
    size_t at = 0;
    for (const uint32_t length : pool.lengths) {
      write_tokens(json, std::span(request.tokens).subspan(at, length));
      at += length;
    }
  }
  json.end_array();
}

/// First or second texts of all pairs.
void write_half(json::Writer& json, const inference::PoolRequest& pool, size_t half) {
  json.begin_array();
  for (size_t i = half; i < pool.texts.size(); i += 2) {
    json.value(pool.texts[i]);
  }
  json.end_array();
}

Result<EngineCall> lower_score(const inference::EngineRequest& request, std::string_view kind,
                               const std::string& model) {
  const inference::PoolRequest& pool = *request.pool;
  if (pool.texts.size() != 2 * pool.lengths.size()) {
    return refuse("this engine scores pairs of texts only");
  }
  EngineCall call;
  json::Writer json(call.body);
  json.begin_object().key("model").value(model);
  if (kind == "vllm") {
    call.path = "/score";
    json.key("text_1");
    write_half(json, pool, 0);
    json.key("text_2");
    write_half(json, pool, 1);
    if (!pool.activate) {
      json.key("use_activation").value(false);
    }
    json.end_object();
    return call;
  }
  for (size_t i = 2; i < pool.texts.size(); i += 2) {
    if (pool.texts[i] != pool.texts[0]) {
      return refuse("this engine ranks the documents of one query: send one request per query");
    }
  }
  call.path = "/v1/rerank";
  json.key("query").value(pool.texts[0]).key("documents");
  write_half(json, pool, 1);
  json.key("return_documents").value(false);
  json.end_object();
  return call;
}

// ---- answers

std::optional<float> number_of(const json::Value* value) {
  const auto number = value == nullptr ? std::nullopt : value->as_double();
  return number ? std::optional(static_cast<float>(*number)) : std::nullopt;
}

Error corrupt(std::string_view what) {
  return {Code::kCorrupt, fmt::format("the engine's answer has {}", what)};
}

/// Little-endian f32.
Status append_base64(std::string_view text, std::vector<float>& out) {
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    uint32_t digit = 0;
    if (c >= 'A' && c <= 'Z') {
      digit = static_cast<uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      digit = static_cast<uint32_t>(c - 'a') + 26;
    } else if (c >= '0' && c <= '9') {
      digit = static_cast<uint32_t>(c - '0') + 52;
    } else if (c == '+' || c == '/') {
      digit = c == '+' ? 62 : 63;
    } else if (c == '=') {
      break;
    } else {
      return corrupt("base64 that is none");
    }
    bits = (bits << 6) | digit;
    if (++count == 4) {
      count = 0;
      for (const int shift : {16, 8, 0}) {
        bytes.push_back(static_cast<char>(bits >> shift));
      }
    }
  }
  if (count >= 2) {
    bytes.push_back(static_cast<char>(bits >> (count == 2 ? 4 : 10)));
    if (count == 3) {
      bytes.push_back(static_cast<char>(bits >> 2));
    }
  }
  if (bytes.size() % sizeof(float) != 0) {
    return corrupt("base64 whose length is no multiple of 4 bytes");
  }
  const size_t begin = out.size();
  out.resize(begin + bytes.size() / sizeof(float));
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(out.data() + begin, bytes.data(), bytes.size());
  return {};
}

Status append_numbers(const json::Value& list, std::vector<float>& out) {
  for (const json::Value& entry : list.elements()) {
    const auto number = number_of(&entry);
    if (!number) {
      return corrupt("a vector with something that is no number");
    }
    out.push_back(*number);
  }
  return {};
}

/// One sequence's numbers: base64, a list, or a list of lists, one per token.
struct Rows {
  std::vector<float> values;
  uint32_t count = 1;
};
Result<Rows> read_rows(const json::Value& value) {
  Rows rows;
  if (const auto text = value.as_string()) {
    STATOR_CHECK(append_base64(*text, rows.values));
    return rows;
  }
  if (value.size() > 0 && value.elements()[0].is_array()) {
    rows.count = static_cast<uint32_t>(value.size());
    for (const json::Value& row : value.elements()) {
      STATOR_CHECK(append_numbers(row, rows.values));
    }
    return rows;
  }
  STATOR_CHECK(append_numbers(value, rows.values));
  return rows;
}

class PoolRaiser final : public EventRaiser {
 public:
  PoolRaiser(inference::PoolTask task, size_t sequences) : task_(task), rows_(sequences) {}

  Status on_event(std::string_view text, Raised& /*out*/) override {
    STATOR_TRY(const json::Value root, json::parse(text), "reading the engine's answer");
    const json::Value* list = root.is_array() ? &root : root.find("data");
    list = list != nullptr ? list : root.find("results");
    if (list == nullptr || list->size() != rows_.size()) {
      return corrupt(
          fmt::format("no list of {} entries under \"data\" or \"results\"", rows_.size()));
    }
    for (size_t i = 0; i < list->size(); ++i) {
      STATOR_CHECK(read_entry(list->elements()[i], i));
    }
    if (const json::Value* tokens = root.find_at({"usage", "prompt_tokens"})) {
      prompt_tokens_ =
          static_cast<uint32_t>(std::min<uint64_t>(tokens->as_uint64().value_or(0), UINT32_MAX));
    }
    complete_ = true;
    return {};
  }

  Status on_done(Raised& out) override {
    if (!complete_) {
      return Error(Code::kDisconnected, "the engine ended its answer before it was complete");
    }
    inference::PoolAnswer answer{.prompt_tokens = prompt_tokens_};
    for (const Rows& rows : rows_) {
      const auto width =
          static_cast<uint32_t>(rows.count == 0 ? 0 : rows.values.size() / rows.count);
      if (width == 0 || (answer.width != 0 && width != answer.width) ||
          width * size_t{rows.count} != rows.values.size()) {
        return corrupt("vectors of different lengths");
      }
      answer.width = width;
      if (task_ == inference::PoolTask::kTokenEmbed) {
        answer.rows.push_back(rows.count);
      }
      answer.values.insert(answer.values.end(), rows.values.begin(), rows.values.end());
    }
    if (answer.values.size() > inference::kPoolValuesMax) {
      return refuse(fmt::format("the engine's answer has more than {} numbers: divide the request",
                                inference::kPoolValuesMax));
    }
    out.pooled = std::move(answer);
    return {};
  }

 private:
  Status read_entry(const json::Value& entry, size_t at) {
    const json::Value* index = entry.find("index");
    const uint64_t place = index == nullptr ? at : index->as_uint64().value_or(at);
    if (place >= rows_.size() || !rows_[place].values.empty()) {
      return corrupt("an index twice, or beyond the list");
    }
    Rows& rows = rows_[place];
    for (const std::string_view key : {"embedding", "data", "probs"}) {
      if (const json::Value* value = entry.find(key)) {
        STATOR_TRY(rows, read_rows(*value));
        return {};
      }
    }
    for (const std::string_view key : {"score", "relevance_score"}) {
      if (const auto number = number_of(entry.find(key))) {
        rows.values = {*number};
        return {};
      }
    }
    return corrupt("an entry without numbers");
  }

  const inference::PoolTask task_;
  std::vector<Rows> rows_;  // by sequence
  uint32_t prompt_tokens_ = 0;
  bool complete_ = false;
};

}  // namespace

inference::PoolAbility pool_ability(std::string_view kind, const EngineFacts& facts,
                                    std::string_view task) {
  inference::PoolAbility ability{
      .generates = facts.generates, .tasks = facts.pool_tasks, .wants_text = kind != "trtllm"};
  if (kind == "openai" || kind == "llamacpp") {
    ability.tasks = {inference::PoolTask::kEmbed,
                     inference::PoolTask::kScore};  // such servers do not tell: they refuse
  }
  if (task == "generate" || kind == "trtllm") {
    ability.tasks = {};
    ability.generates = true;
  } else if (task != "auto") {
    ability.generates = false;
    ability.tasks = {};
    if (task == "embed") {
      ability.tasks.add(inference::PoolTask::kEmbed);
      if (kind == "vllm") {
        ability.tasks.add(inference::PoolTask::kTokenEmbed);
      }
    } else {
      ability.tasks.add(task == "score" ? inference::PoolTask::kScore
                                        : inference::PoolTask::kClassify);
    }
  }
  ability.wants_text = ability.wants_text && ability.tasks.any();
  return ability;
}

Result<EngineCall> lower_pool(const inference::EngineRequest& request, std::string_view kind,
                              const EngineFacts& facts) {
  const inference::PoolRequest& pool = *request.pool;
  const std::string& model = request.lora_name.empty() ? facts.model : request.lora_name;
  if (pool.task == inference::PoolTask::kScore) {
    return lower_score(request, kind, model);
  }
  if (pool.task != inference::PoolTask::kEmbed && kind != "vllm") {
    return refuse(
        fmt::format("engine '{}' has no route for task '{}'", kind, to_string(pool.task)));
  }
  const bool as_text = kind == "openai" && !pool.texts.empty();
  EngineCall call;
  json::Writer json(call.body);
  json.begin_object().key("model").value(model).key("input");
  write_inputs(json, request, as_text);
  switch (pool.task) {
    case inference::PoolTask::kTokenEmbed:
      call.path = "/pooling";
      json.key("task").value("token_embed");
      break;
    case inference::PoolTask::kClassify:
      call.path = "/classify";
      break;
    default:
      call.path = kEmbeddings;
      json.key("encoding_format").value(kind == "vllm" ? "base64" : "float");
      break;
  }
  if (!pool.activate) {
    if (kind != "vllm") {
      return refuse(fmt::format("engine '{}' always normalises", kind));
    }
    json.key("use_activation").value(false);
  }
  json.end_object();
  return call;
}

std::unique_ptr<EventRaiser> make_pool_raiser(const inference::EngineRequest& request) {
  return std::make_unique<PoolRaiser>(request.pool->task, request.pool->lengths.size());
}

}  // namespace stator::engine::adapters
