// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/rank_merges.h"

#include "stator/core/assert.h"
#include "stator/core/flat_map.h"

namespace stator::tokenizer {
namespace {

// Longer tokens are runs of one character, whose short cuts suffice; this bounds the work.
constexpr size_t kCutsMax = 4096;

}  // namespace

void add_merges_by_rank(const std::vector<uint32_t>& ranks, BpeSpec& spec) {
  STATOR_ASSERT(ranks.size() == spec.vocab.size(), "every token has a rank");
  FlatSet<std::string_view> tokens;
  tokens.reserve(spec.vocab.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    tokens.insert(spec.vocab[i].first);
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::string_view text = spec.vocab[i].first;
    if (ranks[i] == kNoMerge || text.size() > kCutsMax) {
      continue;
    }
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const std::string_view left = text.substr(0, cut);
      const std::string_view right = text.substr(cut);
      if (tokens.contains(left) && tokens.contains(right)) {
        spec.merges.emplace_back(left, right);
        spec.merge_ranks.push_back(ranks[i]);
      }
    }
  }
}

}  // namespace stator::tokenizer
