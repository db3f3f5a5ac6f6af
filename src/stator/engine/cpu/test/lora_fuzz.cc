// SPDX-License-Identifier: Apache-2.0
// A LoRA adapter from anywhere: a line of configuration, then a safetensors file.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/engine/cpu/lora.h"
#include "stator/engine/cpu/safetensors.h"

namespace {

using namespace stator::engine::cpu;

ModelConfig model() {
  ModelConfig config{.architecture = "LlamaForCausalLM",
                     .vocab_size = 16,
                     .layers = 1,
                     .hidden_size = 4,
                     .intermediate_size = 6,
                     .heads = 2,
                     .kv_heads = 1,
                     .head_dim = 2,
                     .max_positions = 16};
  config.sliding_window.assign(config.layers, 0);
  return config;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ModelConfig kModel = model();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t end = text.find('\n');
  const std::string_view config = text.substr(0, end);
  const auto file =
      std::as_bytes(std::span(data, size).subspan(end == std::string_view::npos ? size : end + 1));
  const auto infos = parse_safetensors_header(file, "fuzz");
  if (!infos) {
    (void)make_lora(config, {}, kModel, 8);
    return 0;
  }
  TensorMap tensors;
  for (const TensorInfo& info : *infos) {
    const auto bytes = file.subspan(info.begin, info.end - info.begin);
    tensors.emplace(info.name,
                    TensorView{.dtype = info.dtype, .shape = info.shape, .bytes = bytes});
  }
  const auto made = make_lora(config, tensors, kModel, 8);
  if (made) {
    STATOR_ASSERT((*made)->rank >= 1 && (*made)->rank <= 8, "an accepted rank is within its limit");
  }
  return 0;
}
