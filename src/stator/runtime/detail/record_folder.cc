// SPDX-License-Identifier: Apache-2.0
#include "stator/runtime/detail/record_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <system_error>
#include <utility>

#include "stator/runtime/instance_record.h"

namespace stator::runtime::detail {
namespace {

constexpr int kLockRetryMs = 10;
// Not IN_ATTRIB: every touch of every owner would wake every process.
constexpr uint32_t kWatched =
    IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_CLOSE_WRITE | IN_ONLYDIR;

WallTime modified_of(const struct stat& info) {
  return WallTime(std::chrono::seconds(info.st_mtim.tv_sec) +
                  std::chrono::nanoseconds(info.st_mtim.tv_nsec));
}

Status write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno != EINTR) {
      return Error(Code::kIo, std::generic_category().message(errno));
    }
    content.remove_prefix(written < 0 ? 0 : static_cast<size_t>(written));
  }
  return {};
}

}  // namespace

RecordFolder::RecordFolder(std::filesystem::path folder, int folder_fd, int watch_fd)
    : folder_(std::move(folder)),
      folder_fd_(folder_fd),
      watch_fd_(watch_fd),
      process_tag_(Random::from_entropy().next()) {}

RecordFolder::RecordFolder(RecordFolder&& other) noexcept
    : folder_(std::move(other.folder_)),
      folder_fd_(std::exchange(other.folder_fd_, -1)),
      watch_fd_(std::exchange(other.watch_fd_, -1)),
      process_tag_(other.process_tag_),
      next_temporary_(other.next_temporary_) {}

RecordFolder::~RecordFolder() {
  for (const int fd : {folder_fd_, watch_fd_}) {
    if (fd >= 0) {
      ::close(fd);
    }
  }
}

Error RecordFolder::io_error(std::string_view doing) const {
  const int error = errno;
  return {error == ENOENT ? Code::kNotFound : Code::kIo,
          fmt::format("discovery folder {}: {}: {}", folder_.string(), doing,
                      std::generic_category().message(error))};
}

Result<RecordFolder> RecordFolder::open(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Error(Code::kIo, fmt::format("discovery folder {} cannot be made: {}", folder.string(),
                                        error.message()));
  }
  RecordFolder made(folder, ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                    ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (made.folder_fd_ < 0) {
    return made.io_error("opening").with_code(Code::kIo);
  }
  if (made.watch_fd_ < 0 || ::inotify_add_watch(made.watch_fd_, folder.c_str(), kWatched) < 0) {
    return made.io_error("watching (see fs.inotify.max_user_instances)").with_code(Code::kIo);
  }
  return made;
}

std::string RecordFolder::encode_name(std::string_view key) {
  std::string name;
  for (const char c : key) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.';
    if (plain) {
      name += c;
    } else {
      name += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return name;
}

Result<std::vector<RecordFolder::File>> RecordFolder::scan() const {
  const int fd = ::openat(folder_fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return io_error("listing");
  }
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(fd), ::closedir);
  if (stream == nullptr) {
    ::close(fd);
    return io_error("listing");
  }
  std::vector<File> files;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    struct stat info{};
    const std::string_view name = entry->d_name;
    if (name.starts_with('.') || ::fstatat(folder_fd_, entry->d_name, &info, 0) != 0 ||
        !S_ISREG(info.st_mode)) {
      errno = 0;
      continue;
    }
    if (files.size() == kFilesMax) {
      return Error(Code::kTooLarge, fmt::format("discovery folder {} has more than {} records",
                                                folder_.string(), kFilesMax));
    }
    files.push_back({std::string(name), modified_of(info), info.st_ino});
  }
  if (errno != 0) {
    return io_error("listing");
  }
  return files;
}

Result<RecordFolder::File> RecordFolder::find(const std::string& name) const {
  struct stat info{};
  if (::fstatat(folder_fd_, name.c_str(), &info, 0) != 0) {
    return io_error("looking at " + name);
  }
  if (!S_ISREG(info.st_mode)) {
    return Error(Code::kNotFound, fmt::format("{} is no file", name));
  }
  return File{name, modified_of(info), info.st_ino};
}

Result<std::string> RecordFolder::read(const std::string& name) const {
  const int fd = ::openat(folder_fd_, name.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return io_error("reading " + name);
  }
  std::string content;
  std::array<char, 16 * 1024> buffer{};
  ssize_t count = 1;
  while (count != 0 && content.size() <= kRecordBytesMax) {
    count = ::read(fd, buffer.data(), buffer.size());
    if (count < 0 && errno != EINTR) {
      Error error = io_error("reading " + name);
      ::close(fd);
      return error;
    }
    content.append(buffer.data(), count < 0 ? 0 : static_cast<size_t>(count));
  }
  ::close(fd);
  if (content.size() > kRecordBytesMax) {
    return Error(Code::kTooLarge, fmt::format("discovery record {} exceeds {} bytes",
                                              (folder_ / name).string(), kRecordBytesMax));
  }
  return content;
}

Status RecordFolder::write(const std::string& name, std::string_view content) {
  const std::string temporary =
      fmt::format("{}{:016x}", kTemporaryPrefix, process_tag_ + next_temporary_++);
  const int fd =
      ::openat(folder_fd_, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) {
    return io_error("writing " + name);
  }
  const Status written = write_all(fd, content);
  ::close(fd);
  if (!written.has_value()) {
    ::unlinkat(folder_fd_, temporary.c_str(), 0);
    return written.error().clone().with_context(
        fmt::format("discovery folder {}: writing {}", folder_.string(), name));
  }
  if (::renameat(folder_fd_, temporary.c_str(), folder_fd_, name.c_str()) != 0) {
    Error error = io_error("publishing " + name);
    ::unlinkat(folder_fd_, temporary.c_str(), 0);
    return error;
  }
  return {};
}

Status RecordFolder::touch(const std::string& name) const {
  if (::utimensat(folder_fd_, name.c_str(), nullptr, 0) != 0) {
    return io_error("touching " + name);
  }
  return {};
}

void RecordFolder::remove(const std::string& name) const {
  ::unlinkat(folder_fd_, name.c_str(), 0);
}

void RecordFolder::remove_stale(const std::string& name, WallTime modified) const {
  struct stat info{};
  if (::fstatat(folder_fd_, name.c_str(), &info, 0) == 0 && modified_of(info) == modified) {
    remove(name);
  }
}

RecordFolder::Lock::Lock(Lock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

RecordFolder::Lock::~Lock() {
  if (fd_ >= 0) {
    ::close(fd_);  // a lock of an open file description goes with it
  }
}

Result<RecordFolder::Lock> RecordFolder::lock(int attempts) const {
  // An own description: flock does not exclude two users of the same one.
  Lock lock(::openat(folder_fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (int attempt = 0; attempt < attempts; ++attempt) {
    if (attempt > 0) {
      ::poll(nullptr, 0, kLockRetryMs);
    }
    if (::flock(lock.fd_, LOCK_EX | LOCK_NB) == 0) {
      return lock;
    }
  }
  return Error(Code::kUnavailable,
               fmt::format("discovery folder {} is locked by another process", folder_.string()));
}

RecordFolder::Noticed RecordFolder::drain_watch() const {
  alignas(inotify_event) std::array<char, 16 * 1024> buffer{};
  Noticed noticed;
  while (true) {
    const ssize_t count = ::read(watch_fd_, buffer.data(), buffer.size());
    if (count <= 0) {
      break;
    }
    for (size_t at = 0; at < static_cast<size_t>(count);) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      at += sizeof(inotify_event) + event->len;
      const std::string_view name(event->len > 0 ? event->name : "");
      if ((event->mask & IN_Q_OVERFLOW) != 0) {
        noticed.overflow = true;
      } else if (!name.empty() && !name.starts_with('.')) {
        noticed.names.emplace_back(name);
      }
    }
  }
  std::ranges::sort(noticed.names);
  const auto repeated = std::ranges::unique(noticed.names);
  noticed.names.erase(repeated.begin(), repeated.end());
  return noticed;
}

}  // namespace stator::runtime::detail
