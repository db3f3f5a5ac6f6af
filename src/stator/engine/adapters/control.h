// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace stator::engine::adapters {

// What an operator asks of an engine server beside tokens. Dialect::lower_control() says it in the
// server's words, AdapterEngine::control() carries it out.

/// Makes a LoRA adapter servable under `name`.
struct LoadAdapter {
  std::string name;
  std::string path;  ///< folder or hub name, as the server sees it
};
struct UnloadAdapter {
  std::string name;
};
/// Gives up the accelerator's memory: the KV cache is lost, requests are not taken meanwhile.
struct Sleep {
  uint32_t level = 1;  ///< vLLM: 1 keeps the weights in host memory, 2 drops them
};
struct WakeUp {};
/// Forgets all idle KV blocks.
struct ResetPrefixCache {};

using Control = std::variant<LoadAdapter, UnloadAdapter, Sleep, WakeUp, ResetPrefixCache>;

/// "load_lora_adapter", …: in logs, metrics and errors.
std::string_view to_string(const Control& control);

}  // namespace stator::engine::adapters
