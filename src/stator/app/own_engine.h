// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/engine/adapters/control.h"
#include "stator/engine/api/engine.h"
#include "stator/engine/api/sleeper.h"
#include "stator/engine/cpu/lora_shelf.h"

namespace stator::app {

/// What operators ask of an engine of this process. Thread-safe; the engine outlives it.
class OwnEngine {
 public:
  /// `shelf` is null for an engine without adapters; `model` is a name that no adapter may take.
  OwnEngine(engine::Engine& engine, std::shared_ptr<engine::cpu::LoraShelf> shelf,
            std::string model);

  /// At once, an adapter's files included. kUnsupported for what this engine has not.
  Status carry_out(const engine::adapters::Control& control);
  bool asleep() const { return sleeper_ != nullptr && sleeper_->asleep(); }
  std::vector<std::string> adapters() const;

 private:
  Status load(const engine::adapters::LoadAdapter& wish);
  Status unload(const engine::adapters::UnloadAdapter& wish);
  Status fall_asleep(const engine::adapters::Sleep& wish);
  Status unsupported(const engine::adapters::Control& control) const;

  engine::Engine& engine_;
  engine::Sleeper* const sleeper_;  // the same engine, if it can sleep
  const std::shared_ptr<engine::cpu::LoraShelf> shelf_;
  const std::string model_;
};

}  // namespace stator::app
