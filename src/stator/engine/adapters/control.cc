// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/control.h"

#include <fmt/format.h>

#include <array>

#include "stator/engine/adapters/dialect.h"

namespace stator::engine::adapters {

std::string_view to_string(const Control& control) {
  constexpr std::array<std::string_view, std::variant_size_v<Control>> kNames = {
      "load_lora_adapter", "unload_lora_adapter", "sleep", "wake_up", "reset_prefix_cache"};
  return kNames[control.index()];
}

Result<EngineCall> Dialect::lower_control(const Control& control) const {
  return Error(Code::kUnsupported,
               fmt::format("engine '{}' has no {}", traits().kind, to_string(control)));
}

Status Dialect::read_control(const Control& /*control*/, int status, std::string_view body) const {
  return status == 200 ? Status() : Status(to_error(traits().kind, status, body));
}

}  // namespace stator::engine::adapters
