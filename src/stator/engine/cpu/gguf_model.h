// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "stator/core/result.h"
#include "stator/engine/cpu/model.h"
#include "stator/gguf/file.h"

namespace stator::engine::cpu {

/// The GGUF file that `path` is or, for a folder without a config.json, the first one in it.
std::optional<std::string> find_gguf(const std::string& path);

/// A model from a GGUF file: its metadata is the configuration, its tensors are read by the names
/// the other formats use. Architectures llama (Llama and Mistral), qwen2, qwen3, qwen3moe, gemma2,
/// gemma3, phi3 and glm4. Errors name the key or tensor.
Result<std::shared_ptr<const Model>> load_gguf_model(const std::string& file);
/// Where a file's bytes are: pages of a mapped file are given back when they have been copied.
enum class Storage : uint8_t { kMemory, kMapped };
Result<std::shared_ptr<const Model>> make_gguf_model(const gguf::File& file,
                                                     Storage storage = Storage::kMemory);

}  // namespace stator::engine::cpu
