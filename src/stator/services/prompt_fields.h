// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/services/indexer.h"
#include "stator/services/json_fields.h"

namespace stator::services {

/// "model_name" and "routing_group"; the model's name has `fallback` when it may be absent.
Result<PartitionName> read_partition(const Fields& fields, std::string_view fallback = {});

/// What of several models and routing groups a GET asks for; absent = all.
struct PartitionFilter {
  std::optional<std::string> model;
  std::optional<std::string> group;

  bool matches(const PartitionName& name) const {
    return (!model || *model == name.model) && (!group || *group == name.group);
  }
};
/// `model_name` and `routing_group` of a query string.
PartitionFilter read_filter(std::string_view query);

/// A prompt as other gateways send it: token ids with what salts their hashes, or hashes.
struct PromptFields {
  std::vector<TokenId> tokens;
  std::vector<uint64_t> block_hashes;     ///< local, one per full block
  std::vector<uint64_t> sequence_hashes;  ///< chained; empty: chained by us
  uint64_t isl_tokens = 0;
  uint64_t seed = 0;

  bool by_hash() const { return tokens.empty() && !block_hashes.empty(); }
  bool empty() const { return tokens.empty() && block_hashes.empty() && sequence_hashes.empty(); }
  /// Prompt length in tokens.
  uint32_t length(uint32_t block_size) const;
  /// What an index is asked with: without tokens and block_hashes, sequence_hashes as they are.
  std::vector<blocks::SequenceHash> index_hashes(uint32_t block_size) const;
  /// What load is booked under.
  std::vector<blocks::SequenceHash> tracking_hashes(uint32_t block_size) const;
};

/// token_ids, lora_name, cache_salt, or block_hashes, sequence_hashes, isl_tokens. Empty prompts
/// are fine here. kInvalidArgument, kUnsupported for is_eagle.
Result<PromptFields> read_prompt(const Fields& fields);

/// Chains local hashes.
std::vector<blocks::SequenceHash> chain_all(std::span<const uint64_t> locals);

}  // namespace stator::services
