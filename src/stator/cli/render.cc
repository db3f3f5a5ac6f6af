// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <simdjson.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "stator/app/terminal.h"
#include "stator/chat_template/arena.h"
#include "stator/chat_template/chat_template.h"
#include "stator/chat_template/reasoning_args.h"
#include "stator/chat_template/value.h"
#include "stator/cli/command.h"
#include "stator/core/clock.h"
#include "stator/frontend/model_assets.h"

namespace stator::cli {
namespace {

using chat_template::ChatTemplate;
using chat_template::Value;

// As large as a request body may be.
constexpr size_t kBodyBytesMax = size_t{512} << 20U;

/// The JSON text of a member; empty when absent or null.
std::string member_json(const Value& body, std::string_view name) {
  const Value* found = body.find(name);
  return found == nullptr || found->is_none() ? std::string() : found->to_python_json();
}

bool member_flag(const Value& body, std::string_view name, bool otherwise) {
  const Value* found = body.find(name);
  return found == nullptr || found->is_none() ? otherwise : found->truthy();
}

/// The kwargs of a request, with its reasoning switches in them.
Result<std::string> template_kwargs(const Value& body) {
  const std::string thinking = member_json(body, "thinking");
  const bool short_name = body.find("chat_template_kwargs") == nullptr;
  const std::string kwargs =
      member_json(body, short_name ? "chat_template_args" : "chat_template_kwargs");
  const Value* effort = body.find("reasoning_effort");
  return chat_template::normalize_reasoning_args(
      {.thinking_json = thinking,
       .reasoning_effort = effort != nullptr && effort->is_string() ? effort->text() : "",
       .kwargs_json = kwargs,
       .default_mode = {}});
}

Result<std::string> render_body(const ChatTemplate& compiled, const std::string& text) {
  chat_template::Arena arena(kBodyBytesMax);
  if (text.find_first_not_of(" \t\r\n") == text.npos) {
    return Error(Code::kInvalidArgument,
                 "standard input is empty: it must be the body of a chat request");
  }
  STATOR_TRY(const Value body, Value::from_json(text, arena), "standard input");
  if (!body.is_dict() || body.find("messages") == nullptr) {
    return Error(Code::kInvalidArgument,
                 "standard input must be the body of a chat request: an object with messages");
  }
  const Value* choice = body.find("tool_choice");
  const bool no_tools = choice != nullptr && choice->is_text("none");
  const std::string messages = member_json(body, "messages");
  const std::string tools = no_tools ? std::string() : member_json(body, "tools");
  const std::string documents = member_json(body, "documents");
  STATOR_TRY(const std::string extra, template_kwargs(body));
  const SystemClock clock;
  chat_template::RenderInput input;
  input.messages_json = messages;
  input.tools_json = tools;
  input.documents_json = documents;
  input.extra_json = extra;
  input.continue_final_message = member_flag(body, "continue_final_message", false);
  input.add_generation_prompt =
      member_flag(body, "add_generation_prompt", !input.continue_final_message);
  input.now = clock.wall_now();
  return compiled.render(input);
}

/// A model folder or a GGUF file, or whatever else load_chat_template knows.
Result<chat_template::ChatTemplateSource> load_source(const std::filesystem::path& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored) || path.extension() == ".gguf") {
    STATOR_TRY(auto chat, frontend::find_model_chat(path));
    if (!chat || (chat->source.text.empty() && !chat->source.native)) {
      return Error(Code::kNotFound,
                   path.string() +
                       " has no chat_template.jinja, chat_template.json, chat_template "
                       "in tokenizer_config.json or in a GGUF file");
    }
    return std::move(chat->source);
  }
  STATOR_TRY(auto source, chat_template::load_chat_template(path));
  if (!simdjson::validate_utf8(source.text)) {
    return Error(Code::kInvalidArgument, path.string() + " is not UTF-8 text");
  }
  return source;
}

}  // namespace

Status run_render(Invocation& invocation) {
  const auto path = invocation.options.find("--template");
  if (path == invocation.options.end()) {
    return Error(
        Code::kInvalidArgument,
        "--template is missing: a Jinja, JSON or GGUF file, a model folder, or deepseek_v3_2, "
        "deepseek_v4 or harmony");
  }
  STATOR_TRY(auto source, load_source(path->second));
  if (const auto config = invocation.options.find("--tokenizer-config");
      config != invocation.options.end()) {
    STATOR_TRY(source.special_tokens, chat_template::load_special_tokens(config->second));
  }
  const std::string body = app::read_input();
  auto compiled = ChatTemplate::compile(std::move(source));
  auto prompt = compiled ? render_body(**compiled, body) : std::move(compiled.error());
  if (!prompt) {
    // The template or the request is at fault, not what was typed: exit status 1.
    return std::move(prompt.error()).with_code(Code::kInternal);
  }
  print(*prompt);
  return {};
}

}  // namespace stator::cli
