// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/random.h"
#include "stator/core/result.h"

namespace stator::runtime::detail {

/// A folder of small files that several processes share: the system calls of file discovery, no
/// policy. File names are percent-encoded keys. `write` by one thread at a time; else thread-safe.
class RecordFolder {
 public:
  /// Makes the folder if needed. kIo names it.
  static Result<RecordFolder> open(const std::filesystem::path& folder);
  RecordFolder(RecordFolder&& other) noexcept;
  RecordFolder& operator=(RecordFolder&&) = delete;
  RecordFolder(const RecordFolder&) = delete;
  ~RecordFolder();

  static std::string encode_name(std::string_view key);

  struct File {
    std::string name;
    WallTime modified;
    uint64_t inode = 0;
  };
  /// All record files (not temporary ones); kTooLarge beyond kFilesMax.
  Result<std::vector<File>> scan() const;
  /// One of them; kNotFound if it is gone.
  Result<File> find(const std::string& name) const;
  /// At most kRecordBytesMax are read; kTooLarge beyond. kNotFound if it is gone.
  Result<std::string> read(const std::string& name) const;
  /// Appears whole or not at all; replaces what was there.
  Status write(const std::string& name, std::string_view content);
  /// Moves its modification time to now. kNotFound if it is gone.
  Status touch(const std::string& name) const;
  void remove(const std::string& name) const;
  /// Removes a file unless it has been touched since `modified`.
  void remove_stale(const std::string& name, WallTime modified) const;

  /// Mutual exclusion between processes (flock on the folder), released by the destructor.
  class Lock {
   public:
    explicit Lock(int fd) : fd_(fd) {}
    Lock(Lock&& other) noexcept;
    Lock& operator=(Lock&&) = delete;
    Lock(const Lock&) = delete;
    ~Lock();

   private:
    friend class RecordFolder;
    int fd_;
  };
  /// kUnavailable while another process holds it, after `attempts` tries of 10 ms.
  Result<Lock> lock(int attempts) const;

  /// Descriptor that becomes readable when files come, go or change.
  int watch_fd() const { return watch_fd_; }
  struct Noticed {
    std::vector<std::string> names;  ///< that came, went or changed; each once
    bool overflow = false;           ///< and others, which the kernel had no room for
  };
  /// Empties the descriptor. Temporary files are not noticed. One thread.
  Noticed drain_watch() const;

  static constexpr size_t kFilesMax = 16 * 1024;
  static constexpr std::string_view kTemporaryPrefix = ".tmp_";

 private:
  RecordFolder(std::filesystem::path folder, int folder_fd, int watch_fd);
  Error io_error(std::string_view doing) const;

  std::filesystem::path folder_;
  int folder_fd_;
  int watch_fd_;
  uint64_t process_tag_;  // keeps the temporary names of processes apart
  uint64_t next_temporary_ = 0;
};

}  // namespace stator::runtime::detail
