// SPDX-License-Identifier: Apache-2.0
#include "stator/request/prompt_view.h"

#include <algorithm>

namespace stator::request {

PromptView::PromptView(const Parts& parts)
    : tokens_(static_cast<uint32_t>(parts.prompt.size() + parts.output.size())),
      block_size_(parts.block_size),
      known_(parts.sequences) {
  const size_t blocks = tokens_ / parts.block_size;
  if (parts.output.empty() || blocks <= known_.size()) {
    return;
  }
  const std::span<const TokenId> open = parts.prompt.subspan(known_.size() * parts.block_size);
  std::vector<TokenId> tail(open.begin(), open.end());
  tail.insert(tail.end(), parts.output.begin(), parts.output.end());
  grown_.reserve(blocks);
  grown_.assign(known_.begin(), known_.end());
  for (size_t at = 0; grown_.size() < blocks; at += parts.block_size) {
    const blocks::LocalHash local =
        blocks::hash_block(std::span(tail).subspan(at, parts.block_size), parts.seed);
    grown_.push_back(grown_.empty() ? blocks::chain(local) : blocks::chain(grown_.back(), local));
  }
}

std::span<const blocks::SequenceHash> PromptView::useful() const {
  const std::span<const blocks::SequenceHash> all = sequences();
  const size_t count = (std::max<size_t>(tokens_, 1) - 1) / block_size_;
  return all.first(std::min(count, all.size()));
}

}  // namespace stator::request
