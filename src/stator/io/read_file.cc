// SPDX-License-Identifier: Apache-2.0
#include "stator/io/read_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "stator/io/file_descriptor.h"
#include "stator/io/io_error.h"

namespace stator::io {
namespace {

constexpr uint64_t kFirstRead = 64 << 10;  // for what does not know its size: pipes, /proc

}  // namespace

Result<std::string> read_start(const std::filesystem::path& path, uint64_t bytes_max) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) {
    return io_error("open", path.string(), errno);
  }
  struct stat status{};
  const bool sized = ::fstat(file.get(), &status) == 0 && status.st_size > 0;
  // One byte more than the file has: the read that finds its end needs no second buffer.
  uint64_t room = sized ? static_cast<uint64_t>(status.st_size) + 1 : kFirstRead;
  std::string bytes;
  uint64_t filled = 0;
  while (filled < bytes_max) {
    bytes.resize(std::min(room, bytes_max));
    const ssize_t count = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return io_error("read", path.string(), errno);
    }
    if (count == 0) {
      break;
    }
    filled += static_cast<uint64_t>(count);
    if (filled == room) {
      room *= 2;
    }
  }
  bytes.resize(filled);
  return bytes;
}

Result<std::string> read_file(const std::filesystem::path& path, uint64_t bytes_max) {
  STATOR_TRY(std::string bytes, read_start(path, bytes_max + 1));
  if (bytes.size() > bytes_max) {
    return Error(Code::kTooLarge, fmt::format("{} has more than the {} bytes that are read",
                                              path.string(), bytes_max));
  }
  return bytes;
}

Result<std::optional<std::string>> read_file_if_present(const std::filesystem::path& path,
                                                        uint64_t bytes_max) {
  auto bytes = read_file(path, bytes_max);
  if (bytes) {
    return std::optional(std::move(*bytes));
  }
  if (bytes.error().code() == Code::kNotFound) {
    return std::optional<std::string>();
  }
  return std::move(bytes.error());
}

}  // namespace stator::io
