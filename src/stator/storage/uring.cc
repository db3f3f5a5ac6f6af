// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/uring.h"

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <utility>

#include "stator/core/assert.h"

namespace stator::storage {
namespace {

/// Memory of the kernel's, mapped.
struct Mapped {
  Mapped() = default;
  Mapped(int fd, size_t bytes_in, off_t what)
      : data(
            ::mmap(nullptr, bytes_in, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what)),
        bytes(bytes_in) {}
  Mapped(Mapped&& other) noexcept
      : data(std::exchange(other.data, MAP_FAILED)), bytes(other.bytes) {}
  Mapped& operator=(Mapped&& other) noexcept {
    std::swap(data, other.data);
    std::swap(bytes, other.bytes);
    return *this;
  }
  ~Mapped() {
    if (data != MAP_FAILED) {
      ::munmap(data, bytes);
    }
  }
  template <typename T>
  T* at(uint32_t offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(data) + offset);
  }
  void* data = MAP_FAILED;
  size_t bytes = 0;
};

uint32_t load_acquire(const uint32_t* from) {
  return std::atomic_ref(*const_cast<uint32_t*>(from)).load(std::memory_order_acquire);
}

void store_release(uint32_t* to, uint32_t value) {
  std::atomic_ref(*to).store(value, std::memory_order_release);
}

}  // namespace

size_t UringOp::left() const {
  size_t bytes = 0;
  for (size_t i = first; i < parts.size(); ++i) {
    bytes += parts[i].iov_len;
  }
  return bytes;
}

struct Uring::Rings {
  io::FileDescriptor fd;
  io_uring_params params{};
  Mapped submissions;
  Mapped completions;
  Mapped entries;
};

std::unique_ptr<Uring> Uring::open(uint32_t depth) {
  auto rings = std::make_unique<Rings>();
  rings->fd =
      io::FileDescriptor(static_cast<int>(::syscall(SYS_io_uring_setup, depth, &rings->params)));
  if (!rings->fd.open()) {
    return nullptr;
  }
  const io_uring_params& params = rings->params;
  rings->submissions = Mapped(rings->fd.get(), params.sq_off.array + params.sq_entries * 4,
                              static_cast<off_t>(IORING_OFF_SQ_RING));
  rings->completions =
      Mapped(rings->fd.get(), params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe),
             static_cast<off_t>(IORING_OFF_CQ_RING));
  rings->entries = Mapped(rings->fd.get(), params.sq_entries * sizeof(io_uring_sqe),
                          static_cast<off_t>(IORING_OFF_SQES));
  if (rings->submissions.data == MAP_FAILED || rings->completions.data == MAP_FAILED ||
      rings->entries.data == MAP_FAILED) {
    return nullptr;
  }
  return std::unique_ptr<Uring>(new Uring(std::move(rings)));
}

Uring::Uring(std::unique_ptr<Rings> rings) : rings_(std::move(rings)) {}
Uring::~Uring() = default;

/// Puts the rest of `op` into the submission ring, where there is room.
void Uring::queue(UringOp& op, uint64_t tag) {
  const io_uring_params& params = rings_->params;
  auto* const tail = rings_->submissions.at<uint32_t>(params.sq_off.tail);
  const uint32_t mask = *rings_->submissions.at<uint32_t>(params.sq_off.ring_mask);
  const uint32_t slot = *tail & mask;
  io_uring_sqe& entry = rings_->entries.at<io_uring_sqe>(0)[slot];
  entry = {};
  entry.opcode = op.write ? IORING_OP_WRITEV : IORING_OP_READV;
  entry.fd = op.fd;
  entry.off = op.offset + static_cast<uint64_t>(op.result);
  entry.addr = reinterpret_cast<uint64_t>(op.parts.data() + op.first);
  entry.len = static_cast<uint32_t>(op.parts.size() - op.first);
  entry.user_data = tag;
  rings_->submissions.at<uint32_t>(params.sq_off.array)[slot] = slot;
  store_release(tail, *tail + 1);
}

/// Hands over so many of what was queued and, if all were taken, waits for one completion. How many
/// were taken, or -1.
int Uring::enter(uint32_t submit) {
  while (true) {
    const auto took = ::syscall(SYS_io_uring_enter, rings_->fd.get(), submit, 1,
                                IORING_ENTER_GETEVENTS, nullptr, 0);
    if (took >= 0 || errno != EINTR) {
      return static_cast<int>(took);
    }
  }
}

/// Takes what has ended; with `more`, queues the rest of what ended short. How many have ended.
uint32_t Uring::reap(std::span<UringOp> ops, bool more, uint32_t& queued) {
  const io_uring_params& params = rings_->params;
  auto* const head = rings_->completions.at<uint32_t>(params.cq_off.head);
  const auto* const tail = rings_->completions.at<uint32_t>(params.cq_off.tail);
  const uint32_t mask = *rings_->completions.at<uint32_t>(params.cq_off.ring_mask);
  uint32_t ended = 0;
  for (uint32_t at = *head; at != load_acquire(tail); store_release(head, ++at), ++ended) {
    const io_uring_cqe done = rings_->completions.at<io_uring_cqe>(params.cq_off.cqes)[at & mask];
    UringOp& op = ops[done.user_data];
    if (done.res <= 0) {
      op.result = done.res == 0 ? -EIO : done.res;
      continue;
    }
    op.result += done.res;
    auto moved = static_cast<size_t>(done.res);
    while (op.first < op.parts.size() && moved >= op.parts[op.first].iov_len) {
      moved -= op.parts[op.first++].iov_len;
    }
    if (op.first == op.parts.size()) {
      continue;
    }
    iovec& part = op.parts[op.first];
    part.iov_base = static_cast<std::byte*>(part.iov_base) + moved;
    part.iov_len -= moved;
    if (more) {
      queue(op, done.user_data);
      ++queued;
    }
  }
  return ended;
}

bool Uring::run(std::span<UringOp> ops) {
  for (UringOp& op : ops) {
    op.result = 0;
  }
  size_t next = 0;
  uint32_t queued = 0;   // in the submission ring
  uint32_t running = 0;  // with the kernel
  bool takes = true;
  while (running > 0 || (takes && (queued > 0 || next < ops.size()))) {
    for (; takes && next < ops.size() && running + queued < rings_->params.sq_entries; ++next) {
      queue(ops[next], next);
      ++queued;
    }
    const int took = enter(takes ? queued : 0);
    STATOR_ASSERT(took >= 0 || takes, "R1: what the kernel took can be waited for");
    if (took < 0) {
      takes = false;
    } else {
      queued -= static_cast<uint32_t>(took);
      running += static_cast<uint32_t>(took);
    }
    running -= reap(ops, takes, queued);
  }
  for (UringOp& op : ops) {
    op.result = op.result >= 0 && op.left() > 0 ? -EIO : op.result;
  }
  return takes;
}

}  // namespace stator::storage
