// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace stator::chat_template {

class Meter;

/// Bump allocator behind one compiled template or one render: everything in it is trivially
/// destructible and dies with it, so values are plain 16-byte words without reference counts.
///
/// Bounded: a request past `bytes_max` throws detail::Failure, which the public functions of this
/// module turn into a kTooLarge error. Single-threaded use; a finished arena may be read by many.
class Arena {
 public:
  /// `meter`, if any, is charged by what is read into the arena and by the dicts in it; it outlives
  /// the arena. Arenas that many threads read have none.
  explicit Arena(size_t bytes_max, Meter* meter = nullptr) : bytes_max_(bytes_max), meter_(meter) {}
  Arena(Arena&&) noexcept = default;
  Arena& operator=(Arena&&) noexcept = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() = default;

  /// `bytes` aligned to 8; never null.
  void* allocate(size_t bytes) {
    const size_t rounded = (bytes + 7U) & ~size_t{7};
    if (rounded > static_cast<size_t>(end_ - next_) || rounded < bytes) [[unlikely]] {
      return allocate_chunk(bytes);
    }
    std::byte* result = next_;
    next_ += rounded;
    return result;
  }

  template <typename T, typename... Args>
  T* make(Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 8);
    return ::new (allocate(sizeof(T))) T{std::forward<Args>(args)...};
  }

  /// Uninitialised room for `count` elements.
  template <typename T>
  T* array(size_t count) {
    static_assert(std::is_trivially_destructible_v<T> && alignof(T) <= 8);
    if (count > SIZE_MAX / sizeof(T)) [[unlikely]] {
      return static_cast<T*>(allocate_chunk(SIZE_MAX));
    }
    return static_cast<T*>(allocate(count * sizeof(T)));
  }

  template <typename T>
  std::span<T> copy(const std::vector<T>& items) {
    T* target = array<T>(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      target[i] = items[i];
    }
    return {target, items.size()};
  }

  std::string_view copy(std::string_view text) {
    if (text.empty()) {
      return {};
    }
    auto* target = static_cast<char*>(allocate(text.size()));
    std::memcpy(target, text.data(), text.size());
    return {target, text.size()};
  }

  /// Bytes taken from the heap so far, at most `bytes_max`.
  size_t bytes_reserved() const { return bytes_reserved_; }
  Meter* meter() const { return meter_; }

 private:
  void* allocate_chunk(size_t bytes);

  size_t bytes_max_;
  Meter* meter_;
  size_t bytes_reserved_ = 0;
  std::byte* next_ = nullptr;
  std::byte* end_ = nullptr;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
};

}  // namespace stator::chat_template
