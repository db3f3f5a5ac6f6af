// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/event_normalizer.h"

#include <algorithm>
#include <utility>

namespace stator::kv_events {
namespace {

using blocks::ExternalHash;
using blocks::SequenceHash;
using kv::StorageTier;

// More groups than any hybrid model has; a publisher that counts upwards learns nothing beyond.
constexpr size_t kGroupsMax = 256;

// Salts travel through engines behind such a tag, which tells them from other extra keys.
constexpr std::string_view kSaltTags[] = {"stator-salt:", "dynamo-cache-salt:"};

constexpr std::string_view kMainKinds[] = {"full_attention", "mla_attention",
                                           "sink_full_attention"};
constexpr std::string_view kOtherKinds[] = {
    "sliding_window",          "sliding_window_mla",     "mamba",
    "chunked_local_attention", "encoder_only_attention", "cross_attention"};

struct MediumTier {
  std::string_view medium;
  StorageTier tier;
};
constexpr MediumTier kMedia[] = {{"", StorageTier::kDevice},
                                 {"GPU", StorageTier::kDevice},
                                 {"DEVICE", StorageTier::kDevice},
                                 {"CPU", StorageTier::kHostPinned},
                                 {"CPU_PINNED", StorageTier::kHostPinned},
                                 {"CPU_TIER1", StorageTier::kHostPinned},
                                 {"CPU_TIER2", StorageTier::kDisk},
                                 {"DISK", StorageTier::kDisk},
                                 {"NVME", StorageTier::kDisk},
                                 {"STORAGE", StorageTier::kDisk},
                                 {"FS", StorageTier::kDisk},
                                 {"EXTERNAL", StorageTier::kExternal},
                                 {"NETWORK", StorageTier::kExternal},
                                 {"REMOTE", StorageTier::kExternal},
                                 {"SHARED", StorageTier::kExternal},
                                 {"OBJ", StorageTier::kExternal}};

std::optional<StorageTier> tier_of(std::string_view medium) {
  const auto* const found = std::ranges::find(kMedia, medium, &MediumTier::medium);
  return found == std::end(kMedia) ? std::nullopt : std::optional(found->tier);
}

std::optional<Drop> judge_ownership(std::string_view ownership) {
  if (ownership.empty() || ownership == "framework") {
    return std::nullopt;
  }
  return ownership == "kvcr" ? Drop::kUnsupportedOwnership : Drop::kUnknownOwnership;
}

uint8_t bit_of(StorageTier tier) {
  return static_cast<uint8_t>(1U << static_cast<unsigned>(tier));
}

/// The salt, if `text` is one.
std::optional<std::string_view> salt_of(std::string_view text) {
  for (const std::string_view tag : kSaltTags) {
    if (text.starts_with(tag)) {
      return text.substr(tag.size());
    }
  }
  return std::nullopt;
}

/// A hash twice, or the parent among its children: such a chain is a circle.
bool is_circular(const EngineStored& stored) {
  std::vector<uint64_t> hashes = stored.hashes;
  if (stored.parent) {
    hashes.push_back(*stored.parent);
  }
  std::ranges::sort(hashes);
  return std::ranges::adjacent_find(hashes) != hashes.end();
}

void emit_stored(std::vector<kv::KvEvent>& out, kv::KvEvent place,
                 const std::optional<ExternalHash>& parent,
                 std::span<const kv::StoredBlock> pieces) {
  if (!out.empty() && out.back().tier == place.tier) {
    auto* last = std::get_if<kv::BlocksStored>(&out.back().data);
    if (last != nullptr && parent && last->blocks.back().external == *parent &&
        last->blocks.size() + pieces.size() <= EventNormalizer::kMergedBlocksMax) {
      last->blocks.insert(last->blocks.end(), pieces.begin(), pieces.end());
      return;
    }
  }
  place.data = kv::BlocksStored{parent, {pieces.begin(), pieces.end()}};
  out.push_back(std::move(place));
}

void emit_removed(std::vector<kv::KvEvent>& out, kv::KvEvent place,
                  std::span<const kv::StoredBlock> pieces) {
  auto* last = out.empty() || out.back().tier != place.tier
                   ? nullptr
                   : std::get_if<kv::BlocksRemoved>(&out.back().data);
  if (last == nullptr || last->blocks.size() >= EventNormalizer::kMergedBlocksMax) {
    place.data = kv::BlocksRemoved{};
    out.push_back(std::move(place));
    last = &std::get<kv::BlocksRemoved>(out.back().data);
  }
  // Deepest first, as engines evict.
  for (size_t i = pieces.size(); i-- > 0;) {
    last->blocks.push_back(pieces[i].external);
  }
}

}  // namespace

std::string_view drop_name(Drop drop) {
  static constexpr std::string_view kNames[kDropCount] = {
      "ignored_event",           "non_local_locality",     "unknown_medium",
      "unsupported_ownership",   "unknown_ownership",      "ambiguous_cache_namespace",
      "non_main_attention_kind", "unknown_kind",           "non_main_attention_group",
      "unlearned_group_idx",     "undeclared_rank",        "block_size_mismatch",
      "opaque_content",          "parent_block_not_found", "block_not_found",
      "invalid_block",           "capacity_exhausted"};
  return kNames[static_cast<size_t>(drop)];
}

EventNormalizer::EventNormalizer(NormalizerConfig config)
    : config_(config), block_size_(config.block_size), ranks_(config.dp_ranks) {}

std::vector<kv::KvEvent> EventNormalizer::normalize(uint32_t socket_rank,
                                                    const EngineEventBatch& batch) {
  stats_.drops[static_cast<size_t>(Drop::kIgnoredEvent)] += batch.ignored_events;
  const uint32_t rank = batch.dp_rank.value_or(socket_rank);
  std::vector<kv::KvEvent> out;
  if (rank >= ranks_.size()) {
    stats_.drops[static_cast<size_t>(Drop::kUndeclaredRank)] += batch.events.size();
    return out;
  }
  for (const EngineEvent& event : batch.events) {
    handle(rank, event, out);
  }
  return out;
}

std::vector<kv::KvEvent> EventNormalizer::reset(uint32_t rank) {
  std::vector<kv::KvEvent> out;
  if (rank < ranks_.size()) {
    clear(rank, out);
    ranks_[rank].group_is_main.clear();
  }
  return out;
}

void EventNormalizer::handle(uint32_t rank, const EngineEvent& event, Out& out) {
  Rank& state = ranks_[rank];
  if (const auto* cleared = std::get_if<EngineCleared>(&event)) {
    if (const auto reason = judge_ownership(cleared->ownership)) {
      drop(*reason);
    } else {
      clear(rank, out);
    }
    return;
  }
  const auto* stored = std::get_if<EngineStored>(&event);
  const auto* removed = std::get_if<EngineRemoved>(&event);
  const auto tier = accept(stored != nullptr ? stored->scope : removed->scope, state);
  if (!tier) {
    return;
  }
  const Target target{state, *tier, out, rank};
  if (stored != nullptr) {
    store(target, *stored);
  } else {
    remove(target, *removed);
  }
}

std::optional<StorageTier> EventNormalizer::accept(const EngineEventScope& scope, Rank& rank) {
  const std::optional<StorageTier> tier = tier_of(scope.medium);
  std::optional<Drop> reason = judge_group(scope, rank);
  if (scope.group && !scope.kind.empty() && rank.group_is_main.size() < kGroupsMax) {
    rank.group_is_main[*scope.group] = !reason;
  }
  if (!reason) {
    reason = judge_ownership(scope.ownership);
  }
  if (!scope.locality.empty() && scope.locality != "LOCAL") {
    reason = Drop::kNonLocalLocality;
  } else if (!tier) {
    reason = Drop::kUnknownMedium;
  }
  if (reason) {
    drop(*reason);
    return std::nullopt;
  }
  return tier;
}

std::optional<Drop> EventNormalizer::judge_group(const EngineEventScope& scope, Rank& rank) const {
  if (!scope.kind.empty()) {
    if (std::ranges::find(kMainKinds, scope.kind) != std::end(kMainKinds)) {
      return std::nullopt;
    }
    return std::ranges::find(kOtherKinds, scope.kind) != std::end(kOtherKinds)
               ? Drop::kNonMainAttentionKind
               : Drop::kUnknownKind;
  }
  if (!scope.group) {
    return std::nullopt;
  }
  const auto learned = rank.group_is_main.find(*scope.group);
  if (learned == rank.group_is_main.end()) {
    return *scope.group == 0 ? std::nullopt : std::optional(Drop::kUnlearnedGroupIdx);
  }
  return learned->second ? std::nullopt : std::optional(Drop::kNonMainAttentionGroup);
}

bool EventNormalizer::fits_block_size(const EngineStored& stored) {
  if (block_size_ == 0) {
    block_size_ = stored.block_size;
  }
  if (block_size_ != 0 && stored.block_size != 0 && stored.block_size % block_size_ == 0) {
    return true;
  }
  mismatched_block_size_ = stored.block_size;
  drop(Drop::kBlockSizeMismatch);
  return false;
}

std::optional<EventNormalizer::Chain> EventNormalizer::find_chain(const Rank& rank,
                                                                  const EngineStored& stored) {
  std::string_view salt = stored.cache_salt;
  if (const auto tagged = salt_of(salt)) {
    salt = *tagged;
  }
  if (!stored.parent) {
    if (!stored.extras.empty()) {
      for (const std::string& text : stored.extras.front().texts) {
        salt = text == stored.lora_name ? salt : salt_of(text).value_or(salt);
      }
    }
    return Chain{std::nullopt, blocks::hash_seed(stored.lora_name, salt)};
  }
  const auto parent = rank.held.find(*stored.parent);
  if (parent == rank.held.end()) {
    drop(Drop::kParentBlockNotFound);
    return std::nullopt;
  }
  // Only first blocks must tell their salt; one that tells it again must not differ.
  const uint64_t seed = parent->second.seed;
  if (!salt.empty() && blocks::hash_seed(stored.lora_name, salt) != seed) {
    drop(Drop::kAmbiguousCacheNamespace);
    return std::nullopt;
  }
  return Chain{parent->second.pieces.back().external, seed};
}

void EventNormalizer::store(Target target, const EngineStored& stored) {
  if (stored.tokens.empty()) {
    store_announced(target, stored);
    return;
  }
  if (stored.has_lora_id && stored.lora_name.empty()) {
    drop(Drop::kAmbiguousCacheNamespace);
    return;
  }
  if (is_circular(stored)) {
    drop(Drop::kInvalidBlock);
    return;
  }
  if (!fits_block_size(stored)) {
    return;
  }
  if (const auto chain = find_chain(target.rank, stored)) {
    store_blocks(target, stored, *chain);
  }
}

/// Offloaders copy blocks to a lower tier and name only their hashes.
void EventNormalizer::store_announced(Target target, const EngineStored& stored) {
  for (const uint64_t hash : stored.hashes) {
    const auto known = target.rank.held.find(hash);
    if (known == target.rank.held.end()) {
      drop(Drop::kBlockNotFound);
      continue;
    }
    hold(target, hash, known->second);
  }
}

void EventNormalizer::store_blocks(Target target, const EngineStored& stored, Chain chain) {
  const size_t overlap = stored.bigram ? 1 : 0;
  for (size_t block = 0; block < stored.hashes.size(); ++block) {
    if ((block + 1) * stored.block_size + overlap > stored.tokens.size()) {
      drop(Drop::kBlockSizeMismatch);
      return;
    }
    Held held;
    if (const auto reason = hash_pieces(stored, block, chain, held)) {
      drop(*reason);
      return;
    }
    if (!hold(target, stored.hashes[block], std::move(held))) {
      return;
    }
  }
}

std::optional<Drop> EventNormalizer::hash_pieces(const EngineStored& stored, size_t block,
                                                 Chain& chain, Held& held) const {
  static const EngineBlockExtras kNone;
  const EngineBlockExtras& extras = block < stored.extras.size() ? stored.extras[block] : kNone;
  const size_t count = stored.block_size / block_size_;
  // Which of several pieces a medium belongs to is not told.
  if (extras.opaque || (count > 1 && !extras.mm_hashes.empty())) {
    return Drop::kOpaqueContent;
  }
  for (const std::string& text : extras.texts) {
    const auto salt = salt_of(text);
    const bool known = text == stored.lora_name ||
                       (salt && chain.seed == blocks::hash_seed(stored.lora_name, *salt));
    if (!known) {
      return Drop::kAmbiguousCacheNamespace;
    }
  }
  std::vector<uint64_t> media = extras.mm_hashes;
  std::ranges::sort(media);
  media.erase(std::ranges::unique(media).begin(), media.end());

  held.parent = chain.parent;
  held.seed = chain.seed;
  const std::span<const TokenId> tokens(stored.tokens);
  for (size_t piece = 0; piece < count; ++piece) {
    const auto local =
        blocks::hash_block(tokens.subspan(block * stored.block_size + piece * block_size_,
                                          block_size_ + (stored.bigram ? 1 : 0)),
                           chain.seed, media);
    const SequenceHash sequence = chain.parent
                                      ? blocks::chain(SequenceHash(chain.parent->value()), local)
                                      : blocks::chain(local);
    chain.parent = ExternalHash(sequence.value());
    held.pieces.push_back({*chain.parent, local});
  }
  return std::nullopt;
}

/// False: the blocks after this one must not be stored.
bool EventNormalizer::hold(Target target, uint64_t hash, Held held) {
  FlatMap<uint64_t, Held>& all = target.rank.held;
  const uint8_t bit = bit_of(target.tier);
  auto known = all.find(hash);
  if (known == all.end()) {
    if (all.size() >= config_.blocks_max) {
      drop(Drop::kCapacityExhausted);
      return false;
    }
    known = all.emplace(hash, std::move(held)).first;
    ++stats_.held_blocks;
  } else if (known->second.pieces != held.pieces) {
    drop(Drop::kAmbiguousCacheNamespace);  // one name for two contents: believe neither
    forget(target, known);
    return false;
  }
  Held& block = known->second;
  if ((block.tiers & bit) != 0) {
    ++stats_.repeated_blocks;
    return true;
  }
  block.tiers = static_cast<uint8_t>(block.tiers | bit);
  emit_stored(target.out, {0, target.dp_rank, target.tier, {}}, block.parent, block.pieces);
  return true;
}

void EventNormalizer::forget(Target target, FlatMap<uint64_t, Held>::iterator block) {
  for (const StorageTier tier : {StorageTier::kDevice, StorageTier::kHostPinned, StorageTier::kDisk,
                                 StorageTier::kExternal}) {
    if ((block->second.tiers & bit_of(tier)) != 0) {
      emit_removed(target.out, {0, target.dp_rank, tier, {}}, block->second.pieces);
    }
  }
  target.rank.held.erase(block);
  --stats_.held_blocks;
}

void EventNormalizer::remove(Target target, const EngineRemoved& removed) {
  const uint8_t bit = bit_of(target.tier);
  for (const uint64_t hash : removed.hashes) {
    const auto known = target.rank.held.find(hash);
    if (known == target.rank.held.end() || (known->second.tiers & bit) == 0) {
      drop(Drop::kBlockNotFound);
      continue;
    }
    Held& block = known->second;
    emit_removed(target.out, {0, target.dp_rank, target.tier, {}}, block.pieces);
    block.tiers = static_cast<uint8_t>(block.tiers & ~bit);
    if (block.tiers == 0) {
      target.rank.held.erase(known);
      --stats_.held_blocks;
    }
  }
}

void EventNormalizer::clear(uint32_t rank, Out& out) {
  FlatMap<uint64_t, Held>& all = ranks_[rank].held;
  stats_.held_blocks -= all.size();
  all.clear();
  out.push_back({0, rank, StorageTier::kDevice, kv::AllCleared{}});
}

}  // namespace stator::kv_events
