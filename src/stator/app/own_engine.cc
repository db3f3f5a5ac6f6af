// SPDX-License-Identifier: Apache-2.0
#include "stator/app/own_engine.h"

#include <fmt/format.h>

#include "stator/core/log.h"

namespace stator::app {

namespace control = engine::adapters;

OwnEngine::OwnEngine(engine::Engine& engine, std::shared_ptr<engine::cpu::LoraShelf> shelf,
                     std::string model)
    : engine_(engine),
      sleeper_(dynamic_cast<engine::Sleeper*>(&engine)),
      shelf_(std::move(shelf)),
      model_(std::move(model)) {}

Status OwnEngine::carry_out(const control::Control& wish) {
  if (const auto* load_wish = std::get_if<control::LoadAdapter>(&wish)) {
    return shelf_ == nullptr ? unsupported(wish) : load(*load_wish);
  }
  if (const auto* unload_wish = std::get_if<control::UnloadAdapter>(&wish)) {
    return shelf_ == nullptr ? unsupported(wish) : unload(*unload_wish);
  }
  if (std::holds_alternative<control::ResetPrefixCache>(wish)) {
    engine_.reset_prefix_cache();
    return {};
  }
  if (sleeper_ == nullptr) {
    return unsupported(wish);
  }
  if (const auto* sleep_wish = std::get_if<control::Sleep>(&wish)) {
    return fall_asleep(*sleep_wish);
  }
  sleeper_->set_asleep(false);
  return {};
}

Status OwnEngine::load(const control::LoadAdapter& wish) {
  if (wish.name == model_) {
    return Error(Code::kAlreadyExists, fmt::format("'{}' is the name of the model", wish.name));
  }
  STATOR_CHECK(shelf_->load(wish.name, wish.path));
  log::info("engine", "adapter loaded", {{"name", wish.name}, {"path", wish.path}});
  return {};
}

Status OwnEngine::unload(const control::UnloadAdapter& wish) {
  STATOR_CHECK(shelf_->unload(wish.name));
  // Another adapter may come under this name: its blocks have the same hashes.
  engine_.reset_prefix_cache();
  log::info("engine", "adapter unloaded", {{"name", wish.name}});
  return {};
}

Status OwnEngine::fall_asleep(const control::Sleep& wish) {
  if (wish.level != 1) {
    return Error(Code::kUnsupported,
                 "engine 'cpu' sleeps at level 1 only: its weights stay, the KV cache goes");
  }
  sleeper_->set_asleep(true);
  return {};
}

std::vector<std::string> OwnEngine::adapters() const {
  return shelf_ == nullptr ? std::vector<std::string>() : shelf_->names();
}

Status OwnEngine::unsupported(const control::Control& control) const {
  return Error(Code::kUnsupported,
               fmt::format("engine '{}' has no {}", engine_.info().kind, to_string(control)));
}

}  // namespace stator::app
