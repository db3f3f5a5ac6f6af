// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/io/file_descriptor.h"
#include "stator/storage/uring.h"
#include "stator/transfer/backend.h"

namespace stator::transfer {
namespace {

constexpr size_t kAtOnce = size_t{4} << 20;
constexpr mode_t kFileMode = 0640;
constexpr uint32_t kDepth = 64;             ///< operations with the kernel at once
constexpr size_t kBatchMax = size_t{1024};  ///< between two looks at `canceled`

/// "rw:/path" (made if missing), "ro:/path", with ",direct" for O_DIRECT and ",create" behind the
/// mode. Nothing: malformed.
struct FileName {
  int flags = 0;
  std::string path;
  static std::optional<FileName> parse(std::string_view meta) {
    const size_t colon = meta.find(':');
    if (colon == std::string_view::npos || colon + 1 == meta.size()) {
      return std::nullopt;
    }
    FileName out{.flags = O_CLOEXEC, .path = std::string(meta.substr(colon + 1))};
    std::string_view words = meta.substr(0, colon);
    const std::string_view mode = words.substr(0, words.find(','));
    if (mode != "rw" && mode != "ro") {
      return std::nullopt;
    }
    out.flags |= mode == "rw" ? O_RDWR | O_CREAT : O_RDONLY;
    for (words.remove_prefix(mode.size()); !words.empty();) {
      words.remove_prefix(1);
      const std::string_view word = words.substr(0, words.find(','));
      words.remove_prefix(word.size());
      if (word != "direct" && word != "create") {
        return std::nullopt;
      }
      out.flags |= word == "direct" ? O_DIRECT : O_CREAT;
    }
    return out;
  }
};

/// Files of this host, by path. Transfers of several pieces go through an io_uring, where the
/// kernel has one, so that the disk sees them all at once.
class PosixBackend final : public Backend {
 public:
  explicit PosixBackend(bool uring) : uring_(uring) {}
  std::string_view type() const override { return "posix"; }
  bool supports(MemType local, MemType remote) const override {
    return local == MemType::kDram && remote == MemType::kFile;
  }

  Outcome open(MemType /*type*/, std::string_view meta, uint64_t& dev) override {
    const auto name = FileName::parse(meta);
    if (!name) {
      return Outcome::kInvalidParam;
    }
    io::FileDescriptor fd(::open(name->path.c_str(), name->flags, kFileMode));
    if (!fd.open()) {
      return errno == ENOENT ? Outcome::kNotFound : Outcome::kNotAllowed;
    }
    const MutexLock lock(mutex_);
    dev = ++last_;
    files_.emplace(dev, std::make_shared<io::FileDescriptor>(std::move(fd)));
    return Outcome::kSuccess;
  }
  void close(uint64_t dev) override {
    const MutexLock lock(mutex_);
    files_.erase(dev);
  }
  bool query(uint64_t dev, uint64_t& bytes) override {
    const auto file = find(dev);
    struct stat stat{};
    if (file == nullptr || ::fstat(file->get(), &stat) != 0) {
      return false;
    }
    bytes = static_cast<uint64_t>(stat.st_size);
    return true;
  }

  Ended run(const Job& job) override {
    std::vector<std::shared_ptr<io::FileDescriptor>> files;  // shared with close()
    std::vector<Piece> pieces;
    uint64_t last_dev = 0;
    for (size_t i = 0; i < job.pairs.size(); ++i) {
      const Pair pair = job.pairs[i];
      if (i == 0 || pair.remote.dev != last_dev) {
        files.push_back(find(pair.remote.dev));
        last_dev = pair.remote.dev;
      }
      if (files.back() == nullptr) {
        return {.outcome = Outcome::kNotFound, .failed_pair = i, .cause = "the file is closed"};
      }
      for (uint64_t at = 0; at < pair.local.len; at += kAtOnce) {
        pieces.push_back({.pair = i,
                          .fd = files.back()->get(),
                          .memory = pair.local.addr + at,
                          .offset = pair.remote.addr + at,
                          .len = std::min<uint64_t>(kAtOnce, pair.local.len - at)});
      }
    }
    auto ring = pieces.size() > 1 ? take_ring() : nullptr;
    Ended ended;
    for (size_t begin = 0; begin < pieces.size(); begin += kBatchMax) {
      const auto some =
          std::span(pieces).subspan(begin, std::min(kBatchMax, pieces.size() - begin));
      if (*job.canceled) {
        return {.outcome = Outcome::kCanceled, .failed_pair = some[0].pair, .cause = "canceled"};
      }
      ended = ring != nullptr ? move_all(job, some, *ring) : move_each(job, some);
      if (ended.outcome != Outcome::kSuccess) {
        return ended;
      }
    }
    give_ring(std::move(ring));
    return ended;
  }

 private:
  struct Piece {
    size_t pair = 0;
    int fd = -1;
    uint64_t memory = 0;
    uint64_t offset = 0;
    uint64_t len = 0;
  };

  std::shared_ptr<io::FileDescriptor> find(uint64_t dev) {
    const MutexLock lock(mutex_);
    const auto found = files_.find(dev);
    return found == files_.end() ? nullptr : found->second;
  }

  /// One that no other thread uses; null where the kernel has none.
  std::unique_ptr<storage::Uring> take_ring() {
    if (!uring_) {
      return nullptr;
    }
    {
      const MutexLock lock(mutex_);
      if (!rings_.empty()) {
        auto ring = std::move(rings_.back());
        rings_.pop_back();
        return ring;
      }
    }
    return storage::Uring::open(kDepth);
  }
  void give_ring(std::unique_ptr<storage::Uring> ring) {
    const MutexLock lock(mutex_);
    if (ring != nullptr) {
      rings_.push_back(std::move(ring));
    }
  }

  static Ended failed(size_t pair, int error) {
    return {
        .outcome = Outcome::kBackend,
        .failed_pair = pair,
        .cause = error == EIO ? "the file ends before, or cannot be read" : std::strerror(error)};
  }

  static Ended move_all(const Job& job, std::span<const Piece> pieces, storage::Uring& ring) {
    std::vector<storage::UringOp> ops;
    ops.reserve(pieces.size());
    for (const Piece& piece : pieces) {
      storage::UringOp& op = ops.emplace_back();
      op.fd = piece.fd;
      op.write = job.op == Op::kWrite;
      op.offset = piece.offset;
      op.parts[0] = {reinterpret_cast<void*>(piece.memory), piece.len};
    }
    const bool good = ring.run(ops);
    for (size_t i = 0; i < ops.size(); ++i) {
      if (ops[i].result < 0) {
        return failed(pieces[i].pair, -ops[i].result);
      }
    }
    return good ? Ended() : failed(pieces[0].pair, ENOSYS);
  }

  static Ended move_each(const Job& job, std::span<const Piece> pieces) {
    for (const Piece& piece : pieces) {
      for (uint64_t done = 0; done < piece.len;) {
        if (*job.canceled) {
          return {.outcome = Outcome::kCanceled, .failed_pair = piece.pair, .cause = "canceled"};
        }
        auto* const at = reinterpret_cast<std::byte*>(piece.memory + done);
        const auto offset = static_cast<off_t>(piece.offset + done);
        const size_t left = piece.len - done;
        const ssize_t moved = job.op == Op::kWrite ? ::pwrite(piece.fd, at, left, offset)
                                                   : ::pread(piece.fd, at, left, offset);
        if (moved < 0 && errno == EINTR) {
          continue;
        }
        if (moved <= 0) {
          return failed(piece.pair, moved < 0 ? errno : EIO);
        }
        done += static_cast<uint64_t>(moved);
      }
    }
    return {};
  }

  const bool uring_;
  Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<io::FileDescriptor>> files_  // shared with transfers
      STATOR_GUARDED_BY(mutex_);
  uint64_t last_ STATOR_GUARDED_BY(mutex_) = 0;
  /// Idle ones: as many as threads of the agent ran at once.
  std::vector<std::unique_ptr<storage::Uring>> rings_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Backend> make_posix_backend(const Params& params, std::string& cause) {
  const auto given = params.find("use_uring");
  const std::string wanted = given == params.end() ? "auto" : given->second;
  if (wanted != "auto" && wanted != "on" && wanted != "off") {
    cause = "use_uring: auto, on or off";
    return nullptr;
  }
  return std::make_unique<PosixBackend>(wanted != "off");
}

}  // namespace stator::transfer
