// SPDX-License-Identifier: Apache-2.0
#include "stator/weights/cached_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "stator/weights/hub_cache.h"

namespace stator::weights {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "models--";

/// "models--ORG--NAME" as ORG/NAME; empty for what no hub name gives.
std::string name_of(std::string_view folder) {
  if (!folder.starts_with(kPrefix)) {
    return {};
  }
  std::string name(folder.substr(kPrefix.size()));
  if (const size_t dashes = name.find("--"); dashes != std::string::npos) {
    name.replace(dashes, 2, "/");
  }
  return is_hub_name(name) ? name : std::string();
}

CachedModel measure(const fs::path& folder, std::string name, const HubConfig& config) {
  CachedModel out{.name = std::move(name), .path = folder.string()};
  std::error_code ignored;
  for (fs::recursive_directory_iterator at(folder, ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    std::error_code gone;  // while it is being downloaded
    if (at->is_symlink(gone) || !at->is_regular_file(gone)) {
      continue;
    }
    const uint64_t bytes = at->file_size(gone);
    if (gone) {
      continue;
    }
    out.bytes += bytes;
    ++out.files;
    out.partial_bytes += at->path().extension() == ".incomplete" ? bytes : 0;
  }
  const HubCache cache(config.cache_dir, out.name);
  out.can_be_served = cache.find_snapshot(config.revision).has_value() ||
                      cache.find_gguf(config.revision, "").has_value();
  return out;
}

}  // namespace

Result<std::vector<CachedModel>> list_cached_models(const HubConfig& config) {
  std::vector<CachedModel> out;
  std::error_code error;
  if (!fs::exists(config.cache_dir, error)) {
    return out;
  }
  fs::directory_iterator at(config.cache_dir, error);
  if (error) {
    return Error(Code::kIo, fmt::format("cannot read hub.cache_dir {}: {}", config.cache_dir,
                                        error.message()));
  }
  for (const fs::directory_iterator end; !error && at != end; at.increment(error)) {
    if (std::string name = name_of(at->path().filename().string()); !name.empty()) {
      out.push_back(measure(at->path(), std::move(name), config));
    }
  }
  std::ranges::sort(out, {}, &CachedModel::name);
  return out;
}

Result<uint64_t> remove_cached_model(const std::string& name, const HubConfig& config) {
  if (!is_hub_name(name)) {
    return Error(Code::kInvalidArgument, fmt::format("'{}' is no hub name like ORG/NAME", name));
  }
  STATOR_TRY(const std::vector<CachedModel> models, list_cached_models(config));
  const auto found = std::ranges::find(models, name, &CachedModel::name);
  if (found == models.end()) {
    return Error(Code::kNotFound, fmt::format("'{}' is not in the cache {}; `stator models ls` "
                                              "shows what is",
                                              name, config.cache_dir));
  }
  std::error_code error;
  fs::remove_all(found->path, error);
  if (error) {
    return Error(Code::kIo, fmt::format("cannot remove {}: {}", found->path, error.message()));
  }
  return found->bytes;
}

}  // namespace stator::weights
