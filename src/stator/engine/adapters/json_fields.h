// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/inference/sampling.h"

namespace stator::engine::adapters {

// Forgiving access to what engines say: an absent member and one of another type are the same.

using JsonObject = simdjson::dom::object;
using JsonArray = simdjson::dom::array;
using JsonElement = simdjson::dom::element;

/// One parser per raiser: its memory is reused from event to event.
class JsonReader {
 public:
  /// kCorrupt, naming `what`, when `json` is not an object. Valid until the next call.
  Result<JsonObject> read_object(std::string_view json, std::string_view what);

 private:
  simdjson::dom::parser parser_;
};

uint64_t unsigned_or(const JsonObject& object, std::string_view key, uint64_t otherwise);
double number_or(const JsonObject& object, std::string_view key, double otherwise);
std::string_view text_or(const JsonObject& object, std::string_view key,
                         std::string_view otherwise);
bool is_true(const JsonObject& object, std::string_view key);
bool find_object(const JsonObject& object, std::string_view key, JsonObject& out);
bool find_array(const JsonObject& object, std::string_view key, JsonArray& out);
/// Appends the ids of an array; kCorrupt for one that is no token id.
Status append_tokens(const JsonArray& array, std::vector<TokenId>& out);

/// The error an event carries: {"error": …} in any shape, or nothing.
Status check_error_event(const JsonObject& event, std::string_view engine);

/// Fills ranks of a list that an engine gave without any: `top` by falling probability, the sampled
/// token by its place there, or behind all of them when it is not among them.
void set_ranks(inference::TokenLogprobs& logprobs);

/// usage.prompt_tokens_details.cached_tokens of the OpenAI shape; 0 if absent.
uint32_t cached_tokens_of(const JsonObject& event);

}  // namespace stator::engine::adapters
