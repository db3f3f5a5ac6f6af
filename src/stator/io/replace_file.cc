// SPDX-License-Identifier: Apache-2.0
#include "stator/io/replace_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "stator/core/random.h"
#include "stator/io/io_error.h"

namespace stator::io {

Result<FileReplacement> FileReplacement::create(const std::string& path, mode_t mode) {
  std::string partial = fmt::format("{}.{:016x}.partial", path, Random::from_entropy().next());
  FileDescriptor file(
      ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file.open()) {
    return io_error("create", partial, errno);
  }
  return FileReplacement(path, std::move(partial), std::move(file));
}

FileReplacement::FileReplacement(std::string path, std::string partial, FileDescriptor file)
    : path_(std::move(path)), partial_(std::move(partial)), file_(std::move(file)) {}

FileReplacement::FileReplacement(FileReplacement&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::exchange(other.partial_, {})),
      file_(std::move(other.file_)) {}

FileReplacement::~FileReplacement() {
  if (!partial_.empty()) {
    (void)::unlink(partial_.c_str());
  }
}

Status FileReplacement::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno != EINTR) {
      return io_error("write", partial_, errno);
    }
    bytes.remove_prefix(static_cast<size_t>(std::max<ssize_t>(count, 0)));
  }
  return {};
}

Status FileReplacement::commit(Sync sync) {
  if (sync == Sync::kYes && ::fsync(file_.get()) != 0) {
    return io_error("sync", partial_, errno);
  }
  file_.reset();
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) {
    return io_error("put in place", path_, errno);
  }
  partial_.clear();
  return {};
}

Status replace_file(const std::string& path, std::string_view bytes, mode_t mode, Sync sync) {
  STATOR_TRY(FileReplacement file, FileReplacement::create(path, mode));
  STATOR_CHECK(file.write(bytes));
  return file.commit(sync);
}

}  // namespace stator::io
