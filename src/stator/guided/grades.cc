// SPDX-License-Identifier: Apache-2.0
#include "stator/guided/grades.h"

#include <algorithm>

namespace stator::guided {

Grades::Level& Grades::level(uint32_t need) {
  if (last_ < levels_.size() && levels_[last_].need == need) {
    return levels_[last_];
  }
  auto found = std::ranges::lower_bound(levels_, need, {}, &Level::need);
  if (found == levels_.end() || found->need != need) {
    found = levels_.insert(found, Level{.need = need, .many = TokenSet(), .few = {}});
  }
  last_ = static_cast<size_t>(found - levels_.begin());
  return *found;
}

void Grades::add(std::span<const TokenId> tokens, uint32_t need) {
  std::vector<TokenId>& few = level(need).few;
  few.insert(few.end(), tokens.begin(), tokens.end());
}

void Grades::add(const TokenSet& tokens, const TokenSet& but, uint32_t need) {
  TokenSet added = tokens;
  added.remove(but);
  TokenSet& many = level(need).many;
  if (many.bytes() == 0) {
    many = std::move(added);
  } else {
    many |= added;
  }
}

void Grades::finish(size_t tokens) {
  // A pair costs eight bytes, a set a bit per token of the vocabulary.
  const size_t few_max = tokens / 64;
  std::vector<Level> kept;
  for (Level& level : levels_) {
    need_max_ = level.need;
    if (level.many.bytes() == 0 && level.few.size() <= few_max) {
      for (const TokenId token : level.few) {
        few_.emplace_back(level.need, token);
      }
      continue;
    }
    if (level.many.bytes() == 0) {
      level.many = TokenSet(tokens);
    }
    for (const TokenId token : level.few) {
      level.many.set(token);
    }
    level.few = {};
    kept.push_back(std::move(level));
  }
  levels_ = std::move(kept);
  few_.shrink_to_fit();
}

void Grades::add_within(uint32_t need, TokenSet& out) const {
  for (const Level& level : levels_) {
    if (level.need > need) {
      break;
    }
    out |= level.many;
  }
  for (const auto& [needed, token] : few_) {
    if (needed > need) {
      break;
    }
    out.set(token);
  }
}

size_t Grades::bytes() const {
  size_t bytes = few_.size() * sizeof(few_.front());
  for (const Level& level : levels_) {
    bytes += sizeof(Level) + level.many.bytes();
  }
  return bytes;
}

}  // namespace stator::guided
