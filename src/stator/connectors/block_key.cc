// SPDX-License-Identifier: Apache-2.0
#include "stator/connectors/block_key.h"

#include <algorithm>
#include <string>

#include "stator/blocks/block_hash.h"
#include "stator/core/hash.h"

namespace stator::connectors {

KeyBytes to_bytes(const storage::BlockName& name) {
  KeyBytes out;
  const auto lineage = name.lineage.big_endian();
  std::ranges::copy(lineage, out.begin());
  std::ranges::copy(name.check, out.begin() + lineage.size());
  return out;
}

storage::BlockName from_bytes(const KeyBytes& bytes) {
  std::array<std::byte, 16> lineage;
  storage::BlockName out;
  std::ranges::copy(std::span(bytes).first<16>(), lineage.begin());
  std::ranges::copy(std::span(bytes).last<16>(), out.check.begin());
  out.lineage = kv::LineageHash::from_big_endian(lineage);
  return out;
}

std::vector<storage::BlockName> name_tokens(const storage::Digest& space,
                                            const storage::BlockName* parent,
                                            std::string_view owner, std::span<const TokenId> tokens,
                                            uint32_t block_tokens) {
  const uint64_t seed = blocks::hash_seed("", owner);
  std::vector<storage::BlockName> out;
  out.reserve(tokens.size() / block_tokens);
  storage::BlockName last;
  if (parent != nullptr) {
    last = *parent;
  } else {
    last.check = storage::root_check(space, owner);
  }
  for (bool first = parent == nullptr; tokens.size() >= block_tokens; first = false) {
    const auto block = tokens.first(block_tokens);
    tokens = tokens.subspan(block_tokens);
    const blocks::LocalHash local = blocks::hash_block(block, seed);
    const auto lineage = first ? kv::LineageHash::root(local) : last.lineage.extend(local);
    if (!lineage) {
      break;
    }
    last = {.lineage = *lineage, .check = storage::next_check(last.check, block)};
    out.push_back(last);
  }
  return out;
}

storage::BlockName name_text(const storage::Digest& space, std::string_view name) {
  // No owner of a sequence begins like this: their names and these are apart.
  std::string owner("name\0", 5);
  owner += name;
  return {.lineage = kv::LineageHash::root(blocks::LocalHash(xxh3_64(owner))),
          .check = storage::root_check(space, owner)};
}

}  // namespace stator::connectors
