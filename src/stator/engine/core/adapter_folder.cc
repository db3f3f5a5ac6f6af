// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/adapter_folder.h"

#include <filesystem>

namespace stator::engine {
namespace {

bool is_adapter(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(folder / "adapter_config.json", ignored);
}

}  // namespace

std::vector<std::string> AdapterFolder::names() const {
  std::vector<std::string> out;
  if (empty()) {
    return out;
  }
  std::error_code ignored;
  std::filesystem::directory_iterator entry(path_, ignored);
  for (; entry != std::filesystem::directory_iterator() && out.size() < kListedMax;
       entry.increment(ignored)) {
    if (is_adapter(entry->path())) {
      out.push_back(entry->path().filename().string());
    }
  }
  return out;
}

std::optional<std::string> AdapterFolder::find(std::string_view name) const {
  if (empty() || name.empty() || name.contains('/') || name.contains('\0') ||
      name.starts_with('.')) {
    return std::nullopt;
  }
  const std::filesystem::path path = std::filesystem::path(path_) / name;
  return is_adapter(path) ? std::optional(path.string()) : std::nullopt;
}

}  // namespace stator::engine
