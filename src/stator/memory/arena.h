// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "stator/core/result.h"

namespace stator::memory {

/// Who may see an arena's pages.
enum class Sharing : uint8_t {
  kPrivate,  ///< this process only
  kMemfd,    ///< behind a memfd whose descriptor can be passed to another process
};

/// Whether to ask the kernel for transparent huge pages. Advice only: a kernel that refuses is
/// fine. With huge pages the first touch makes 2 MiB resident, so small or sparse arenas should say
/// no, and those that fill from their beginning and may stay small: only when large, which leaves
/// out the first 2 MiB.
enum class HugePages : uint8_t { kNo, kAdvise, kAdviseWhenLarge };

struct ArenaOptions {
  size_t bytes = 0;  ///< rounded up to whole pages; 0 is an error
  HugePages huge_pages = HugePages::kNo;
  Sharing sharing = Sharing::kPrivate;
  std::string name = "stator";  ///< of the memfd, visible in /proc/<pid>/maps
};

/// A page-aligned piece of zeroed memory from mmap, for things that are large, live long and want
/// their pages lazily: KV blocks, packed weights.
///
///   STATOR_TRY(Arena arena, Arena::create({.bytes = blocks * block_bytes}));
///   std::span<std::byte> all = arena.bytes();
///
/// I1  The range stays at its address until the arena is destroyed; moving the arena keeps it.
/// I2  A page costs memory only after it was first written; what was never written reads as zero.
/// Thread-safety: that of the bytes in it. Never reserves swap; out of memory kills, as everywhere.
class Arena {
 public:
  static Result<Arena> create(const ArenaOptions& options);

  Arena() noexcept = default;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&& other) noexcept;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  std::span<std::byte> bytes() { return {data_, bytes_}; }
  std::span<const std::byte> bytes() const { return {data_, bytes_}; }
  /// The memfd, owned by the arena; −1 for a private one.
  int descriptor() const { return descriptor_; }

 private:
  void release() noexcept;

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace stator::memory
