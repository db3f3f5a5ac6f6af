// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace stator::engine {

/// What an AdapterSource is, too, if some of its adapters are read when they are first asked for.
/// Thread-safe.
class LazyAdapters {
 public:
  virtual ~LazyAdapters() = default;
  /// Whether find(name) would read files, and block for as long.
  virtual bool needs_loading(std::string_view name) const = 0;
};

}  // namespace stator::engine
