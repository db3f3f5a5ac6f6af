// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/published_blocks.h"

#include <utility>

namespace stator::fake_engine {
namespace {

bool touches(const BlockMedium& medium, size_t begin, size_t end) {
  return medium.begin < end && medium.begin + medium.count > begin;
}

/// The tokens from `begin` on as they are told.
void show_placeholders(const BlockOwner& owner, size_t begin, std::vector<TokenId>& tokens) {
  for (const BlockMedium& medium : owner.media) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (touches(medium, begin + i, begin + i + 1)) {
        tokens[i] = medium.placeholder;
      }
    }
  }
}

/// Of the block of these tokens.
std::vector<std::string> extra_keys_of(const BlockOwner& owner, size_t begin, size_t end) {
  const bool first_block = begin == 0;
  std::vector<std::string> keys;
  if (!owner.lora_name.empty()) {
    keys.push_back(owner.lora_name);
  }
  for (const BlockMedium& medium : owner.media) {
    if (touches(medium, begin, end)) {
      keys.push_back(medium.digest);
    }
  }
  if (first_block && !owner.cache_salt.empty()) {
    keys.push_back(owner.cache_salt);
  }
  return keys;
}

}  // namespace

SequenceTrace::SequenceTrace(uint32_t block_size, BlockOwner owner)
    : owner_(std::make_shared<const BlockOwner>(std::move(owner))),
      hasher_(block_size, blocks::hash_seed(owner_->lora_name, owner_->cache_salt)) {}

PublishedBlocks::PublishedBlocks(uint32_t block_size, size_t blocks_max)
    : block_size_(block_size), blocks_max_(blocks_max) {}

void PublishedBlocks::append(SequenceTrace& trace, std::span<const TokenId> tokens) {
  const size_t before = trace.hasher_.sequences().size();
  trace.tokens_.insert(trace.tokens_.end(), tokens.begin(), tokens.end());
  trace.hasher_.append(tokens);
  const auto hashes = trace.hasher_.sequences();
  for (size_t i = before; i < hashes.size(); ++i) {
    const auto begin = trace.tokens_.begin() + static_cast<std::ptrdiff_t>(i * block_size_);
    Entry entry{.tokens = {begin, begin + block_size_},
                .parent = i == 0 ? std::nullopt : std::optional(hashes[i - 1].value()),
                .extra_keys = extra_keys_of(*trace.owner_, i * block_size_, (i + 1) * block_size_),
                .owner = trace.owner_};
    show_placeholders(*trace.owner_, i * block_size_, entry.tokens);
    remember(hashes[i].value(), std::move(entry));
  }
}

void PublishedBlocks::remember(uint64_t hash, Entry entry) {
  const auto [found, fresh] = entries_.try_emplace(hash);
  found->second = std::move(entry);  // the latest owner is named, as engines do
  if (fresh) {
    order_.push_back(hash);
  }
  while (entries_.size() > blocks_max_) {
    entries_.erase(order_.front());
    order_.pop_front();
  }
}

void PublishedBlocks::add_stored(uint64_t hash, kv::StorageTier tier, std::vector<WireEvent>& out) {
  const auto found = entries_.find(hash);
  if (found == entries_.end()) {
    ++unknown_blocks_;
    last_owner_ = nullptr;
    return;
  }
  const Entry& entry = found->second;
  auto* run = out.empty() ? nullptr : std::get_if<WireStored>(&out.back());
  const bool continues = run != nullptr && entry.owner == last_owner_ && entry.parent &&
                         *entry.parent == run->hashes.back() && run->tier == tier;
  if (!continues) {
    run = &std::get<WireStored>(out.emplace_back(WireStored{.hashes = {},
                                                            .parent = entry.parent,
                                                            .tokens = {},
                                                            .block_size = block_size_,
                                                            .lora_id = entry.owner->lora_id,
                                                            .lora_name = entry.owner->lora_name,
                                                            .extra_keys = {},
                                                            .session_id = entry.owner->session_id,
                                                            .tier = tier}));
    last_owner_ = entry.owner;
  }
  run->hashes.push_back(hash);
  run->tokens.insert(run->tokens.end(), entry.tokens.begin(), entry.tokens.end());
  run->extra_keys.push_back(entry.extra_keys);
}

std::vector<WireEvent> PublishedBlocks::translate(std::span<const kv::KvEvent> events) {
  std::vector<WireEvent> out;
  last_owner_ = nullptr;
  for (const kv::KvEvent& event : events) {
    if (const auto* stored = std::get_if<kv::BlocksStored>(&event.data)) {
      for (const kv::StoredBlock& block : stored->blocks) {
        add_stored(block.external.value(), event.tier, out);
      }
    } else if (const auto* removed = std::get_if<kv::BlocksRemoved>(&event.data)) {
      auto* last = out.empty() ? nullptr : std::get_if<WireRemoved>(&out.back());
      const bool continues = last != nullptr && last->tier == event.tier;
      WireRemoved& into = continues ? *last
                                    : std::get<WireRemoved>(out.emplace_back(
                                          WireRemoved{.hashes = {}, .tier = event.tier}));
      for (const blocks::ExternalHash block : removed->blocks) {
        into.hashes.push_back(block.value());
      }
    } else {
      out.emplace_back(WireCleared{});
    }
  }
  return out;
}

std::optional<WireStored> PublishedBlocks::describe(const SequenceTrace& trace,
                                                    size_t blocks) const {
  const auto hashes = trace.hasher_.sequences();
  if (blocks == 0 || blocks > hashes.size()) {
    return std::nullopt;
  }
  const BlockOwner& owner = *trace.owner_;
  WireStored out{
      .hashes = {},
      .parent = std::nullopt,
      .tokens = {trace.tokens_.begin(),
                 trace.tokens_.begin() + static_cast<std::ptrdiff_t>(blocks * block_size_)},
      .block_size = block_size_,
      .lora_id = owner.lora_id,
      .lora_name = owner.lora_name,
      .extra_keys = {},
      .session_id = owner.session_id};
  show_placeholders(owner, 0, out.tokens);
  for (size_t i = 0; i < blocks; ++i) {
    out.hashes.push_back(hashes[i].value());
    out.extra_keys.push_back(extra_keys_of(owner, i * block_size_, (i + 1) * block_size_));
  }
  return out;
}

}  // namespace stator::fake_engine
