// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "stator/core/mutex.h"
#include "stator/io/file_descriptor.h"
#include "stator/transfer/backend.h"

namespace stator::transfer {
namespace {

constexpr size_t kAtOnce = size_t{4} << 20;
constexpr mode_t kFileMode = 0640;

/// Files of this host, by path: "rw:/path" (made if missing) or "ro:/path".
class PosixBackend final : public Backend {
 public:
  std::string_view type() const override { return "posix"; }
  bool supports(MemType local, MemType remote) const override {
    return local == MemType::kDram && remote == MemType::kFile;
  }

  Outcome open(std::string_view meta, uint64_t& dev) override {
    const bool writes = meta.starts_with("rw:");
    if (!writes && !meta.starts_with("ro:")) {
      return Outcome::kInvalidParam;
    }
    const std::string path(meta.substr(3));
    io::FileDescriptor fd(
        ::open(path.c_str(), (writes ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC, kFileMode));
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
    for (size_t i = 0; i < job.pairs.size(); ++i) {
      const auto file = find(job.pairs[i].remote.dev);
      if (file == nullptr) {
        return {.outcome = Outcome::kNotFound, .failed_pair = i, .cause = "the file is closed"};
      }
      if (std::string cause = move(job, job.pairs[i], file->get()); !cause.empty()) {
        return {.outcome = *job.canceled ? Outcome::kCanceled : Outcome::kBackend,
                .failed_pair = i,
                .cause = std::move(cause)};
      }
    }
    return {};
  }

 private:
  std::shared_ptr<io::FileDescriptor> find(uint64_t dev) {
    const MutexLock lock(mutex_);
    const auto found = files_.find(dev);
    return found == files_.end() ? nullptr : found->second;
  }

  static std::string move(const Job& job, const Pair& pair, int fd) {
    for (uint64_t done = 0; done < pair.local.len;) {
      if (*job.canceled) {
        return "canceled";
      }
      auto* const at = reinterpret_cast<std::byte*>(pair.local.addr + done);
      const size_t count = std::min<uint64_t>(kAtOnce, pair.local.len - done);
      const auto offset = static_cast<off_t>(pair.remote.addr + done);
      const ssize_t moved =
          job.op == Op::kWrite ? ::pwrite(fd, at, count, offset) : ::pread(fd, at, count, offset);
      if (moved < 0 && errno == EINTR) {
        continue;
      }
      if (moved <= 0) {
        return moved < 0 ? std::strerror(errno) : "the file ends before";
      }
      done += static_cast<uint64_t>(moved);
    }
    return {};
  }

  Mutex mutex_;
  std::map<uint64_t, std::shared_ptr<io::FileDescriptor>> files_  // shared with transfers
      STATOR_GUARDED_BY(mutex_);
  uint64_t last_ STATOR_GUARDED_BY(mutex_) = 0;
};

}  // namespace

std::unique_ptr<Backend> make_posix_backend(const Params& /*params*/, std::string& /*cause*/) {
  return std::make_unique<PosixBackend>();
}

}  // namespace stator::transfer
