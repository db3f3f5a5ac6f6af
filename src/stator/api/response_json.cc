// SPDX-License-Identifier: Apache-2.0
#include "stator/api/detail/response_json.h"

#include <algorithm>
#include <cmath>

namespace stator::api {
namespace {

void write_token_text(json::Writer& json, const TokenChoice& token,
                      const ResponseOptions& options) {
  if (options.tokens_as_token_ids) {
    json.value("token_id:" + std::to_string(token.id));  // short: no allocation
  } else {
    json.value(token.bytes);
  }
}

void write_token_choice_members(json::Writer& json, const TokenChoice& token,
                                const ResponseOptions& options) {
  json.key("token");
  write_token_text(json, token, options);
  json.key("logprob").value(token.logprob);
  json.key("bytes").begin_array();
  for (const char byte : token.bytes) {
    json.value(static_cast<uint8_t>(byte));
  }
  json.end_array();
}

void write_top_map(json::Writer& json, const LogprobEntry& entry, const ResponseOptions& options) {
  const auto write_member = [&](const TokenChoice& token) {
    if (options.tokens_as_token_ids) {
      json.key_escaped("token_id:" + std::to_string(token.id));
    } else {
      json.key_escaped(token.bytes);
    }
    json.value(token.logprob);
  };
  const auto same_key = [&](const TokenChoice& a, const TokenChoice& b) {
    return options.tokens_as_token_ids ? a.id == b.id : a.bytes == b.bytes;
  };
  if (std::isnan(entry.sampled.logprob)) {
    json.null();
    return;
  }
  json.begin_object();
  write_member(entry.sampled);
  for (size_t i = 0; i < entry.top.size(); ++i) {
    const TokenChoice& token = entry.top[i];
    const auto earlier = entry.top.first(i);
    const bool repeated = std::ranges::any_of(
        earlier, [&](const TokenChoice& other) { return same_key(other, token); });
    if (!repeated && !same_key(entry.sampled, token)) {
      write_member(token);
    }
  }
  json.end_object();
}

}  // namespace

void write_token_ids(json::Writer& json, std::span<const TokenId> ids) {
  json.begin_array();
  for (const TokenId id : ids) {
    json.value(id);
  }
  json.end_array();
}

void write_usage(json::Writer& json, const Usage& usage) {
  json.begin_object();
  json.key("prompt_tokens").value(usage.prompt_tokens);
  json.key("completion_tokens").value(usage.completion_tokens);
  json.key("total_tokens").value(uint64_t{usage.prompt_tokens} + usage.completion_tokens);
  json.key("prompt_tokens_details").begin_object();
  json.key("cached_tokens").value(usage.cached_tokens).end_object();
  json.key("completion_tokens_details").begin_object();
  json.key("reasoning_tokens").value(usage.reasoning_tokens).end_object();
  json.end_object();
}

void write_finish(json::Writer& json, ChoiceFinish finish) {
  if (finish == ChoiceFinish::kNone) {
    json.null();
  } else {
    json.value(finish_reason_name(finish));
  }
}

void write_chat_logprobs(json::Writer& json, const Logprobs& logprobs,
                         const ResponseOptions& options) {
  if (!logprobs) {
    json.null();
    return;
  }
  json.begin_object().key("content").begin_array();
  for (const LogprobEntry& entry : *logprobs) {
    json.begin_object();
    write_token_choice_members(json, entry.sampled, options);
    json.key("top_logprobs").begin_array();
    for (const TokenChoice& token : entry.top) {
      json.begin_object();
      write_token_choice_members(json, token, options);
      json.end_object();
    }
    json.end_array();
    json.key("token_id").value(entry.sampled.id);
    json.end_object();
  }
  json.end_array().key("refusal").null().end_object();
}

void write_completion_logprobs(json::Writer& json, const Logprobs& logprobs,
                               const ResponseOptions& options) {
  if (!logprobs) {
    json.null();
    return;
  }
  json.begin_object().key("tokens").begin_array();
  for (const LogprobEntry& entry : *logprobs) {
    write_token_text(json, entry.sampled, options);
  }
  json.end_array().key("token_logprobs").begin_array();
  for (const LogprobEntry& entry : *logprobs) {
    json.value(entry.sampled.logprob);
  }
  json.end_array().key("top_logprobs").begin_array();
  for (const LogprobEntry& entry : *logprobs) {
    write_top_map(json, entry, options);
  }
  json.end_array().key("text_offset").begin_array();
  for (const LogprobEntry& entry : *logprobs) {
    json.value(entry.text_offset);
  }
  json.end_array().end_object();
}

void write_identity(json::Writer& json, const ResponseIdentity& identity, std::string_view object) {
  json.key("id").value(identity.id);
  json.key("object").value(object);
  json.key("created").value(identity.created_s);
  json.key("model").value(identity.model);
}

}  // namespace stator::api
