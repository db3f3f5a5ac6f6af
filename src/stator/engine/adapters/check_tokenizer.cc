// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/check_tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "stator/engine/adapters/json_fields.h"
#include "stator/engine/adapters/upkeep.h"
#include "stator/json/writer.h"
#include "stator/net/http_client.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::engine::adapters {
namespace {

// Plain enough that no normalizer changes it, long enough that two vocabularies disagree.
constexpr std::string_view kProbe = "The answer to 6 times 7 is 42, isn't it?";
constexpr size_t kShownIds = 6;

/// The request that asks for kProbe's ids without special tokens; empty for engines that have none.
std::string probe_body(std::string_view kind, const std::string& model) {
  std::string body;
  json::Writer json(body);
  if (kind == "vllm" || kind == "sglang") {
    json.begin_object().key("model").value(model).key("prompt").value(kProbe);
    json.key("add_special_tokens").value(false).end_object();
  } else if (kind == "llamacpp") {
    json.begin_object().key("content").value(kProbe);
    json.key("add_special").value(false).end_object();
  }
  return body;
}

std::string shown(std::span<const TokenId> ids) {
  return fmt::format("[{}{}]", fmt::join(ids.first(std::min(ids.size(), kShownIds)), ","),
                     ids.size() > kShownIds ? ",…" : "");
}

}  // namespace

Status compare_token_ids(std::string_view answer, const tokenizer::Tokenizer& tokenizer) {
  JsonReader reader;
  const auto root = reader.read_object(answer, "/tokenize");
  JsonArray array;
  std::vector<TokenId> theirs;
  std::vector<TokenId> ours;
  if (!root || !find_array(*root, "tokens", array) || !append_tokens(array, theirs) ||
      theirs.empty() ||
      !tokenizer.encode(kProbe, {.add_special = tokenizer::AddSpecial::kNo}, ours)) {
    return {};  // no answer to compare with
  }
  if (theirs == ours) {
    return {};
  }
  return Error(Code::kInvalidArgument,
               fmt::format("\"{}\" is {} to the engine and {} to MODEL's tokenizer", kProbe,
                           shown(theirs), shown(ours)));
}

Status check_tokenizer(const AdapterConfig& config, const EngineFacts& facts,
                       const tokenizer::Tokenizer& tokenizer) {
  std::string body = probe_body(config.kind, facts.model);
  if (body.empty()) {
    return {};
  }
  net::HttpHeaderList headers = headers_of(config);
  headers.emplace_back("Content-Type", "application/json");
  const auto answer = net::http_request(
      {.method = "POST", .url = config.url + "/tokenize", .headers = headers, .body = body},
      {.connect_timeout = config.connect_timeout, .timeout = config.connect_timeout});
  return answer && answer->status == 200 ? compare_token_ids(answer->body, tokenizer) : Status();
}

}  // namespace stator::engine::adapters
