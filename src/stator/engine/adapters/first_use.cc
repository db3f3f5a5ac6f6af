// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/first_use.h"

#include <algorithm>

namespace stator::engine::adapters {

void FirstUse::used(std::string_view name) {
  const auto found = std::ranges::find(loaded_, name, &Loaded::name);
  if (found != loaded_.end()) {
    found->used = ++calls_;
  }
}

std::optional<std::string> FirstUse::victim() const {
  if (loaded_.size() < loaded_max_) {
    return std::nullopt;
  }
  return std::ranges::min_element(loaded_, {}, &Loaded::used)->name;
}

void FirstUse::loaded(std::string_view name) {
  if (std::ranges::find(loaded_, name, &Loaded::name) == loaded_.end()) {
    loaded_.push_back({std::string(name)});
  }
  used(name);
}

void FirstUse::unloaded(std::string_view name) {
  std::erase_if(loaded_, [name](const Loaded& one) { return one.name == name; });
}

}  // namespace stator::engine::adapters
