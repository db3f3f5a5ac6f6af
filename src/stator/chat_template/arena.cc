// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/arena.h"

#include <algorithm>
#include <string>

#include "stator/chat_template/detail/failure.h"

namespace stator::chat_template {
namespace {

// A short render fits the first chunk; below glibc's mmap threshold it comes without page faults.
constexpr size_t kFirstChunkBytes = size_t{32} << 10U;
constexpr size_t kLargestChunkBytes = size_t{1} << 20U;

}  // namespace

void* Arena::allocate_chunk(size_t bytes) {
  const size_t left = bytes_max_ - std::min(bytes_max_, bytes_reserved_);
  if (bytes > left || bytes > SIZE_MAX - 8U) {
    detail::fail("values need more than " + std::to_string(bytes_max_) + " bytes of memory",
                 Code::kTooLarge);
  }
  const size_t grown = std::clamp(bytes_reserved_, kFirstChunkBytes, kLargestChunkBytes);
  const size_t rounded = (bytes + 7U) & ~size_t{7};
  const size_t chunk = std::max(rounded, std::min(grown, left & ~size_t{7}));
  chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(chunk));
  bytes_reserved_ += chunk;
  next_ = chunks_.back().get() + rounded;
  end_ = chunks_.back().get() + chunk;
  return chunks_.back().get();
}

}  // namespace stator::chat_template
