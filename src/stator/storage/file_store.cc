// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/file_store.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "stator/io/read_file.h"
#include "stator/io/replace_file.h"
#include "stator/storage/object_key.h"

namespace stator::storage {
namespace {

constexpr mode_t kFileMode = 0640;

}  // namespace

std::string object_key(std::string_view prefix, const Digest& space, const kv::LineageHash& name) {
  return fmt::format("{}{}{}/{:02x}/{}.t1r0", prefix, prefix.empty() ? "" : "/", to_hex(space),
                     name.current().value() >> 56, name.text());
}

FileStore::FileStore(std::string folder, const Digest& space)
    : folder_(std::move(folder)), space_(space) {}

std::string FileStore::path(const BlockName& name) const {
  return object_key(folder_, space_, name.lineage);
}

Status FileStore::check() {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  const std::string probe = folder_ + "/.stator-probe";
  STATOR_CHECK(io::replace_file(probe, "probe", kFileMode));
  std::filesystem::remove(probe, error);
  return {};
}

Result<size_t> FileStore::count(std::span<const BlockName> names) {
  size_t found = 0;
  struct stat stat{};
  while (found < names.size() && ::stat(path(names[found]).c_str(), &stat) == 0) {
    ++found;
  }
  return found;
}

Status FileStore::get(const BlockName& name, std::span<std::byte> record) {
  STATOR_TRY(const std::string bytes, io::read_file(path(name), record.size()));
  if (bytes.size() != record.size()) {
    return Error(Code::kCorrupt, fmt::format("{} has {} bytes instead of {}", path(name),
                                             bytes.size(), record.size()));
  }
  std::memcpy(record.data(), bytes.data(), bytes.size());
  return {};
}

Status FileStore::put(const BlockName& name, std::span<const std::byte> record) {
  const std::string file = path(name);
  struct stat stat{};
  if (::stat(file.c_str(), &stat) == 0 && static_cast<size_t>(stat.st_size) == record.size()) {
    return Error(Code::kAlreadyExists, "the block is there");
  }
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), error);
  return io::replace_file(file, {reinterpret_cast<const char*>(record.data()), record.size()},
                          kFileMode);
}

}  // namespace stator::storage
