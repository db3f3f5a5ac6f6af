// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/lora_shelf.h"

#include <fmt/format.h>

#include <algorithm>

namespace stator::engine::cpu {

LoraShelf::LoraShelf(std::shared_ptr<const Model> model, const Limits& limits)
    : model_(std::move(model)), limits_(limits) {}

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
  const MutexLock lock(mutex_);
  std::vector<std::string> out;
  for (const Entry& entry : entries_) {
    out.push_back(entry.name);
  }
  return out;
}

std::shared_ptr<const Adapter> LoraShelf::find(std::string_view name) const {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  return found == entries_.end() ? nullptr : found->adapter;
}

}  // namespace stator::engine::cpu
