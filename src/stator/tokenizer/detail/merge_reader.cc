// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/merge_reader.h"

#include <algorithm>

#include "stator/core/assert.h"
#include "stator/tokenizer/byte_alphabet.h"

namespace stator::tokenizer {

/// Texts that are not of the byte alphabet stay empty: they have no bytes.
void MergeReader::spell(const Spelled& merge, Texts& texts) {
  const auto& [left, right] = merge;
  const size_t begin = buffer_.size();
  texts.texts = {};
  if (spelling_ == Spelling::kAsInFile) {
    buffer_.append(left).append(right.substr(std::min(prefix_bytes_, right.size())));
    texts.texts = {left, right, std::string_view(buffer_).substr(begin)};
    return;
  }
  const ByteAlphabet& alphabet = ByteAlphabet::get();
  if (!alphabet.append_unmapped(left, buffer_)) {
    return;
  }
  const size_t border = buffer_.size();
  if (alphabet.append_unmapped(right, buffer_)) {
    const std::string_view all = buffer_;
    texts.texts = {all.substr(begin, border - begin), all.substr(border), all.substr(begin)};
  }
}

void MergeReader::read(std::span<const Spelled> merges) {
  STATOR_ASSERT(merges.size() <= kAtOnce, "as many as there is room for");
  size_t bytes = 0;
  for (const auto& [left, right] : merges) {
    bytes += left.size() + right.size();
  }
  buffer_.clear();
  buffer_.reserve(2 * bytes);  // unmapping asks for room before it knows how much it needs
  for (size_t i = 0; i < merges.size(); ++i) {
    spell(merges[i], texts_[i]);
    for (size_t part = 0; part < 3; ++part) {
      texts_[i].hashes[part] = TextIds::hash_of(texts_[i].texts[part]);
      ids_.prefetch(texts_[i].hashes[part]);
    }
  }
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto id = [&](size_t part) {
      const std::string_view text = texts_[i].texts[part];
      return text.empty() ? TextIds::kNone : ids_.find(text, texts_[i].hashes[part]);
    };
    found_[i] = {id(0), id(1), id(2)};
  }
}

}  // namespace stator::tokenizer
