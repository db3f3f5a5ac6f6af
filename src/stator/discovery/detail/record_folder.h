// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"

namespace stator::discovery::detail {

/// A folder of small files that several processes of one user share: the system calls of file
/// discovery, no policy. File names are percent-encoded keys. Thread-safe.
///
/// A record makes a frontend send prompts to an address and open a model's files, so only this user
/// and root may write one: the folder is not used unless it is theirs alone, files of others are
/// not read, and no link is followed.
class RecordFolder {
 public:
  /// Closes itself.
  class Descriptor {
   public:
    explicit Descriptor(int fd) noexcept : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&&) = delete;
    Descriptor(const Descriptor&) = delete;
    ~Descriptor();
    int get() const { return fd_; }
    bool open() const { return fd_ >= 0; }

   private:
    int fd_;
  };

  /// `root`/`name`; both are made for this user alone (0700) where they are missing. kIo names what
  /// cannot be made or opened; kInvalidArgument the folder in which others could put records.
  /// `root` may be a sticky folder that all may write to, as /tmp.
  static Result<RecordFolder> open(const std::filesystem::path& root, const std::string& name);

  static std::string encode_name(std::string_view key);

  struct File {
    std::string name;
    WallTime modified;
    uint64_t inode = 0;
    uid_t owner = 0;
  };
  /// Whether this user or root wrote it. `read` refuses others (kPermissionDenied).
  bool trusts(const File& file) const;
  /// All record files (not temporary ones); kTooLarge beyond kFilesMax.
  Result<std::vector<File>> scan() const;
  /// One of them; kNotFound if it is gone.
  Result<File> find(const std::string& name) const;
  /// At most kRecordBytesMax are read; kTooLarge beyond. kNotFound if it is gone.
  Result<std::string> read(const std::string& name) const;
  /// Appears whole or not at all; replaces what was there.
  Status write(const std::string& name, std::string_view content) const;
  /// Moves its modification time to now. kNotFound if it is gone.
  Status touch(const std::string& name) const;
  void remove(const std::string& name) const;
  /// Removes a file unless it has been touched since `modified`.
  void remove_stale(const std::string& name, WallTime modified) const;

  /// Mutual exclusion between processes (flock on the folder), released by the destructor.
  class Lock {
   public:
    explicit Lock(Descriptor folder) : fd_(std::move(folder)) {}

   private:
    friend class RecordFolder;
    Descriptor fd_;  // a lock of an open file description goes with it
  };
  /// kUnavailable while another process holds it, after `attempts` tries of 10 ms.
  Result<Lock> lock(int attempts) const;

  /// Descriptor that becomes readable when files come, go or change.
  int watch_fd() const { return watch_fd_.get(); }
  struct Noticed {
    std::vector<std::string> names;  ///< that came, went or changed; each once
    bool overflow = false;           ///< and others, which the kernel had no room for
  };
  /// Empties the descriptor. Temporary files are not noticed. One thread.
  Noticed drain_watch() const;

  static constexpr size_t kFilesMax = 16 * 1024;
  static constexpr std::string_view kTemporaryPrefix = ".tmp_";

 private:
  RecordFolder(std::filesystem::path folder, Descriptor folder_fd, Descriptor watch_fd);
  Error io_error(std::string_view doing) const;

  std::filesystem::path folder_;
  Descriptor folder_fd_;
  Descriptor watch_fd_;
};

}  // namespace stator::discovery::detail
