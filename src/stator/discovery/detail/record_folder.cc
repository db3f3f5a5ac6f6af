// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/detail/record_folder.h"

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

#include "stator/core/random.h"
#include "stator/discovery/instance_record.h"

namespace stator::discovery::detail {
namespace {

constexpr int kLockRetryMs = 10;
// Not IN_ATTRIB: every touch of every owner would wake every process.
constexpr uint32_t kWatched =
    IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM | IN_CLOSE_WRITE | IN_ONLYDIR;

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

/// Whether others may write to a folder if they cannot rename or remove what is not theirs.
enum class Parent : uint8_t { kNo, kMayBeSticky };

WallTime modified_of(const struct stat& info) {
  return WallTime(std::chrono::seconds(info.st_mtim.tv_sec) +
                  std::chrono::nanoseconds(info.st_mtim.tv_nsec));
}

/// Opens `name` below `parent` as a folder that is this user's or root's and that nobody else can
/// change; makes it first, for this user alone. `what` is what the operator calls it.
Result<RecordFolder::Descriptor> open_private(int parent, const std::string& name, Parent sticky,
                                              const std::string& what) {
  if (::mkdirat(parent, name.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return Error(Code::kIo, fmt::format("discovery folder {} cannot be made: {}", what,
                                        std::generic_category().message(errno)));
  }
  RecordFolder::Descriptor folder(
      ::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info{};
  if (!folder.open() || ::fstat(folder.get(), &info) != 0) {
    const bool link = errno == ELOOP || errno == ENOTDIR;
    return Error(Code::kIo, fmt::format("discovery folder {}: opening: {}{}", what,
                                        std::generic_category().message(errno),
                                        link ? "; name a folder itself, no link to one" : ""));
  }
  const uid_t user = ::geteuid();
  mode_t mode = info.st_mode;
  if (sticky == Parent::kMayBeSticky && (mode & S_ISVTX) != 0) {
    mode &= ~static_cast<mode_t>(S_IWGRP | S_IWOTH);
  }
  if ((info.st_uid != user && info.st_uid != 0) || (mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Error(Code::kInvalidArgument,
                 fmt::format("discovery folder {} belongs to uid {} with mode {:o}: others could "
                             "add workers of theirs. Name a folder of uid {} that only it may "
                             "write to (chmod 0700), or one that does not exist yet",
                             what, info.st_uid, info.st_mode & 07777, user));
  }
  return folder;
}

}  // namespace

RecordFolder::Descriptor::~Descriptor() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

RecordFolder::RecordFolder(std::filesystem::path folder, Descriptor folder_fd, Descriptor watch_fd)
    : folder_(std::move(folder)),
      folder_fd_(std::move(folder_fd)),
      watch_fd_(std::move(watch_fd)) {}

Error RecordFolder::io_error(std::string_view doing) const {
  const int error = errno;
  return {error == ENOENT ? Code::kNotFound : Code::kIo,
          fmt::format("discovery folder {}: {}: {}", folder_.string(), doing,
                      std::generic_category().message(error))};
}

Result<RecordFolder> RecordFolder::open(const std::filesystem::path& root,
                                        const std::string& name) {
  std::filesystem::path parent = root.lexically_normal();
  if (!parent.has_filename()) {
    parent = parent.parent_path();  // "DIR/" would follow a link
  }
  std::error_code error;
  if (parent.has_parent_path()) {
    std::filesystem::create_directories(parent.parent_path(), error);
  }
  if (error) {
    return Error(Code::kIo, fmt::format("discovery folder {} cannot be made: {}", parent.string(),
                                        error.message()));
  }
  STATOR_TRY(const Descriptor outer,
             open_private(AT_FDCWD, parent.string(), Parent::kMayBeSticky, parent.string()));
  const std::filesystem::path folder = parent / name;
  STATOR_TRY(Descriptor inner, open_private(outer.get(), name, Parent::kNo, folder.string()));
  RecordFolder made(folder, std::move(inner),
                    Descriptor(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)));
  // By descriptor, not by name: what is watched is what was checked.
  const std::string itself = fmt::format("/proc/self/fd/{}", made.folder_fd_.get());
  if (!made.watch_fd_.open() ||
      ::inotify_add_watch(made.watch_fd_.get(), itself.c_str(), kWatched) < 0) {
    return made.io_error("watching (see fs.inotify.max_user_instances)").with_code(Code::kIo);
  }
  return made;
}

bool RecordFolder::trusts(const File& file) const {
  return file.owner == ::geteuid() || file.owner == 0;
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
  const int fd = ::openat(folder_fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
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
    if (name.starts_with('.') ||
        ::fstatat(folder_fd_.get(), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode)) {
      errno = 0;
      continue;
    }
    if (files.size() == kFilesMax) {
      return Error(Code::kTooLarge, fmt::format("discovery folder {} has more than {} records",
                                                folder_.string(), kFilesMax));
    }
    files.push_back({std::string(name), modified_of(info), info.st_ino, info.st_uid});
  }
  if (errno != 0) {
    return io_error("listing");
  }
  return files;
}

Result<RecordFolder::File> RecordFolder::find(const std::string& name) const {
  struct stat info{};
  if (::fstatat(folder_fd_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    return io_error("looking at " + name);
  }
  if (!S_ISREG(info.st_mode)) {
    return Error(Code::kNotFound, fmt::format("{} is no file", name));
  }
  return File{name, modified_of(info), info.st_ino, info.st_uid};
}

Result<std::string> RecordFolder::read(const std::string& name) const {
  // Nonblocking: what became a pipe since it was found must not hold us.
  const Descriptor file(
      ::openat(folder_fd_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info{};
  if (!file.open() || ::fstat(file.get(), &info) != 0) {
    return io_error("reading " + name);
  }
  if (!S_ISREG(info.st_mode) || !trusts({name, {}, 0, info.st_uid})) {
    return Error(Code::kPermissionDenied,
                 fmt::format("{} is no record of this user", (folder_ / name).string()));
  }
  std::string content;
  std::array<char, 16 * 1024> buffer{};
  ssize_t count = 1;
  while (count != 0 && content.size() <= kRecordBytesMax) {
    count = ::read(file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno != EINTR) {
      return io_error("reading " + name);
    }
    content.append(buffer.data(), count < 0 ? 0 : static_cast<size_t>(count));
  }
  if (content.size() > kRecordBytesMax) {
    return Error(Code::kTooLarge, fmt::format("discovery record {} exceeds {} bytes",
                                              (folder_ / name).string(), kRecordBytesMax));
  }
  return content;
}

Status RecordFolder::write(const std::string& name, std::string_view content) const {
  const std::string temporary =
      fmt::format("{}{:016x}", kTemporaryPrefix, Random::from_entropy().next());
  Status written;
  {
    const Descriptor file(::openat(folder_fd_.get(), temporary.c_str(),
                                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                   S_IRUSR | S_IWUSR));
    if (!file.open()) {
      return io_error("writing " + name);
    }
    written = write_all(file.get(), content);
  }
  if (written.has_value() &&
      ::renameat(folder_fd_.get(), temporary.c_str(), folder_fd_.get(), name.c_str()) != 0) {
    written = io_error("publishing");
  }
  if (!written.has_value()) {
    ::unlinkat(folder_fd_.get(), temporary.c_str(), 0);
    return written.error().clone().with_context(
        fmt::format("discovery folder {}: writing {}", folder_.string(), name));
  }
  return {};
}

Status RecordFolder::touch(const std::string& name) const {
  if (::utimensat(folder_fd_.get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW) != 0) {
    return io_error("touching " + name);
  }
  return {};
}

void RecordFolder::remove(const std::string& name) const {
  ::unlinkat(folder_fd_.get(), name.c_str(), 0);
}

void RecordFolder::remove_stale(const std::string& name, WallTime modified) const {
  struct stat info{};
  if (::fstatat(folder_fd_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
      modified_of(info) == modified) {
    remove(name);
  }
}

Result<RecordFolder::Lock> RecordFolder::lock(int attempts) const {
  // An own description: flock does not exclude two users of the same one.
  Lock lock(Descriptor(::openat(folder_fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  for (int attempt = 0; attempt < attempts; ++attempt) {
    if (attempt > 0) {
      ::poll(nullptr, 0, kLockRetryMs);
    }
    if (::flock(lock.fd_.get(), LOCK_EX | LOCK_NB) == 0) {
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
    const ssize_t count = ::read(watch_fd_.get(), buffer.data(), buffer.size());
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

}  // namespace stator::discovery::detail
