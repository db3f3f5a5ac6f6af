// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/model_assets.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "stator/core/hash.h"
#include "stator/frontend/model_facts.h"
#include "stator/io/read_file.h"
#include "stator/json/value.h"
#include "stator/tokenizer/gguf_chat.h"
#include "stator/tokenizer/pre_token_cache.h"

namespace stator::frontend {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kSmallFileBytesMax = 16 << 20;

std::optional<std::string> read_small_file(const fs::path& path) {
  auto text = io::read_file(path, kSmallFileBytesMax);
  return text ? std::optional(std::move(*text)) : std::nullopt;
}

/// The root object of a JSON file; empty when the file does not exist.
Result<json::Value> read_json_object(const fs::path& path) {
  const auto text = read_small_file(path);
  if (!text) {
    return json::Value::object();
  }
  auto root = json::parse(*text);
  if (!root || !root->is_object()) {
    return Error(Code::kCorrupt, path.string() + " is not a JSON object");
  }
  return root;
}

void read_token_ids(const json::Value& root, std::vector<TokenId>& out) {
  const json::Value* value = root.find("eos_token_id");
  const auto add = [&out](const json::Value& id) {
    if (const auto token = id.as_uint64()) {
      out.push_back(static_cast<TokenId>(*token));
    }
  };
  if (value != nullptr && value->is_array()) {
    for (const json::Value& id : value->elements()) {
      add(id);
    }
  } else if (value != nullptr) {
    add(*value);
  }
}

void read_float(const json::Value& root, std::string_view key, float& field) {
  if (const auto value = root.at(key).as_double()) {
    field = static_cast<float>(*value);
  }
}

inference::SamplingParams read_sampling_defaults(const json::Value& root) {
  inference::SamplingParams defaults;
  read_float(root, "temperature", defaults.temperature);
  read_float(root, "top_p", defaults.top_p);
  read_float(root, "min_p", defaults.min_p);
  read_float(root, "repetition_penalty", defaults.repetition_penalty);
  if (const auto top_k = root.at("top_k").as_int64()) {
    defaults.top_k = static_cast<int32_t>(*top_k);
  }
  return defaults;
}

}  // namespace

Result<std::optional<ModelChat>> find_model_chat(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    STATOR_TRY(auto source, chat_template::find_chat_template(path));
    if (source) {
      return std::optional(ModelChat{.source = std::move(*source), .eos_token_ids = {}});
    }
  }
  STATOR_TRY(auto gguf, tokenizer::load_gguf_chat(path));
  if (!gguf) {
    return std::optional<ModelChat>();
  }
  return std::optional(ModelChat{.source = {.text = std::move(gguf->chat_template),
                                            .tool_use_text = std::move(gguf->tool_use),
                                            .special_tokens = std::move(gguf->special_tokens),
                                            .native = {}},
                                 .eos_token_ids = std::move(gguf->eos_token_ids),
                                 .context_length = gguf->context_length});
}

namespace {

Status check_folder(const std::string& model_dir) {
  return fs::exists(model_dir)
             ? Status()
             : Error(Code::kNotFound, "model folder '" + model_dir + "' does not exist");
}

/// Everything but the tokenizer, whose fingerprint is part of the checksum.
Status read_beside_tokenizer(const std::string& model_dir, const std::string& chat_template,
                             uint64_t fingerprint, ModelAssets& assets) {
  const fs::path dir(model_dir);
  STATOR_TRY(auto chat, find_model_chat(dir));
  if (!chat_template.empty()) {
    chat = chat ? std::move(chat) : ModelChat();
    chat->source.text = chat_template;
    chat->source.tool_use_text.reset();
    chat->source.native.reset();
  }
  uint64_t hash = fingerprint;
  if (chat && (!chat->source.text.empty() || chat->source.native)) {
    chat_template::ChatTemplateSource& source = chat->source;
    hash = xxh3_64(source.text, hash);
    assets.chat_template_text = source.text + source.tool_use_text.value_or("");
    STATOR_TRY(assets.chat_template, chat_template::ChatTemplate::compile(std::move(source)),
               "chat template of " + model_dir);
  }
  STATOR_TRY(const json::Value generation, read_json_object(dir / "generation_config.json"));
  STATOR_TRY(const json::Value config, read_json_object(dir / "config.json"));
  assets.sampling_defaults = read_sampling_defaults(generation);
  read_token_ids(generation, assets.eos_token_ids);
  if (assets.eos_token_ids.empty()) {
    read_token_ids(config, assets.eos_token_ids);
  }
  if (assets.eos_token_ids.empty() && chat) {
    assets.eos_token_ids = std::move(chat->eos_token_ids);
  }
  assets.architectural_context = static_cast<uint32_t>(
      config.at("max_position_embeddings").as_uint64().value_or(chat ? chat->context_length : 0));
  STATOR_TRY(const json::Value processor, read_json_object(dir / "preprocessor_config.json"));
  assets.media_rules = media::PromptRules::read(config, processor);
  hash = xxh3_64(json::to_text(generation), hash);
  assets.checksum = fmt::format("{:016x}", hash);
  return {};
}

}  // namespace

Result<std::shared_ptr<const ModelAssets>> load_model_assets(const std::string& model_dir,
                                                             const std::string& chat_template) {
  STATOR_CHECK(check_folder(model_dir));
  auto assets = std::make_shared<ModelAssets>();
  STATOR_TRY(assets->tokenizer, tokenizer::Tokenizer::load(model_dir));
  STATOR_CHECK(
      read_beside_tokenizer(model_dir, chat_template, assets->tokenizer->fingerprint(), *assets));
  tokenizer::PreTokenCache::drop_this_thread();  // a few words were encoded, to know the tokenizer
  return assets;
}

ModelFacts facts_of(const ModelAssets& assets) {
  return {.vocabulary = tokenizer::facts_of(*assets.tokenizer),
          .eos_token_ids = assets.eos_token_ids,
          .architectural_context = assets.architectural_context,
          .media = assets.media_rules.kinds(),
          .checksum = assets.checksum};
}

Result<ModelFacts> load_model_facts(const std::string& model_dir,
                                    const std::string& chat_template) {
  STATOR_CHECK(check_folder(model_dir));
  ModelFacts facts;
  STATOR_TRY(facts.vocabulary, tokenizer::load_vocabulary_facts(model_dir));
  ModelAssets beside;
  STATOR_CHECK(
      read_beside_tokenizer(model_dir, chat_template, facts.vocabulary.fingerprint, beside));
  facts.eos_token_ids = std::move(beside.eos_token_ids);
  facts.architectural_context = beside.architectural_context;
  facts.media = beside.media_rules.kinds();
  facts.checksum = std::move(beside.checksum);
  return facts;
}

}  // namespace stator::frontend
