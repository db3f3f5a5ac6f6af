// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/flat_map.h"
#include "stator/core/ids.h"
#include "stator/core/strong_id.h"
#include "stator/kv/block_identity.h"

namespace stator::kv {

/// One content of a KV block: these tokens behind that content, for that owner. Given once and
/// never again, so two blocks of one content id hold the same KV. 0 = in front of a first block.
using ContentId = StrongId<struct ContentTag, uint64_t>;

/// Which slot of a tier holds a content, found by comparing all of it: the 64-bit hashes that name
/// blocks in events are no proof, because anybody finds tokens that have the hash of others in
/// seconds. A slot is a block of the device or a place in host memory.
///
///   index.find(parent_content, identity);            // tokens and parent compared
///   index.insert(slot, content, parent_content, identity);
///
/// N1  A content has at most one slot, and a slot at most one content.
/// N2  A name (sequence hash) is known while a slot has it. Contents of one name are told apart;
///     events announce the name once.
/// N3  The first content of a name is found by the name. Further ones are twins, found by a hash of
///     their tokens that a secret of the process keys: nobody makes a list of them long. A twin
///     that meets another in that table by chance stays out.
///
/// Cost: a look-up by name and a comparison of `block_size` tokens. Per slot 40 bytes, its tokens
/// (64 bytes for 16), and about 30 bytes of the table; owners only for first blocks.
class ContentIndex {
 public:
  /// The slot with this content.
  std::optional<uint32_t> find(ContentId parent, const BlockIdentity& identity) const;

  enum class Inserted : uint8_t {
    kNewName,    ///< to be announced
    kKnownName,  ///< another content has this name: a collision of 64-bit hashes
    kRefused,    ///< N3: nothing was done
  };
  /// `slot` holds this content from now on, which no slot does yet.
  Inserted insert(uint32_t slot, ContentId content, ContentId parent,
                  const BlockIdentity& identity);
  /// It does no longer. True: nobody has its name any more.
  bool erase(uint32_t slot);
  void clear();

  /// Of a slot with a content.
  ContentId content(uint32_t slot) const { return entries_[slot].content; }
  ContentId parent(uint32_t slot) const { return entries_[slot].parent; }
  BlockIdentity identity(uint32_t slot) const;
  blocks::SequenceHash name(uint32_t slot) const { return entries_[slot].sequence; }
  bool holds(uint32_t slot) const { return slot < entries_.size() && entries_[slot].length > 0; }

  size_t size() const { return size_; }
  size_t names() const { return names_.size(); }

 private:
  struct Entry {
    ContentId content;
    ContentId parent;
    blocks::SequenceHash sequence;
    blocks::LocalHash local;
    /// Tokens + 1; 0: the slot is empty.
    uint32_t length = 0;
  };

  static constexpr uint32_t kNone = UINT32_MAX;
  struct Name {
    uint32_t slot = kNone;  // of its first content; kNone once that is gone
    uint32_t contents = 0;
  };

  static uint64_t key_of(ContentId parent, const BlockIdentity& identity);
  std::span<const TokenId> tokens_of(uint32_t slot) const;
  std::string_view owner_of(uint32_t slot) const;
  bool is(uint32_t slot, ContentId parent, const BlockIdentity& identity) const;

  std::vector<Entry> entries_;             // by slot
  std::vector<TokenId> tokens_;            // `stride_` per slot
  size_t stride_ = 0;                      // the longest block's tokens
  FlatMap<uint32_t, std::string> owners_;  // by slot, of first blocks with one
  FlatMap<blocks::SequenceHash, Name> names_;
  FlatMap<uint64_t, uint32_t> twins_;  // by key_of()
  size_t size_ = 0;
};

}  // namespace stator::kv
