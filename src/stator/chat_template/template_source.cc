// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "stator/chat_template/arena.h"
#include "stator/chat_template/chat_template.h"
#include "stator/chat_template/value.h"
#include "stator/io/read_file.h"

namespace stator::chat_template {
namespace {

namespace fs = std::filesystem;

// tokenizer_config.json of models with thousands of added tokens is about a megabyte.
constexpr uintmax_t kFileBytesMax = uintmax_t{64} << 20U;
constexpr size_t kJsonBytesMax = size_t{512} << 20U;

/// The file's text; nothing when there is no such file.
Result<std::optional<std::string>> read_optional(const fs::path& path) {
  auto text = io::read_file_if_present(path, kFileBytesMax);
  if (!text && text.error().code() == Code::kTooLarge) {
    return std::move(text.error()).with_code(Code::kCorrupt);
  }
  return text;
}

Result<Value> parse_file(const fs::path& path, std::string_view text, Arena& arena) {
  auto value = Value::from_json(text, arena);
  if (!value) {
    return std::move(value.error()).with_code(Code::kCorrupt).with_context(path.string());
  }
  return value;
}

/// A template as it stands in JSON: text, or a list of {name, template}.
Result<bool> take_template(const Value& value, const fs::path& path, ChatTemplateSource& source) {
  if (value.is_string()) {
    source.text = value.text();
    return true;
  }
  if (!value.is_list()) {
    return Error(Code::kCorrupt, path.string() + ": chat_template must be a string or a list");
  }
  bool found = false;
  for (const Value& entry : value.as_list().values()) {
    const Value* name = entry.find("name");
    const Value* text = entry.find("template");
    if (name == nullptr || text == nullptr || !name->is_string() || !text->is_string()) {
      return Error(Code::kCorrupt,
                   path.string() + ": chat_template entries need a name and a template");
    }
    if (name->text() == "default") {
      source.text = text->text();
      found = true;
    } else if (name->text() == "tool_use") {
      source.tool_use_text = text->text();
    }
  }
  if (!found) {
    return Error(Code::kCorrupt, path.string() + ": chat_template has no entry named default");
  }
  return true;
}

/// "bos_token": "<s>" or {"content": "<s>", …}.
void take_special_tokens(const Value& config, SpecialTokens& tokens) {
  for (const auto& entry : config.as_dict().items()) {
    const std::string_view name = entry.key.text();
    if (!name.ends_with("_token")) {
      continue;
    }
    const Value* content = entry.value.is_dict() ? entry.value.find("content") : &entry.value;
    if (content != nullptr && content->is_string()) {
      tokens.emplace_back(name, content->text());
    }
  }
}

Result<bool> take_json_template(const fs::path& path, ChatTemplateSource& source) {
  STATOR_TRY(const std::optional<std::string> text, read_optional(path));
  if (!text) {
    return false;
  }
  Arena arena(kJsonBytesMax);
  STATOR_TRY(const Value value, parse_file(path, *text, arena));
  const Value* member = value.is_dict() ? value.find("chat_template") : &value;
  if (member == nullptr) {
    return Error(Code::kCorrupt, path.string() + " has no member chat_template");
  }
  return take_template(*member, path, source);
}

/// The native format of the model whose config.json this is.
Result<std::optional<NativeFormat>> find_native_model(const fs::path& path) {
  STATOR_TRY(const std::optional<std::string> text, read_optional(path));
  if (!text) {
    return std::optional<NativeFormat>();
  }
  Arena arena(kJsonBytesMax);
  STATOR_TRY(const Value config, parse_file(path, *text, arena));
  const Value* type = config.find("model_type");
  return type == nullptr || !type->is_string() ? std::nullopt : find_native_format(type->text());
}

}  // namespace

Result<std::optional<ChatTemplateSource>> find_chat_template(const fs::path& model_dir) {
  ChatTemplateSource source;
  bool found = false;
  STATOR_TRY(std::optional<std::string> jinja, read_optional(model_dir / "chat_template.jinja"));
  if (jinja) {
    source.text = std::move(*jinja);
    found = true;
  } else {
    STATOR_TRY(found, take_json_template(model_dir / "chat_template.json", source));
  }
  const fs::path config_path = model_dir / "tokenizer_config.json";
  STATOR_TRY(const std::optional<std::string> config_text, read_optional(config_path));
  if (config_text) {
    Arena arena(kJsonBytesMax);
    STATOR_TRY(const Value config, parse_file(config_path, *config_text, arena));
    if (!config.is_dict()) {
      return Error(Code::kCorrupt, config_path.string() + " must be a JSON object");
    }
    take_special_tokens(config, source.special_tokens);
    const Value* member = config.find("chat_template");
    if (!found && member != nullptr && !member->is_none()) {
      STATOR_TRY(found, take_template(*member, config_path, source));
    }
  }
  if (!found) {
    STATOR_TRY(source.native, find_native_model(model_dir / "config.json"));
  }
  return found || source.native ? std::optional(std::move(source)) : std::nullopt;
}

namespace {

Result<std::string> read_required(const fs::path& path) {
  STATOR_TRY(std::optional<std::string> text, read_optional(path));
  if (!text) {
    return Error(Code::kNotFound, "there is no file " + path.string());
  }
  return std::move(*text);
}

}  // namespace

Result<ChatTemplateSource> load_chat_template(const fs::path& name_or_path) {
  ChatTemplateSource source;
  std::error_code error;
  if (fs::is_directory(name_or_path, error)) {
    STATOR_TRY(auto found, find_chat_template(name_or_path));
    if (!found) {
      return Error(Code::kNotFound, name_or_path.string() +
                                        " has no chat_template.jinja, chat_template.json or "
                                        "chat_template in tokenizer_config.json");
    }
    return std::move(*found);
  }
  if (!fs::exists(name_or_path, error)) {
    source.native = find_native_format(name_or_path.string());
    if (source.native) {
      return source;
    }
  }
  STATOR_TRY(source.text, read_required(name_or_path));
  if (name_or_path.extension() != ".json") {
    return source;
  }
  Arena arena(kJsonBytesMax);
  const std::string json = std::move(source.text);
  STATOR_TRY(const Value value, parse_file(name_or_path, json, arena));
  const Value* member = value.is_dict() ? value.find("chat_template") : &value;
  if (member == nullptr || member->is_none()) {
    return Error(Code::kNotFound, name_or_path.string() + " has no member chat_template");
  }
  STATOR_CHECK(take_template(*member, name_or_path, source));
  if (value.is_dict()) {
    take_special_tokens(value, source.special_tokens);
  }
  return source;
}

Result<SpecialTokens> load_special_tokens(const fs::path& path) {
  STATOR_TRY(const std::string text, read_required(path));
  Arena arena(kJsonBytesMax);
  STATOR_TRY(const Value config, parse_file(path, text, arena));
  if (!config.is_dict()) {
    return Error(Code::kCorrupt, path.string() + " must be a JSON object");
  }
  SpecialTokens tokens;
  take_special_tokens(config, tokens);
  return tokens;
}

}  // namespace stator::chat_template
