// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/engine/core/adapter_folder.h"

namespace stator::engine::adapters {

/// Which adapters a server is given when they are first asked for, and which one goes when it has
/// enough of these. Decides only. names() and find() from any thread, the rest from the adapter's.
class FirstUse {
 public:
  /// `folder`: of PEFT folders, under a path that the server sees, too; empty: there is none.
  FirstUse(std::string folder, uint32_t loaded_max)
      : folder_(std::move(folder)), loaded_max_(loaded_max) {}

  bool enabled() const { return !folder_.empty() && loaded_max_ > 0; }
  std::vector<std::string> names() const {
    return enabled() ? folder_.names() : std::vector<std::string>();
  }
  /// Where it is.
  std::optional<std::string> find(std::string_view name) const {
    return enabled() ? folder_.find(name) : std::nullopt;
  }

  /// A request for it comes.
  void used(std::string_view name);
  /// The one that was not asked for the longest, if there is no room for another.
  std::optional<std::string> victim() const;
  void loaded(std::string_view name);
  void unloaded(std::string_view name);

 private:
  struct Loaded {
    std::string name;
    uint64_t used = 0;  ///< when, counted in requests
  };

  const AdapterFolder folder_;
  const uint32_t loaded_max_;
  std::vector<Loaded> loaded_;  // by this process; at most loaded_max_
  uint64_t calls_ = 0;
};

}  // namespace stator::engine::adapters
