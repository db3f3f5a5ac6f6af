// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/openai_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace stator::engine::adapters {

Result<OpenAiAnswer::Event> OpenAiAnswer::read(std::string_view json) {
  Event event;
  STATOR_TRY(event.root, reader_.read_object(json, "an event of the answer"));
  STATOR_CHECK(check_error_event(event.root, engine_));
  cached_tokens_ = std::max(cached_tokens_, cached_tokens_of(event.root));
  JsonArray choices;
  if (!find_array(event.root, "choices", choices) || choices.begin() == choices.end()) {
    return event;
  }
  if ((*choices.begin()).get(event.choice) != simdjson::SUCCESS) {
    return Error(Code::kCorrupt, fmt::format("{} sent a choice that is no object", engine_));
  }
  event.has_choice = true;
  if (const std::string_view word = text_or(event.choice, "finish_reason", ""); !word.empty()) {
    STATOR_TRY(held_.finish, to_finish(engine_, word));
  }
  return event;
}

Status OpenAiAnswer::done(Raised& out) {
  if (!finished()) {
    return Error(Code::kDisconnected,
                 fmt::format("{} ended the answer without saying why", engine_));
  }
  out.finish = held_.finish;
  out.cached_tokens = std::max(out.cached_tokens, cached_tokens_);
  std::ranges::copy(held_.tokens, std::back_inserter(out.tokens));
  std::ranges::move(held_.logprobs, std::back_inserter(out.logprobs));
  out.last_is_stop = held_.last_is_stop;
  return {};
}

Status learn_models(std::string_view body, EngineFacts& facts) {
  JsonReader reader;
  STATOR_TRY(const JsonObject root, reader.read_object(body, "/v1/models"));
  JsonArray models;
  if (!find_array(root, "data", models)) {
    return Error(Code::kCorrupt, "/v1/models has no list of models");
  }
  bool found = false;
  facts.adapters.clear();
  for (const JsonElement element : models) {
    JsonObject model;
    if (element.get(model) != simdjson::SUCCESS) {
      continue;
    }
    const std::string_view id = text_or(model, "id", "");
    if (!text_or(model, "parent", "").empty()) {
      facts.adapters.emplace_back(id);
    } else if (!found && !id.empty() && (facts.model.empty() || facts.model == id)) {
      found = true;
      facts.model = id;
      facts.model_root = text_or(model, "root", "");
      facts.owner = text_or(model, "owned_by", "");
      facts.max_model_len =
          static_cast<uint32_t>(unsigned_or(model, "max_model_len", facts.max_model_len));
    }
  }
  if (!found) {
    return Error(
        Code::kNotFound,
        facts.model.empty()
            ? std::string("/v1/models lists no model")
            : fmt::format("the engine does not serve '{}' (engine.upstream_model)", facts.model));
  }
  std::erase(facts.adapters, "");
  std::ranges::sort(facts.adapters);
  return {};
}

}  // namespace stator::engine::adapters
