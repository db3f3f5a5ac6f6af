// SPDX-License-Identifier: Apache-2.0
#include "stator/io/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "stator/core/hash.h"
#include "stator/io/io_error.h"
#include "stator/io/mapped_file.h"
#include "stator/io/records.h"
#include "stator/io/replace_file.h"

namespace stator::io {
namespace {

constexpr std::string_view kMagic = "STATORJ1";
constexpr mode_t kMode = 0600;

struct Head {
  uint32_t length;
  uint32_t check;
};
static_assert(sizeof(Head) == 8);

Head head_of(std::string_view record) {
  return {static_cast<uint32_t>(record.size()),
          static_cast<uint32_t>(xxh3_64(record, record.size()))};
}

std::string_view bytes_of(const Head& head) {
  return {reinterpret_cast<const char*>(&head), sizeof(head)};
}

Result<FileDescriptor> open_file(const std::string& path, int flags) {
  FileDescriptor file(::open(path.c_str(), flags | O_CLOEXEC | O_CREAT | O_NOFOLLOW, kMode));
  if (!file.open()) {
    return io_error("open", path, errno);
  }
  return file;
}

/// All of it, or an error.
Status write_all(const FileDescriptor& file, const std::string& path, Head head,
                 std::string_view record) {
  std::array<iovec, 2> parts{iovec{&head, sizeof(head)},
                             iovec{const_cast<char*>(record.data()), record.size()}};
  size_t at = 0;
  while (at < parts.size()) {
    const ssize_t count = ::writev(file.get(), &parts[at], static_cast<int>(parts.size() - at));
    if (count < 0 && errno != EINTR) {
      return io_error("write", path, errno);
    }
    for (auto left = static_cast<size_t>(std::max<ssize_t>(count, 0)); at < parts.size();) {
      const size_t taken = std::min(left, parts[at].iov_len);
      parts[at].iov_base = static_cast<char*>(parts[at].iov_base) + taken;
      parts[at].iov_len -= taken;
      left -= taken;
      if (parts[at].iov_len > 0) {
        break;
      }
      ++at;
    }
  }
  return {};
}

}  // namespace

Result<Journal> Journal::open(const std::string& path,
                              const std::function<void(std::string_view)>& take) {
  std::error_code failed;
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty()) {
    std::filesystem::create_directories(folder, failed);
    if (failed) {
      return io_error("create", folder.string(), failed.value());
    }
  }
  STATOR_TRY(FileDescriptor lock, open_file(path + ".lock", O_RDWR));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error(Code::kAlreadyExists,
                 fmt::format("another process uses {}: give each its own folder", path));
  }
  Journal journal(path, std::move(lock));
  STATOR_CHECK(journal.load(take));
  return journal;
}

Status Journal::reopen() {
  STATOR_TRY(file_, open_file(path_, O_WRONLY | O_APPEND));
  return {};
}

Status Journal::load(const std::function<void(std::string_view)>& take) {
  STATOR_CHECK(reopen());
  STATOR_TRY(const MappedFile mapped, MappedFile::open(path_));
  const std::string_view all(reinterpret_cast<const char*>(mapped.bytes().data()),
                             mapped.bytes().size());
  if (all.size() < kMagic.size()) {
    if (!kMagic.starts_with(all)) {
      return Error(Code::kCorrupt,
                   fmt::format("{} is no journal of Stator's: move it away", path_));
    }
    dropped_ = all.size();
    return rewrite({});
  }
  if (!all.starts_with(kMagic)) {
    return Error(Code::kCorrupt, fmt::format("{} is no journal of Stator's: move it away", path_));
  }
  const size_t at =
      kMagic.size() + read_records(all.substr(kMagic.size()), [&](std::string_view rest) -> size_t {
        Head head{};
        if (rest.size() < sizeof(head)) {
          return 0;
        }
        std::memcpy(&head, rest.data(), sizeof(head));
        const std::string_view record = rest.substr(sizeof(head), head.length);
        if (record.size() != head.length || head_of(record).check != head.check) {
          return 0;
        }
        take(record);
        return sizeof(head) + record.size();
      });
  bytes_ = at;
  dropped_ = all.size() - at;
  if (dropped_ > 0 && ::ftruncate(file_.get(), static_cast<off_t>(at)) != 0) {
    return io_error("cut", path_, errno);
  }
  return {};
}

Status Journal::append(std::string_view record) {
  if (record.size() > kRecordBytesMax) {
    return Error(Code::kTooLarge,
                 fmt::format("a record of {} bytes is too long for a journal", record.size()));
  }
  if (Status written = write_all(file_, path_, head_of(record), record); !written) {
    // Half a record must not be followed by whole ones.
    if (::ftruncate(file_.get(), static_cast<off_t>(bytes_)) != 0) {
      file_.reset();
    }
    return written;
  }
  bytes_ += sizeof(Head) + record.size();
  return {};
}

Status Journal::sync() {
  if (::fdatasync(file_.get()) != 0) {
    return io_error("sync", path_, errno);
  }
  return {};
}

Status Journal::rewrite(std::span<const std::string> records) {
  STATOR_TRY(FileReplacement file, FileReplacement::create(path_, kMode));
  STATOR_CHECK(file.write(kMagic));
  uint64_t bytes = kMagic.size();
  for (const std::string& record : records) {
    const Head head = head_of(record);
    STATOR_CHECK(file.write(bytes_of(head)));
    STATOR_CHECK(file.write(record));
    bytes += sizeof(head) + record.size();
  }
  STATOR_CHECK(file.commit());
  bytes_ = bytes;
  return reopen();
}

}  // namespace stator::io
