// SPDX-License-Identifier: Apache-2.0
#include "stator/app/cpu_settings.h"

namespace stator::app {

void describe(ConfigSchema& schema, CpuSettings& cpu) {
  schema.choice("engine.kv_cache_type", cpu.kv_cache_type, {"f32", "f16", "bf16", "int8"},
                "elements of the KV cache (cpu engine); int8 has a scale per token and head",
                {.flag = "kv-cache-type"});
  schema.text("engine.lora_modules", cpu.lora_modules,
              "LoRA adapters loaded at the start, NAME=FOLDER[,NAME=FOLDER]* (cpu engine)",
              {.flag = "lora-modules"});
  schema.text("engine.lora_folder", cpu.lora_folder,
              "folder of LoRA adapters, each a folder whose name is a model that is loaded when it "
              "is first asked for (cpu engine; vllm and sglang, whose server sees the same path)",
              {.flag = "lora-folder", .env_peer = "DYN_LORA_PATH"});
  schema.integer(
      "engine.max_loras", cpu.max_loras, 0, 4096,
      "LoRA adapters loaded at once (cpu engine), or of the folder at an engine server, 0 "
      "= none",
      {.flag = "max-loras"});
  schema.integer("engine.max_lora_rank", cpu.max_lora_rank, 1, 1024,
                 "largest rank of a LoRA adapter (cpu engine)", {.flag = "max-lora-rank"});
  schema.integer("engine.prompt_lookup", cpu.prompt_lookup, 0, 64,
                 "tokens guessed at once from what stood in the text before (cpu engine); answers "
                 "stay the same, 0 = none",
                 {.flag = "prompt-lookup"});
  schema.integer("engine.prompt_lookup_match", cpu.prompt_lookup_match, 1, 64,
                 "tokens that must have stood there before, at least",
                 {.flag = "prompt-lookup-match"});
  schema.choice("engine.scheduling_policy", cpu.scheduling_policy, {"priority", "fcfs"},
                "who runs first and is preempted last (cpu engine): higher priority, then who came "
                "first; or the latter alone",
                {.flag = "scheduling-policy"});
  schema.integer("engine.prefill_budget", cpu.prefill_budget, 0, 1 << 24,
                 "tokens of prompts in a step in which others decode (cpu engine), 0 = as many as "
                 "max_num_batched_tokens",
                 {.flag = "prefill-budget"});
}

}  // namespace stator::app
