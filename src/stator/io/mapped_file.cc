// SPDX-License-Identifier: Apache-2.0
#include "stator/io/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "stator/io/file_descriptor.h"
#include "stator/io/io_error.h"

namespace stator::io {
namespace {

#ifndef MADV_POPULATE_READ
constexpr int kPopulateRead = 22;  // since Linux 5.14
#else
constexpr int kPopulateRead = MADV_POPULATE_READ;
#endif

/// Of whole pages: those that `part` touches, or only those within it.
enum class Pages : uint8_t { kTouched, kWithin };

void advise(std::span<const std::byte> part, Pages pages, int advice) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t last = first + part.size();
  const uintptr_t begin = (pages == Pages::kTouched ? first : first + page - 1) / page * page;
  const uintptr_t end = pages == Pages::kTouched ? last : last / page * page;
  if (begin < end) {
    (void)madvise(reinterpret_cast<void*>(begin), end - begin, advice);
  }
}

}  // namespace

void MappedFile::prepare(std::span<const std::byte> part) {
  advise(part, Pages::kTouched, kPopulateRead);
}

void MappedFile::forget(std::span<const std::byte> part) {
  advise(part, Pages::kWithin, MADV_DONTNEED);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  // O_NONBLOCK: opening a FIFO by mistake must fail below, not hang here.
  const FileDescriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor.open()) {
    return io_error("open", path, errno);
  }
  struct stat status{};
  if (fstat(descriptor.get(), &status) != 0) {
    return io_error("inspect", path, errno);
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
  void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
  if (data == MAP_FAILED) {
    return io_error("map", path, errno);
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

}  // namespace stator::io
