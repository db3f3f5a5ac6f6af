// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "stator/core/config.h"

namespace stator::app {

/// Settings of the CPU engine alone.
struct CpuSettings {
  std::string kv_cache_type = "f32";
  std::string lora_modules;  ///< NAME=FOLDER, with commas: adapters loaded at the start
  std::string lora_folder;   ///< of adapters that are loaded on first use
  uint32_t max_loras = 16;
  uint32_t max_lora_rank = 64;
  uint32_t prompt_lookup = 0;  ///< tokens guessed at once; 0: none
  uint32_t prompt_lookup_match = 2;
  std::string scheduling_policy = "priority";
  uint32_t prefill_budget = 128;  ///< tokens of prompts per step while others decode; 0: no bound
};

void describe(ConfigSchema& schema, CpuSettings& cpu);

}  // namespace stator::app
