// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/budgets.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "stator/io/read_file.h"

namespace stator::storage {

uint64_t memory_limit() {
  uint64_t limit =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::string group = "/";
  if (const auto text = io::read_file("/proc/self/cgroup"); text) {
    const size_t at = text->find("0::");
    group = at == std::string::npos ? "/" : text->substr(at + 3, text->find('\n', at) - at - 3);
  }
  for (std::filesystem::path folder = group;; folder = folder.parent_path()) {
    const auto text = io::read_file("/sys/fs/cgroup" + folder.string() + "/memory.max");
    uint64_t bytes = 0;
    if (text &&
        std::from_chars(text->data(), text->data() + text->size(), bytes).ec == std::errc()) {
      limit = std::min(limit, bytes);
    }
    if (folder == folder.parent_path()) {
      return limit;
    }
  }
}

std::optional<uint64_t> disk_room(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(folder, error);
  uint64_t own = 0;
  for (const auto& entry : std::filesystem::directory_iterator(there, error)) {
    own += entry.is_regular_file(error) ? entry.file_size(error) : 0;
  }
  while (!std::filesystem::exists(there, error) && there != there.parent_path()) {
    there = there.parent_path();
  }
  struct statvfs stat{};
  if (::statvfs(there.c_str(), &stat) != 0) {
    return std::nullopt;
  }
  return uint64_t{stat.f_bavail} * stat.f_frsize + own;
}

}  // namespace stator::storage
