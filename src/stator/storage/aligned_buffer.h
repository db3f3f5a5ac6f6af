// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "stator/core/assert.h"

namespace stator::storage {

/// Whole pages of memory, as direct I/O wants them. Not zeroed; its destructor gives them back.
class AlignedBuffer {
 public:
  explicit AlignedBuffer(size_t bytes)
      : data_(
            static_cast<std::byte*>(std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage)),
            &std::free),
        bytes_(bytes) {
    STATOR_ASSERT(data_ != nullptr, "out of memory");
  }
  std::span<std::byte> bytes() const { return {data_.get(), bytes_}; }

 private:
  static constexpr size_t kPage = 4096;
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
  size_t bytes_;
};

}  // namespace stator::storage
