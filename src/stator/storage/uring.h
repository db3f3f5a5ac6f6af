// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "stator/io/file_descriptor.h"

namespace stator::storage {

/// One read or write of a header and a payload that stand behind each other in a file.
struct UringOp {
  int fd = -1;
  bool write = false;
  uint64_t offset = 0;
  std::array<iovec, 2> parts{};
  uint8_t first = 0;   ///< parts before it are done
  int32_t result = 0;  ///< bytes moved in all, or −errno (−EIO: never begun); set by run()
  size_t left() const;
};

/// An io_uring for batches: many operations are under way at once, driven by one thread, which
/// waits for all of them. Without a library: three system calls and two mapped rings.
/// Source: io_uring(7), io_uring_setup(2), io_uring_enter(2).
///
/// R1  run() returns when no operation of its batch is under way any more, however they ended.
/// R2  At most `depth` operations are under way; more wait in the batch.
/// R3  After run() gave false the kernel takes nothing more: the ring is of no use.
/// Thread-safety: one thread at a time.
class Uring {
 public:
  /// Null where the kernel or its policy (seccomp) has none.
  static std::unique_ptr<Uring> open(uint32_t depth);
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  /// Short transfers go on where they stopped; a read behind the file's end gives −EIO.
  bool run(std::span<UringOp> ops);

 private:
  struct Rings;
  explicit Uring(std::unique_ptr<Rings> rings);
  void queue(UringOp& op, uint64_t tag);
  int enter(uint32_t submit);
  uint32_t reap(std::span<UringOp> ops, bool more, uint32_t& queued);

  std::unique_ptr<Rings> rings_;
};

}  // namespace stator::storage
