// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/frame_text.h"

#include <algorithm>

#include "stator/tokenizer/pipeline.h"

namespace stator::tokenizer {
namespace {

void append(std::vector<TokenId>& out, std::span<const TokenId> ids) {
  out.insert(out.end(), ids.begin(), ids.end());
}

size_t room(size_t ids_max, size_t special) {
  return ids_max > special ? ids_max - special : 0;
}

}  // namespace

std::vector<TokenId> frame_text(const Tokenizer& tokenizer, std::span<const TokenId> text,
                                size_t ids_max) {
  const PostProcessor& post = tokenizer.pipeline().post_processor;
  const size_t kept = std::min(text.size(), room(ids_max, post.before.size() + post.after.size()));
  std::vector<TokenId> ids;
  ids.reserve(kept + post.before.size() + post.after.size());
  append(ids, post.before);
  append(ids, text.first(kept));
  append(ids, post.after);
  return ids;
}

FramedPair frame_pair(const Tokenizer& tokenizer, std::span<const TokenId> first,
                      std::span<const TokenId> second, size_t ids_max) {
  const PostProcessor& post = tokenizer.pipeline().post_processor;
  const size_t left =
      room(ids_max, post.before.size() + post.between.size() + post.after_pair.size());
  size_t first_kept = first.size();
  size_t second_kept = second.size();
  if (first_kept + second_kept > left) {
    // The shorter one keeps up to half, rounded in favour of the first one.
    const size_t half = left / 2;
    if (first_kept <= left - half) {
      second_kept = left - first_kept;
    } else if (second_kept <= half) {
      first_kept = left - second_kept;
    } else {
      first_kept = left - half;
      second_kept = half;
    }
  }
  FramedPair pair;
  append(pair.ids, post.before);
  append(pair.ids, first.first(first_kept));
  append(pair.ids, post.between);
  pair.first_length = static_cast<uint32_t>(pair.ids.size());
  append(pair.ids, second.first(second_kept));
  append(pair.ids, post.after_pair);
  return pair;
}

}  // namespace stator::tokenizer
