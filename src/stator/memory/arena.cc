// SPDX-License-Identifier: Apache-2.0
#include "stator/memory/arena.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

namespace stator::memory {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

std::string system_text(int error) {
  return std::generic_category().message(error);
}

/// A memfd of `bytes` zero bytes. Caller closes it.
Result<int> make_memfd(const std::string& name, size_t bytes) {
  const int descriptor = memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) {
    return Error(Code::kIo,
                 fmt::format("cannot create shared memory '{}': {}", name, system_text(errno)));
  }
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    close(descriptor);
    return Error(Code::kIo, fmt::format("cannot size shared memory '{}' to {} bytes: {}", name,
                                        bytes, system_text(error)));
  }
  // Who maps it in another process must not be killed by its getting shorter.
  (void)fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  return descriptor;
}

}  // namespace

Result<Arena> Arena::create(const ArenaOptions& options) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (options.bytes == 0 || options.bytes > std::numeric_limits<ptrdiff_t>::max() - page) {
    return Error(Code::kInvalidArgument,
                 fmt::format("an arena of {} bytes is not possible", options.bytes));
  }
  const size_t bytes = (options.bytes + page - 1) / page * page;
  Arena arena;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (options.sharing == Sharing::kMemfd) {
    STATOR_TRY(arena.descriptor_, make_memfd(options.name, bytes));
    flags = MAP_SHARED | MAP_NORESERVE;
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, arena.descriptor_, 0);
  if (data == MAP_FAILED) {
    return Error(Code::kIo, fmt::format("cannot map {} bytes of memory: {}; ask for less or raise "
                                        "the address-space limit (ulimit -v)",
                                        bytes, system_text(errno)));
  }
  arena.data_ = static_cast<std::byte*>(data);
  arena.bytes_ = bytes;
  const size_t small = options.huge_pages == HugePages::kAdviseWhenLarge ? kHugePageBytes : 0;
  if (options.huge_pages != HugePages::kNo && bytes > small) {
    // Best effort: without huge pages everything works, with more page-table walks.
    (void)madvise(arena.data_ + small, bytes - small, MADV_HUGEPAGE);
  }
  return arena;
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

Arena::~Arena() {
  release();
}

void Arena::release() noexcept {
  if (data_ != nullptr) {
    munmap(data_, bytes_);
  }
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
  data_ = nullptr;
  bytes_ = 0;
  descriptor_ = -1;
}

}  // namespace stator::memory
