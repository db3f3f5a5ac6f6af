// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"

namespace stator::io {

/// kNo: after a power cut the old content may be there, or none.
enum class Sync : uint8_t { kNo, kYes };

/// A new content of a file that readers see whole or not at all: written beside it under a name of
/// its own, synced, then renamed over it.
///
///   STATOR_TRY(FileReplacement file, FileReplacement::create("/var/lib/stator/index", 0600));
///   STATOR_CHECK(file.write(header));
///   STATOR_CHECK(file.write(body));
///   STATOR_CHECK(file.commit());
///
/// I1  The name beside it is random and is created, never opened: a link that another user planted
///     is not followed.
/// I2  Without commit() the destructor removes what was written; the old content stays.
class FileReplacement {
 public:
  static Result<FileReplacement> create(const std::string& path, mode_t mode);

  FileReplacement(FileReplacement&& other) noexcept;
  FileReplacement& operator=(FileReplacement&& other) = delete;
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;
  ~FileReplacement();

  Status write(std::string_view bytes);
  /// Syncs, if that is wished, and renames. After it, or after an error, there is nothing left to
  /// write to.
  Status commit(Sync sync = Sync::kYes);

 private:
  FileReplacement(std::string path, std::string partial, FileDescriptor file);

  std::string path_;
  std::string partial_;  // empty once renamed or moved from
  FileDescriptor file_;
};

/// All of it in one call.
Status replace_file(const std::string& path, std::string_view bytes, mode_t mode = 0600,
                    Sync sync = Sync::kYes);

}  // namespace stator::io
