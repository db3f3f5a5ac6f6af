// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/storage/block_name.h"

namespace stator::connectors {

/// A block's name and proof in 32 bytes, as they cross the C interface: lineage hash (big-endian),
/// then check.
using KeyBytes = std::array<std::byte, 32>;
KeyBytes to_bytes(const storage::BlockName& name);
storage::BlockName from_bytes(const KeyBytes& bytes);

/// Names of the full blocks of `tokens`, which stand behind `parent` (null: they begin a sequence
/// of `owner`). The same names as those of storage::name_blocks(). Stops at the last position there
/// is.
std::vector<storage::BlockName> name_tokens(const storage::Digest& space,
                                            const storage::BlockName* parent,
                                            std::string_view owner, std::span<const TokenId> tokens,
                                            uint32_t block_tokens);

/// Of a block that an engine names itself: `name` says all about its content. It has no place in a
/// sequence.
storage::BlockName name_text(const storage::Digest& space, std::string_view name);

}  // namespace stator::connectors
