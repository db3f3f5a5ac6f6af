// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/kept_prefixes.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "stator/core/flat_map.h"

namespace stator::engine {
namespace {

/// Whether all of `a` stands at the beginning of `b`: blocks hold what was before them, too.
bool is_beginning(const kv::BlockChain& a, const kv::BlockChain& b) {
  return a.size() <= b.size() && a.ids().back() == b.ids()[a.size() - 1];
}

}  // namespace

uint32_t keep_seconds(const inference::RequestContext& context) {
  constexpr std::string_view kMaxAge = "max-age=";
  constexpr uint32_t kMost = 3600;
  uint32_t seconds = 0;
  for (const auto& [name, value] : context.metadata) {
    if (name == "cache-control" && value.starts_with(kMaxAge)) {
      std::from_chars(value.data() + kMaxAge.size(), value.data() + value.size(), seconds);
    }
  }
  return std::min(seconds, kMost);
}

void KeptPrefixes::keep(kv::BlockChain chain, std::string_view session, TimePoint until) {
  if (chain.empty() || chain.size() > blocks_max_) {
    return;
  }
  for (Entry& entry : entries_) {
    if (is_beginning(chain, entry.chain) && entry.until >= until) {
      return;  // kept with more behind it
    }
  }
  std::erase_if(entries_, [&](const Entry& entry) {
    return (!session.empty() && entry.session == session) || is_beginning(entry.chain, chain);
  });
  while (entries_.size() >= kEntriesMax || held() + chain.size() > blocks_max_) {
    give_up_one();
  }
  entries_.push_back({.chain = std::move(chain), .session = std::string(session), .until = until});
}

void KeptPrefixes::expire(TimePoint now) {
  std::erase_if(entries_, [now](const Entry& entry) { return entry.until <= now; });
}

void KeptPrefixes::forget(std::string_view session) {
  if (!session.empty()) {
    std::erase_if(entries_, [session](const Entry& entry) { return entry.session == session; });
  }
}

bool KeptPrefixes::give_up_one() {
  const auto first = std::ranges::min_element(entries_, {}, &Entry::until);
  if (first == entries_.end()) {
    return false;
  }
  entries_.erase(first);
  return true;
}

uint64_t KeptPrefixes::held() const {
  uint64_t blocks = 0;
  for (const Entry& entry : entries_) {
    blocks += entry.chain.size();
  }
  return blocks;
}

uint32_t KeptPrefixes::idle_blocks(const kv::BlockPool& pool) const {
  FlatMap<uint32_t, uint32_t> held_here;  // by block
  for (const Entry& entry : entries_) {
    for (const kv::BlockId block : entry.chain.ids()) {
      ++held_here[block.value()];
    }
  }
  uint32_t idle = 0;
  for (const auto& [block, references] : held_here) {
    idle += pool.references(kv::BlockId(block)) == references ? 1 : 0;
  }
  return idle;
}

}  // namespace stator::engine
