// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"

namespace stator::io {

/// A file of records that only grows, until it is written anew: what a process must know after it
/// was killed.
///
///   STATOR_TRY(Journal journal, Journal::open(path, [&](std::string_view record) { apply(record);
///   })); STATOR_CHECK(journal.append(record));   // survives kill -9 from here on
///   STATOR_CHECK(journal.sync());           // survives a power cut from here on
///
/// J1  open() gives back, in order, every record whose append() returned, or a prefix of them after
///     a power cut without sync(). A record that was cut off is dropped, and never half of it.
/// J2  One process at a time: a lock beside the file ("<path>.lock") is held while it is open.
///
/// A record is its length, 32 bits of its XXH3, its bytes. Not thread-safe.
class Journal {
 public:
  static constexpr size_t kRecordBytesMax = size_t{256} << 20;

  /// Creates what is missing, the folder too. kAlreadyExists: another process has it open;
  /// kCorrupt: it is a file of something else; kIo.
  static Result<Journal> open(const std::string& path,
                              const std::function<void(std::string_view record)>& take);

  /// After an error the file ends where it ended before.
  Status append(std::string_view record);
  Status sync();
  /// Only these records from now on; on an error the old ones stay.
  Status rewrite(std::span<const std::string> records);

  /// Length of the file.
  uint64_t bytes() const { return bytes_; }
  /// What open() found behind the last whole record, and removed.
  uint64_t dropped_bytes() const { return dropped_; }

 private:
  Journal(std::string path, FileDescriptor lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  Status load(const std::function<void(std::string_view)>& take);
  Status reopen();

  std::string path_;
  FileDescriptor lock_;
  FileDescriptor file_;
  uint64_t bytes_ = 0;
  uint64_t dropped_ = 0;
};

}  // namespace stator::io
