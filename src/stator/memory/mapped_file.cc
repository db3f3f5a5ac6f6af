// SPDX-License-Identifier: Apache-2.0
#include "stator/memory/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace stator::memory {
namespace {

Error system_error(std::string_view what, const std::string& path, int error) {
  const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kIo;
  return Error(code,
               fmt::format("cannot {} {}: {}", what, path, std::generic_category().message(error)));
}

/// Closes on every way out: a mapping does not need its descriptor.
class Descriptor {
 public:
  explicit Descriptor(int value) noexcept : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) {
      close(value_);
    }
  }
  int value() const { return value_; }

 private:
  int value_;
};

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO by mistake must fail below, not hang here.
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (descriptor.value() < 0) {
    return system_error("open", path, errno);
  }
  struct stat status{};
  if (fstat(descriptor.value(), &status) != 0) {
    return system_error("inspect", path, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    return Error(Code::kInvalidArgument, fmt::format("{} is not a regular file", path));
  }
  MappedFile file;
  file.path_ = path;
  if (status.st_size == 0) {
    return file;  // mmap refuses zero bytes
  }
  const auto bytes = static_cast<size_t>(status.st_size);
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor.value(), 0);
  if (data == MAP_FAILED) {
    return system_error("map", path, errno);
  }
  file.data_ = static_cast<std::byte*>(data);
  file.bytes_ = bytes;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    path_ = std::move(other.path_);
  }
  return *this;
}

MappedFile::~MappedFile() {
  release();
}

void MappedFile::release() noexcept {
  if (data_ != nullptr) {
    munmap(data_, bytes_);
  }
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace stator::memory
