// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/kv/block_identity.h"
#include "stator/kv/lineage_hash.h"

namespace stator::storage {

/// Sixteen bytes of a SHA-256.
using Digest = std::array<std::byte, 16>;
std::string to_hex(const Digest& digest);

/// What two engines must have in common to use each other's KV bytes. Any difference is another
/// namespace, in which nothing of the first is ever found.
struct NamespaceFacts {
  std::string model;      ///< as configured
  std::string revision;   ///< digest of the weights' and the configuration's files
  std::string tokenizer;  ///< its digest; empty where none was read
  std::string dtype;      ///< of KV elements: "f32"
  std::string layout;     ///< "block_first_nhd/1": order and version
  std::string salt;       ///< an operator's own, to start over
  uint32_t block_tokens = 0;
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint64_t block_bytes = 0;
};
/// Digest of the facts as "key=value" lines, in this order.
Digest namespace_of(const NamespaceFacts& facts);

/// A block beyond one engine's memory. `lineage` names it in files, objects and messages; `check`
/// is the proof: a SHA-256 over namespace, owner and all tokens up to its end, so that nobody finds
/// another content with the same one. Both must agree before a byte is used.
struct BlockName {
  kv::LineageHash lineage;
  Digest check{};
  friend bool operator==(const BlockName&, const BlockName&) = default;
};

/// Names of the full blocks of `blocks`, in order, in namespace `space`. Hashes `blocks.tokens`,
/// 0.3 µs a block. Empty when some tokens are unknown.
std::vector<BlockName> name_blocks(const Digest& space, const kv::SequenceBlocks& blocks);

/// check of a block behind `parent_check`, which is root_check() for a first one.
Digest root_check(const Digest& space, std::string_view owner);
Digest next_check(const Digest& parent_check, std::span<const TokenId> tokens);

}  // namespace stator::storage
