// SPDX-License-Identifier: Apache-2.0
#include "stator/responses/shared_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "stator/core/hash.h"
#include "stator/io/io_error.h"
#include "stator/io/read_file.h"
#include "stator/io/replace_file.h"
#include "stator/text/hex.h"

namespace stator::responses {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIdPrefix = "resp_";
constexpr size_t kIdDigitsMax = 64;
const std::string kCancelSuffix = ".cancel";
constexpr uint64_t kFileBytesMax = uint64_t{256} << 20;
constexpr int64_t kNanoseconds = 1'000'000'000;

bool is_id(std::string_view id) {
  if (!id.starts_with(kIdPrefix)) {
    return false;
  }
  id.remove_prefix(kIdPrefix.size());
  return !id.empty() && id.size() <= kIdDigitsMax &&
         std::ranges::all_of(id, [](char c) { return text::hex_value(c) != text::kNoHexDigit; });
}

std::string part_name(uint32_t part) {
  return fmt::format("{:02x}", part);
}

int64_t nanoseconds(const struct timespec& time) {
  return time.tv_sec * kNanoseconds + time.tv_nsec;
}

std::optional<struct stat> look_at(const std::string& path) {
  struct stat found{};
  return ::stat(path.c_str(), &found) == 0 ? std::optional(found) : std::nullopt;
}

// A touch changes the time, and the content stays; a new content is a new file.
SharedFolder::Stamp stamp_of(const struct stat& found, bool over) {
  return {.changed_ns = over ? 0 : nanoseconds(found.st_mtim),
          .bytes = static_cast<uint64_t>(found.st_size),
          .file = found.st_ino};
}

}  // namespace

Result<SharedFolder> SharedFolder::open(std::string path) {
  for (uint32_t part = 0; part < kParts; ++part) {
    const fs::path folder = fs::path(path) / part_name(part);
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) {
      return io::io_error("create", folder.string(), error.value());
    }
    if (::access(folder.c_str(), W_OK | X_OK) != 0) {
      return io::io_error("write to", folder.string(), errno);
    }
  }
  return SharedFolder(std::move(path));
}

std::string SharedFolder::path_of(std::string_view id) const {
  if (!is_id(id)) {
    return {};
  }
  const auto part = static_cast<uint32_t>(xxh3_64(id) % kParts);
  return fmt::format("{}/{}/{}.json", path_, part_name(part), id);
}

Result<SharedFolder::Stamp> SharedFolder::write(const StoredResponse& response) const {
  const std::string path = path_of(response.id);
  if (path.empty()) {
    return Error(Code::kInvalidArgument, "'" + response.id + "' is no id of a response");
  }
  STATOR_CHECK(io::replace_file(path, put_record(response), 0600, io::Sync::kNo));
  const auto found = look_at(path);
  return found ? stamp_of(*found, api::is_over(response.status)) : Stamp();
}

Result<std::optional<SharedFolder::Found>> SharedFolder::read(std::string_view id,
                                                              int64_t now_s) const {
  const std::string path = path_of(id);
  if (path.empty()) {
    return std::optional<Found>();
  }
  const auto about = look_at(path);
  STATOR_TRY(const auto text, io::read_file_if_present(path, kFileBytesMax));
  if (!text || !about) {
    return std::optional<Found>();
  }
  Record record = read_record(*text);
  if (record.op != "put" || record.response.id != id) {
    return Error(Code::kCorrupt, path + " is no stored response: remove it");
  }
  const bool over = api::is_over(record.response.status);
  if (!over && about->st_mtim.tv_sec + kSilenceMax < now_s) {
    mark_interrupted(record.response);
  }
  return std::optional(
      Found{.response = std::move(record.response), .stamp = stamp_of(*about, over)});
}

std::optional<SharedFolder::Stamp> SharedFolder::stamp(std::string_view id) const {
  const std::string path = path_of(id);
  const auto found = path.empty() ? std::nullopt : look_at(path);
  return found ? std::optional(stamp_of(*found, true)) : std::nullopt;
}

void SharedFolder::erase(std::string_view id) const {
  if (const std::string path = path_of(id); !path.empty()) {
    (void)::unlink(path.c_str());  // another process may have been faster
  }
}

void SharedFolder::touch(std::string_view id) const {
  if (const std::string path = path_of(id); !path.empty()) {
    (void)::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // gone: then it is over
  }
}

bool SharedFolder::ask_cancel(std::string_view id) const {
  const std::string path = path_of(id);
  return !path.empty() && look_at(path) &&
         io::replace_file(path + kCancelSuffix, "", 0600, io::Sync::kNo).has_value();
}

bool SharedFolder::take_cancel(std::string_view id) const {
  const std::string path = path_of(id);
  return !path.empty() && ::unlink((path + kCancelSuffix).c_str()) == 0;
}

size_t SharedFolder::sweep(uint32_t part, int64_t oldest_s, size_t files_max,
                           uint64_t bytes_max) const {
  struct File {
    int64_t changed_s;
    uint64_t bytes;
    std::string path;
  };
  std::vector<File> files;
  std::error_code error;
  for (fs::directory_iterator at(fs::path(path_) / part_name(part % kParts), error), end;
       !error && at != end; at.increment(error)) {
    if (const auto found = look_at(at->path().string())) {
      files.push_back(
          {found->st_mtim.tv_sec, static_cast<uint64_t>(found->st_size), at->path().string()});
    }
  }
  std::ranges::sort(files, std::ranges::greater(), &File::changed_s);
  uint64_t bytes = 0;
  size_t removed = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    bytes += files[i].bytes;
    if (i >= files_max || bytes > bytes_max || files[i].changed_s < oldest_s) {
      removed += ::unlink(files[i].path.c_str()) == 0 ? 1 : 0;
    }
  }
  return removed;
}

}  // namespace stator::responses
