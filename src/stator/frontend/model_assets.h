// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/chat_template/chat_template.h"
#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/inference/sampling.h"
#include "stator/media/prompt_rules.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::frontend {

/// What turns text into prompts and tokens into text for one model: everything the frontend reads
/// from the model's folder. Immutable, shared by all shards.
struct ModelAssets {
  std::unique_ptr<const tokenizer::Tokenizer> tokenizer;
  /// Null: the model has no chat template, so chat completions are refused.
  std::unique_ptr<const chat_template::ChatTemplate> chat_template;
  std::string chat_template_text;  ///< its source: tells in which format the model answers
  inference::SamplingParams sampling_defaults;  ///< generation_config.json, else neutral
  std::vector<TokenId> eos_token_ids;  ///< generation_config.json, else config.json, else GGUF
  uint32_t architectural_context = 0;  ///< max_position_embeddings of config.json; 0 = unknown
  media::PromptRules media_rules;      ///< config.json, preprocessor_config.json
  std::string checksum;                ///< over tokenizer, template and generation defaults
};

/// The chat template of a model folder or of a GGUF file.
struct ModelChat {
  chat_template::ChatTemplateSource source;
  std::vector<TokenId> eos_token_ids;  ///< of GGUF files
  uint32_t context_length = 0;         ///< of GGUF files
};

/// In a folder what `chat_template::find_chat_template` finds, else what its GGUF file has (also
/// without a folder), whose text may be empty; nothing if there is neither. Blocking.
Result<std::optional<ModelChat>> find_model_chat(const std::filesystem::path& path);

/// Reads tokenizer.json, the chat template and generation_config.json of a model folder, or what a
/// .gguf file has of these. Blocking, milliseconds to a few hundred. kNotFound for a missing folder
/// or tokenizer, else the reader's own error, naming the file. `chat_template`: in place of the
/// model's own; empty: none.
Result<std::shared_ptr<const ModelAssets>> load_model_assets(const std::string& model_dir,
                                                             const std::string& chat_template = {});

}  // namespace stator::frontend
