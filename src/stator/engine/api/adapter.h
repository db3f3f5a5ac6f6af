// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "stator/core/result.h"

namespace stator::engine {

/// A LoRA adapter as the scheduler hands it on: what is in it, only its engine knows.
class Adapter {
 public:
  Adapter() = default;
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;
  virtual ~Adapter() = default;
  /// Told apart from every other adapter this engine ever loaded, of the same name, too: KV blocks
  /// are kept apart by it.
  virtual std::string_view identity() const = 0;
};

/// The adapters an engine has loaded. Thread-safe.
class AdapterSource {
 public:
  virtual ~AdapterSource() = default;
  /// Null if there is none of that name. Whoever holds it may use it after it was unloaded.
  virtual std::shared_ptr<const Adapter> find(std::string_view name) const = 0;
};

}  // namespace stator::engine
