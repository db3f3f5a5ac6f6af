// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/engine/api/adapter.h"
#include "stator/engine/core/adapter_folder.h"
#include "stator/engine/core/lazy_adapters.h"
#include "stator/engine/cpu/lora.h"
#include "stator/engine/cpu/model.h"

namespace stator::engine::cpu {

/// The LoRA adapters of one engine, by name: loaded and unloaded while it runs. Thread-safe. An
/// unloaded one stays in memory until the last sequence that uses it has ended.
///
/// With a folder, each PEFT folder in it is an adapter, too, loaded on the thread that first asks
/// for it; where there is no room, the one of these goes that was not asked for the longest.
class LoraShelf final : public AdapterSource, public LazyAdapters {
 public:
  struct Limits {
    uint32_t adapters = 16;
    uint32_t rank = 64;
    std::string folder{};  ///< of adapters that are loaded on first use; empty: none
  };
  LoraShelf(std::shared_ptr<const Model> model, const Limits& limits);

  /// Reads a PEFT folder (load_lora) and makes it known. kAlreadyExists for a name that is taken,
  /// kOverloaded beyond `limits.adapters`.
  Status load(std::string_view name, const std::string& folder);
  /// kNotFound for an unknown name.
  Status unload(std::string_view name);
  /// Loaded ones, and those that would be, at most AdapterFolder::kListedMax of these; sorted.
  /// Looks into the folder.
  std::vector<std::string> names() const;
  std::shared_ptr<const Adapter> find(std::string_view name) const override;
  bool needs_loading(std::string_view name) const override;

 private:
  struct Entry {
    std::string name;
    std::shared_ptr<const LoraAdapter> adapter;
    bool from_folder = false;
    uint64_t used = 0;  ///< when, counted in calls of find()
  };
  Status check_room(std::string_view name) const STATOR_REQUIRES(mutex_);
  std::shared_ptr<const Adapter> find_loaded(std::string_view name) const;
  Status load_from_folder(std::string_view name) const;
  Status make_room() const STATOR_REQUIRES(mutex_);

  const std::shared_ptr<const Model> model_;
  const Limits limits_;
  const AdapterFolder folder_;
  mutable Mutex loading_;  // one first use at a time; before mutex_
  mutable Mutex mutex_;
  mutable std::vector<Entry> entries_ STATOR_GUARDED_BY(mutex_);  // by name
  mutable uint64_t calls_ STATOR_GUARDED_BY(mutex_) = 0;
};

}  // namespace stator::engine::cpu
