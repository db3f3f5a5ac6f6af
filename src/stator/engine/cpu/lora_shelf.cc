// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/lora_shelf.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/core/log.h"

namespace stator::engine::cpu {

LoraShelf::LoraShelf(std::shared_ptr<const Model> model, const Limits& limits)
    : model_(std::move(model)), limits_(limits), folder_(limits.folder) {}

Status LoraShelf::check_room(std::string_view name) const {
  if (std::ranges::find(entries_, name, &Entry::name) != entries_.end()) {
    return Error(Code::kAlreadyExists,
                 fmt::format("adapter '{}' is loaded already; unload it first", name));
  }
  if (entries_.size() >= limits_.adapters) {
    return Error(Code::kOverloaded,
                 fmt::format("{} adapters are loaded, as many as --max-loras says; unload one",
                             entries_.size()));
  }
  return {};
}

Status LoraShelf::load(std::string_view name, const std::string& folder) {
  {
    const MutexLock lock(mutex_);
    STATOR_CHECK(check_room(name));
  }
  STATOR_TRY(std::shared_ptr<const LoraAdapter> adapter,
             load_lora(folder, model_->config, limits_.rank));
  const MutexLock lock(mutex_);
  STATOR_CHECK(check_room(name));  // another call may have come between
  entries_.push_back({std::string(name), std::move(adapter)});
  std::ranges::sort(entries_, {}, &Entry::name);
  return {};
}

Status LoraShelf::unload(std::string_view name) {
  const MutexLock lock(mutex_);
  if (std::erase_if(entries_, [name](const Entry& entry) { return entry.name == name; }) == 0) {
    return Error(Code::kNotFound, fmt::format("adapter '{}' is not loaded", name));
  }
  return {};
}

std::vector<std::string> LoraShelf::names() const {
  std::vector<std::string> out = folder_.names();
  const MutexLock lock(mutex_);
  for (const Entry& entry : entries_) {
    out.push_back(entry.name);
  }
  std::ranges::sort(out);
  const auto repeated = std::ranges::unique(out);
  out.erase(repeated.begin(), repeated.end());
  return out;
}

std::shared_ptr<const Adapter> LoraShelf::find_loaded(std::string_view name) const {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  if (found == entries_.end()) {
    return nullptr;
  }
  found->used = ++calls_;
  return found->adapter;
}

std::shared_ptr<const Adapter> LoraShelf::find(std::string_view name) const {
  auto found = find_loaded(name);
  if (found != nullptr || folder_.empty()) {
    return found;
  }
  const MutexLock lock(loading_);
  found = find_loaded(name);  // another thread may have come before
  if (found == nullptr) {
    if (const Status loaded = load_from_folder(name); loaded) {
      found = find_loaded(name);
    } else if (loaded.error().code() != Code::kNotFound) {
      log::warn("engine", "an adapter could not be loaded",
                {{"name", name}, {"why", loaded.error().message()}});
    }
  }
  return found;
}

bool LoraShelf::needs_loading(std::string_view name) const {
  if (folder_.empty()) {
    return false;
  }
  {
    const MutexLock lock(mutex_);
    if (std::ranges::find(entries_, name, &Entry::name) != entries_.end()) {
      return false;
    }
  }
  return folder_.find(name).has_value();
}

Status LoraShelf::load_from_folder(std::string_view name) const {
  const auto path = folder_.find(name);
  if (!path) {
    return Error(Code::kNotFound, fmt::format("{} has no adapter '{}'", limits_.folder, name));
  }
  STATOR_TRY(std::shared_ptr<const LoraAdapter> adapter,
             load_lora(*path, model_->config, limits_.rank));
  const MutexLock lock(mutex_);
  STATOR_CHECK(make_room());
  entries_.push_back({std::string(name), std::move(adapter), true, ++calls_});
  std::ranges::sort(entries_, {}, &Entry::name);
  log::info("engine", "adapter loaded on first use", {{"name", name}, {"path", *path}});
  return {};
}

Status LoraShelf::make_room() const {
  if (entries_.size() < limits_.adapters) {
    return {};
  }
  auto oldest = entries_.end();
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    if (entry->from_folder && (oldest == entries_.end() || entry->used < oldest->used)) {
      oldest = entry;
    }
  }
  if (oldest == entries_.end()) {
    return Error(Code::kOverloaded,
                 fmt::format("{} adapters were loaded by operators, as many as --max-loras says",
                             entries_.size()));
  }
  entries_.erase(oldest);
  return {};
}

}  // namespace stator::engine::cpu
