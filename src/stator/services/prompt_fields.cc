// SPDX-License-Identifier: Apache-2.0
#include "stator/services/prompt_fields.h"

#include <algorithm>

#include "stator/services/service_api.h"

namespace stator::services {

using blocks::LocalHash;
using blocks::SequenceHash;

Result<PartitionName> read_partition(const Fields& fields, std::string_view fallback) {
  PartitionName name;
  if (fallback.empty() || fields.has("model_name")) {
    STATOR_TRY(name.model, fields.text("model_name"));
  } else {
    name.model = fallback;
  }
  if (name.model.empty()) {
    return fields.wrong("model_name", "the name of a model");
  }
  STATOR_TRY(name.group, fields.text_or("routing_group", "default"));
  return name;
}

PartitionFilter read_filter(std::string_view query) {
  return {.model = query_value(query, "model_name"), .group = query_value(query, "routing_group")};
}

std::vector<SequenceHash> chain_all(std::span<const uint64_t> locals) {
  std::vector<SequenceHash> chained;
  chained.reserve(locals.size());
  for (const uint64_t local : locals) {
    chained.push_back(chained.empty() ? blocks::chain(LocalHash(local))
                                      : blocks::chain(chained.back(), LocalHash(local)));
  }
  return chained;
}

uint32_t PromptFields::length(uint32_t block_size) const {
  const uint64_t blocks = std::max(block_hashes.size(), sequence_hashes.size());
  const uint64_t known =
      tokens.empty() ? std::max<uint64_t>(isl_tokens, blocks * block_size) : tokens.size();
  return static_cast<uint32_t>(std::min<uint64_t>(known, UINT32_MAX));
}

std::vector<SequenceHash> PromptFields::index_hashes(uint32_t block_size) const {
  if (by_hash()) {
    return chain_all(block_hashes);
  }
  if (tokens.empty() && !sequence_hashes.empty()) {
    return tracking_hashes(block_size);
  }
  std::vector<SequenceHash> hashes;
  blocks::extend_sequences(tokens, block_size, seed, hashes);
  return hashes;
}

std::vector<SequenceHash> PromptFields::tracking_hashes(uint32_t block_size) const {
  if (sequence_hashes.empty()) {
    return index_hashes(block_size);
  }
  std::vector<SequenceHash> hashes;
  for (const uint64_t hash : sequence_hashes) {
    hashes.emplace_back(hash);
  }
  return hashes;
}

Result<PromptFields> read_prompt(const Fields& fields) {
  PromptFields prompt;
  STATOR_TRY(const auto eagle, fields.flag("is_eagle"));
  if (eagle.value_or(false)) {
    return Error(Code::kUnsupported, "is_eagle: blocks of token pairs are not supported");
  }
  STATOR_TRY(prompt.tokens, fields.tokens("token_ids"));
  STATOR_TRY(prompt.block_hashes, fields.hashes("block_hashes"));
  STATOR_TRY(prompt.sequence_hashes, fields.hashes("sequence_hashes"));
  STATOR_TRY(prompt.isl_tokens, fields.number_or("isl_tokens", 0, UINT32_MAX));
  STATOR_TRY(const std::string lora, fields.text_or("lora_name", ""));
  STATOR_TRY(const std::string salt, fields.text_or("cache_salt", ""));
  prompt.seed = blocks::hash_seed(lora, salt);
  if (!prompt.sequence_hashes.empty() && !prompt.block_hashes.empty() &&
      prompt.sequence_hashes.size() != prompt.block_hashes.size()) {
    return fields.wrong("sequence_hashes", "as many as block_hashes");
  }
  return prompt;
}

}  // namespace stator::services
