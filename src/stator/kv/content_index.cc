// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/content_index.h"

#include <algorithm>
#include <string>

#include "stator/core/assert.h"
#include "stator/core/keyed_hash.h"
#include "stator/core/random.h"

namespace stator::kv {
namespace {

constexpr ContentId kRoot{0};

std::string_view bytes_of(std::span<const TokenId> tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()};
}

}  // namespace

std::string block_owner(std::string_view lora_name, std::string_view cache_salt) {
  if (lora_name.empty() && cache_salt.empty()) {
    return {};
  }
  std::string owner = std::to_string(lora_name.size());  // so that no two pairs read the same
  owner += ':';
  owner += lora_name;
  owner += cache_salt;
  return owner;
}

/// Parents are numbers that repeat in no two contents, so a bijection of them is enough beside the
/// secret hash of the tokens.
uint64_t ContentIndex::key_of(ContentId parent, const BlockIdentity& identity) {
  uint64_t key = identity.tokens.empty() ? mix64(identity.sequence.value())
                                         : keyed_hash(bytes_of(identity.tokens));
  key ^= mix64(parent.value());
  return parent == kRoot && !identity.owner.empty() ? key ^ keyed_hash(identity.owner) : key;
}

std::string_view ContentIndex::owner_of(uint32_t slot) const {
  const auto found = owners_.find(slot);
  return found == owners_.end() ? std::string_view() : std::string_view(found->second);
}

std::span<const TokenId> ContentIndex::tokens_of(uint32_t slot) const {
  const size_t length = entries_[slot].length - 1;
  return length == 0 ? std::span<const TokenId>()
                     : std::span(tokens_).subspan(slot * stride_, length);
}

BlockIdentity ContentIndex::identity(uint32_t slot) const {
  const Entry& entry = entries_[slot];
  return {.sequence = entry.sequence,
          .local = entry.local,
          .tokens = tokens_of(slot),
          .owner = owner_of(slot)};
}

bool ContentIndex::is(uint32_t slot, ContentId parent, const BlockIdentity& identity) const {
  const Entry& entry = entries_[slot];
  return entry.parent == parent && entry.sequence == identity.sequence &&
         std::ranges::equal(tokens_of(slot), identity.tokens) &&
         (parent != kRoot || owner_of(slot) == identity.owner);
}

std::optional<uint32_t> ContentIndex::find(ContentId parent, const BlockIdentity& identity) const {
  const auto name = names_.find(identity.sequence);
  if (name == names_.end()) {
    return std::nullopt;
  }
  const auto [first, contents] = name->second;
  if (first != kNone && is(first, parent, identity)) {
    return first;
  }
  if (contents == (first == kNone ? 0 : 1)) {
    return std::nullopt;
  }
  const auto twin = twins_.find(key_of(parent, identity));
  return twin != twins_.end() && is(twin->second, parent, identity) ? std::optional(twin->second)
                                                                    : std::nullopt;
}

ContentIndex::Inserted ContentIndex::insert(uint32_t slot, ContentId content, ContentId parent,
                                            const BlockIdentity& identity) {
  STATOR_ASSERT(!holds(slot), "N1: a slot holds one content");
  Name& name = names_[identity.sequence];
  if (name.slot == kNone) {
    name.slot = slot;
  } else if (!twins_.try_emplace(key_of(parent, identity), slot).second) {
    return Inserted::kRefused;
  }
  if (slot >= entries_.size()) {
    entries_.resize(slot + 1);  // bounded by the tier's blocks
  }
  const std::span<const TokenId> tokens = identity.tokens;
  if (!tokens.empty()) {
    STATOR_ASSERT(stride_ == 0 || stride_ == tokens.size(), "blocks of a tier have one size");
    stride_ = tokens.size();
    tokens_.resize(std::max(tokens_.size(), (slot + size_t{1}) * stride_));
    std::ranges::copy(tokens, tokens_.begin() + static_cast<ptrdiff_t>(slot * stride_));
  }
  if (parent == kRoot && !identity.owner.empty()) {
    owners_.emplace(slot, identity.owner);
  }
  entries_[slot] = {.content = content,
                    .parent = parent,
                    .sequence = identity.sequence,
                    .local = identity.local,
                    .length = static_cast<uint32_t>(tokens.size()) + 1};
  ++size_;
  return ++name.contents == 1 ? Inserted::kNewName : Inserted::kKnownName;
}

bool ContentIndex::erase(uint32_t slot) {
  STATOR_ASSERT(holds(slot), "N1: what is erased is there");
  Entry& entry = entries_[slot];
  const auto name = names_.find(entry.sequence);
  if (name->second.slot == slot) {
    name->second.slot = kNone;
  } else {
    twins_.erase(key_of(entry.parent, identity(slot)));
  }
  if (entry.parent == kRoot) {
    owners_.erase(slot);
  }
  entry.length = 0;
  --size_;
  if (--name->second.contents > 0) {
    return false;
  }
  names_.erase(name);
  return true;
}

void ContentIndex::clear() {
  names_.clear();
  twins_.clear();
  size_ = 0;
  owners_.clear();
  for (Entry& entry : entries_) {
    entry.length = 0;
  }
}

}  // namespace stator::kv
