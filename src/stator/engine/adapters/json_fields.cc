// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/json_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/engine/adapters/raise.h"

namespace stator::engine::adapters {

Result<JsonObject> JsonReader::read_object(std::string_view json, std::string_view what) {
  JsonObject object;
  if (parser_.parse(json.data(), json.size()).get(object) != simdjson::SUCCESS) {
    return Error(Code::kCorrupt, fmt::format("{} is not a JSON object", what));
  }
  return object;
}

uint64_t unsigned_or(const JsonObject& object, std::string_view key, uint64_t otherwise) {
  uint64_t value = 0;
  return object[key].get(value) == simdjson::SUCCESS ? value : otherwise;
}

double number_or(const JsonObject& object, std::string_view key, double otherwise) {
  double value = 0;
  return object[key].get(value) == simdjson::SUCCESS ? value : otherwise;
}

std::string_view text_or(const JsonObject& object, std::string_view key,
                         std::string_view otherwise) {
  std::string_view value;
  return object[key].get(value) == simdjson::SUCCESS ? value : otherwise;
}

bool is_true(const JsonObject& object, std::string_view key) {
  bool value = false;
  return object[key].get(value) == simdjson::SUCCESS && value;
}

bool find_object(const JsonObject& object, std::string_view key, JsonObject& out) {
  return object[key].get(out) == simdjson::SUCCESS;
}

bool find_array(const JsonObject& object, std::string_view key, JsonArray& out) {
  return object[key].get(out) == simdjson::SUCCESS;
}

Status append_tokens(const JsonArray& array, std::vector<TokenId>& out) {
  for (const JsonElement element : array) {
    uint64_t id = 0;
    if (element.get(id) != simdjson::SUCCESS || id > UINT32_MAX) {
      return Error(Code::kCorrupt, "the engine sent a token id that is no such number");
    }
    out.push_back(static_cast<TokenId>(id));
  }
  return {};
}

Status check_error_event(const JsonObject& event, std::string_view engine) {
  JsonElement error;
  if (event["error"].get(error) != simdjson::SUCCESS || error.is_null()) {
    return {};
  }
  JsonObject fields;
  uint64_t status = 500;
  if (error.get(fields) == simdjson::SUCCESS) {
    status = unsigned_or(fields, "code", unsigned_or(fields, "status_code", 500));
  }
  return to_error(engine, static_cast<int>(status), simdjson::minify(event));
}

void set_ranks(inference::TokenLogprobs& logprobs) {
  uint32_t rank = 0;
  for (inference::TokenLogprob& entry : logprobs.top) {
    entry.rank = ++rank;
  }
  // Equal ones keep the engine's order.
  std::ranges::sort(logprobs.top,
                    [](const inference::TokenLogprob& a, const inference::TokenLogprob& b) {
                      return a.logprob != b.logprob ? a.logprob > b.logprob : a.rank < b.rank;
                    });
  rank = 0;
  for (inference::TokenLogprob& entry : logprobs.top) {
    entry.rank = ++rank;
  }
  const auto found =
      std::ranges::find(logprobs.top, logprobs.sampled.token, &inference::TokenLogprob::token);
  logprobs.sampled.rank = found != logprobs.top.end() ? found->rank : rank + 1;
}

uint32_t cached_tokens_of(const JsonObject& event) {
  JsonObject usage;
  JsonObject details;
  if (!find_object(event, "usage", usage) ||
      !find_object(usage, "prompt_tokens_details", details)) {
    return 0;
  }
  return static_cast<uint32_t>(unsigned_or(details, "cached_tokens", 0));
}

}  // namespace stator::engine::adapters
