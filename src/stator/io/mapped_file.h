// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "stator/core/result.h"

namespace stator::io {

/// A whole file, mapped read-only. Pages come from the page cache on first touch.
///
///   STATOR_TRY(MappedFile file, MappedFile::open("model.safetensors"));
///   parse(file.bytes());
///
/// I1  bytes() stays at its address until the file is destroyed; moving it keeps the address.
/// A file that somebody truncates while it is mapped raises SIGBUS on access: map a file to load
/// it, copy what must outlive the load, and unmap.
class MappedFile {
 public:
  /// kNotFound if there is no such file, kInvalidArgument if it is not a regular file, else kIo.
  static Result<MappedFile> open(const std::string& path);

  MappedFile() noexcept = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  /// Empty for an empty file.
  std::span<const std::byte> bytes() const { return {data_, bytes_}; }
  const std::string& path() const { return path_; }

  /// Maps a part of some mapped file in one go, for who will read it from end to end: a page fault
  /// for every few pages costs as much as the reading. Advice only.
  static void prepare(std::span<const std::byte> part);
  /// Gives the memory of whole pages inside a part back (they come again when they are read).
  static void forget(std::span<const std::byte> part);

 private:
  void release() noexcept;

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  std::string path_;
};

}  // namespace stator::io
