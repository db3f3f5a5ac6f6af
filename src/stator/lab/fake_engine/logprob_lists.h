// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/inference/sampling.h"
#include "stator/json/writer.h"

namespace stator::fake_engine {

// Log-probabilities in the lists that engine servers share, whoever writes what is in an entry.

/// One position of a completion's lists.
struct LogprobRow {
  TokenId token;
  std::optional<float> logprob;              ///< none: of a prompt's first token
  std::vector<inference::TokenLogprob> top;  ///< empty: null
};

/// A completion's object of four lists. `shown` says how a token is written; `offset` counts the
/// characters shown so far and goes on from chunk to chunk.
void write_completion_logprobs(json::Writer& json, const std::vector<LogprobRow>& rows,
                               size_t& offset, const std::function<std::string(TokenId)>& shown);

/// [{…,"top_logprobs":[{…}]}]: `members(entry)` writes what stands in the braces.
template <typename Members>
void write_logprob_entries(json::Writer& json,
                           const std::vector<inference::TokenLogprobs>& logprobs, Members members) {
  json.begin_array();
  for (const inference::TokenLogprobs& entry : logprobs) {
    json.begin_object();
    members(entry.sampled);
    json.key("top_logprobs").begin_array();
    for (const inference::TokenLogprob& other : entry.top) {
      json.begin_object();
      members(other);
      json.end_object();
    }
    json.end_array().end_object();
  }
  json.end_array();
}

/// "token", "logprob" and "bytes", as entries of chats have them.
void write_chat_logprob(json::Writer& json, std::string_view text, float logprob);

}  // namespace stator::fake_engine
