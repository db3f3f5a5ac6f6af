// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stator::engine {

/// A folder whose PEFT folders are LoRA adapters that may be loaded, each by its folder's name.
/// Looks into it each time it is asked: folders come and go. Thread-safe.
class AdapterFolder {
 public:
  static constexpr size_t kListedMax = 256;

  /// Empty: there is none.
  explicit AdapterFolder(std::string path) : path_(std::move(path)) {}

  bool empty() const { return path_.empty(); }
  /// At most kListedMax, in no order.
  std::vector<std::string> names() const;
  /// Where the adapter is; none for a name that is no folder with an adapter in it.
  std::optional<std::string> find(std::string_view name) const;

 private:
  const std::string path_;
};

}  // namespace stator::engine
