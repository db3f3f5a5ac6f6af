// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/logprob_lists.h"

#include <algorithm>
#include <cstdint>

namespace stator::fake_engine {
namespace {

size_t characters_of(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }));
}

}  // namespace

void write_completion_logprobs(json::Writer& json, const std::vector<LogprobRow>& rows,
                               size_t& offset, const std::function<std::string(TokenId)>& shown) {
  json.begin_object().key("text_offset").begin_array();
  for (const LogprobRow& row : rows) {
    json.value(offset);
    offset += characters_of(shown(row.token));
  }
  json.end_array().key("token_logprobs").begin_array();
  for (const LogprobRow& row : rows) {
    row.logprob ? json.value(static_cast<double>(*row.logprob)) : json.null();
  }
  json.end_array().key("tokens").begin_array();
  for (const LogprobRow& row : rows) {
    json.value(shown(row.token));
  }
  json.end_array().key("top_logprobs").begin_array();
  for (const LogprobRow& row : rows) {
    if (row.top.empty()) {
      json.null();
      continue;
    }
    json.begin_object();
    for (const inference::TokenLogprob& entry : row.top) {
      json.key_escaped(shown(entry.token)).value(static_cast<double>(entry.logprob));
    }
    json.end_object();
  }
  json.end_array().end_object();
}

void write_chat_logprob(json::Writer& json, std::string_view text, float logprob) {
  json.key("token").value(text).key("logprob").value(static_cast<double>(logprob));
  json.key("bytes").begin_array();
  for (const char byte : text) {
    json.value(static_cast<uint32_t>(static_cast<unsigned char>(byte)));
  }
  json.end_array();
}

}  // namespace stator::fake_engine
