// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/engine/api/adapter.h"
#include "stator/engine/cpu/lora.h"
#include "stator/engine/cpu/model.h"

namespace stator::engine::cpu {

/// The LoRA adapters of one engine, by name: loaded and unloaded while it runs. Thread-safe. An
/// unloaded one stays in memory until the last sequence that uses it has ended.
class LoraShelf final : public AdapterSource {
 public:
  struct Limits {
    uint32_t adapters = 16;
    uint32_t rank = 64;
  };
  LoraShelf(std::shared_ptr<const Model> model, const Limits& limits);

  /// Reads a PEFT folder (load_lora) and makes it known. kAlreadyExists for a name that is taken,
  /// kOverloaded beyond `limits.adapters`.
  Status load(std::string_view name, const std::string& folder);
  /// kNotFound for an unknown name.
  Status unload(std::string_view name);
  /// Sorted.
  std::vector<std::string> names() const;
  std::shared_ptr<const Adapter> find(std::string_view name) const override;

 private:
  struct Entry {
    std::string name;
    std::shared_ptr<const LoraAdapter> adapter;
  };
  Status check_room(std::string_view name) const STATOR_REQUIRES(mutex_);

  const std::shared_ptr<const Model> model_;
  const Limits limits_;
  mutable Mutex mutex_;
  std::vector<Entry> entries_ STATOR_GUARDED_BY(mutex_);  // by name
};

}  // namespace stator::engine::cpu
