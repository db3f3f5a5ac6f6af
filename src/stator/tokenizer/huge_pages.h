// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

namespace stator::tokenizer {

/// Memory for tables that are read at random places: large ones are aligned to huge pages and ask
/// for them, so that a look-up costs a cache miss but seldom a page walk (in a virtual machine a
/// walk costs as much as the miss).
template <typename T>
struct HugePageAllocator {
  using value_type = T;
  static constexpr size_t kHugePageBytes = size_t{2} << 20;

  HugePageAllocator() = default;
  template <typename U>
  explicit HugePageAllocator(const HugePageAllocator<U>&) {}

  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    const bool huge = bytes >= kHugePageBytes / 2;
    const size_t alignment = huge ? kHugePageBytes : alignof(T) < 64 ? 64 : alignof(T);
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    void* memory = std::aligned_alloc(alignment, rounded);
    if (memory == nullptr) {
      throw std::bad_alloc();
    }
    if (huge) {
      // Only advice: without huge pages all is the same, a little slower.
      (void)::madvise(memory, rounded, MADV_HUGEPAGE);
    }
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t) { std::free(memory); }

  bool operator==(const HugePageAllocator&) const = default;
};

template <typename T>
using HugeVector = std::vector<T, HugePageAllocator<T>>;

}  // namespace stator::tokenizer
