// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "stator/blocks/block_hash.h"
#include "stator/core/ids.h"

namespace stator::kv {

/// What a full block is, as the cache compares it. A view; the block in front of it is the other
/// half and is named beside it.
struct BlockIdentity {
  blocks::SequenceHash sequence;  ///< its name in events: of it and of everything before it
  blocks::LocalHash local;        ///< what routers compare
  /// What it is. Empty where nobody knows tokens (simulations of blocks): the name counts then.
  std::span<const TokenId> tokens{};
  /// Whose it is, see block_owner(). Counts for the first block of a sequence only: all others
  /// stand behind one.
  std::string_view owner{};
};

/// The adapter and the salt that keep equal tokens apart, as one text; empty for neither. Hashes
/// of blocks mix the two into 64 bits, which says less.
std::string block_owner(std::string_view lora_name, std::string_view cache_salt);

/// The full blocks of one sequence. A view of what the sequence has.
struct SequenceBlocks {
  std::span<const blocks::SequenceHash> sequences;
  std::span<const blocks::LocalHash> locals{};  ///< parallel, or empty: nothing is registered
  std::span<const TokenId> tokens{};            ///< of the whole sequence
  uint32_t block_size = 0;                      ///< in tokens
  size_t unknown = 0;                           ///< so many first blocks' tokens nobody knows
  std::string_view owner{};

  size_t size() const { return sequences.size(); }
  BlockIdentity operator[](size_t index) const {
    BlockIdentity identity{.sequence = sequences[index], .owner = owner};
    if (index < locals.size()) {
      identity.local = locals[index];
    }
    if (index >= unknown) {
      identity.tokens = tokens.subspan(index * block_size, block_size);
    }
    return identity;
  }
};

}  // namespace stator::kv
