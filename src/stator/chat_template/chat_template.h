// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/cancel_token.h"
#include "stator/core/clock.h"
#include "stator/core/result.h"

namespace stator::chat_template {

class Arena;
class Meter;
namespace detail {
enum class ToolSchemas : uint8_t;
}

// Chat templates: from an OpenAI-style conversation to the prompt text a model was trained on. The
// language is Jinja2 as Hugging Face's apply_chat_template sets it up, and output is byte-equal to
// it: prompts that differ by one space miss every prefix cache.
//
//   STATOR_TRY(auto source, find_chat_template(model_dir));         // nothing there: no chat
//   endpoint STATOR_TRY(auto chat, ChatTemplate::compile(std::move(*source))); RenderInput input;
//   input.messages_json = R"([{"role":"user","content":"Hello"}])";
//   input.now = clock.wall_now();
//   STATOR_TRY(std::string prompt, chat->render(input));

/// Name → text, such as {"bos_token", "<s>"}. Absent ones stay undefined in the template.
using SpecialTokens = std::vector<std::pair<std::string, std::string>>;

/// Formats that are code: models published without a template, or better served without one.
enum class NativeFormat : uint8_t {
  kDeepseekV32,  ///< "deepseek_v3_2"
  kDeepseekV4,   ///< "deepseek_v4"
  kHarmony,      ///< "harmony", of gpt-oss
};
std::optional<NativeFormat> find_native_format(std::string_view name);

/// What a model folder says about its chat template.
struct ChatTemplateSource {
  std::string text;
  std::optional<std::string> tool_use_text;  ///< used instead when a request brings tools
  SpecialTokens special_tokens;
  std::optional<NativeFormat> native;  ///< then the texts do not matter
};

/// Looks for `chat_template.jinja`, then `chat_template.json`, then `chat_template` in
/// `tokenizer_config.json` (a string, or a list of {name, template} with "default" and "tool_use");
/// special tokens come from tokenizer_config.json. None of them, but a `model_type` in config.json
/// that is served by a native format: that. Else an empty optional. Unreadable
/// file: kIo; wrong content: kCorrupt, naming the file. Blocking reads, for start-up only.
Result<std::optional<ChatTemplateSource>> find_chat_template(
    const std::filesystem::path& model_dir);

/// What a person names: a native format ("deepseek_v3_2", "harmony"), a model folder, a Jinja file,
/// or a JSON file with a `chat_template` (tokenizer_config.json, chat_template.json). kNotFound
/// when there is no such file or no template in it; otherwise as find_chat_template.
Result<ChatTemplateSource> load_chat_template(const std::filesystem::path& name_or_path);
/// The special tokens of a tokenizer_config.json.
Result<SpecialTokens> load_special_tokens(const std::filesystem::path& path);

/// Bounds on one render, against hostile templates and hostile conversations.
struct RenderLimits {
  /// Statements and expressions; bulk work, such as reading the conversation, counts by its size.
  uint64_t steps_max = 10'000'000;
  size_t output_bytes_max = size_t{16} << 20U;
  size_t memory_bytes_max = size_t{256} << 20U;  ///< all values made during the render
  uint32_t depth_max = 1000;                     ///< nested expressions and calls
};

/// One conversation. The JSON texts must outlive the call. Empty text = undefined in the template.
struct RenderInput {
  std::string_view messages_json;  ///< array of message objects; required
  /// Array of OpenAI tool objects. Not even read if the template has no use for tools.
  std::string_view tools_json;
  std::string_view documents_json;  ///< array
  std::string_view extra_json;  ///< object: chat_template_kwargs; wins over everything but messages
  bool add_generation_prompt = true;
  bool continue_final_message = false;  ///< excludes add_generation_prompt
  WallTime now{};                       ///< for strftime_now; UTC
  RenderLimits limits;
  const CancelToken* cancel = nullptr;  ///< outlives the call; null: nothing ends it early
};

/// A prompt and, for native formats, which of its bytes came with the request: text in there that
/// looks like a special token is data. Spans are sorted and do not touch.
struct RenderedPrompt {
  struct Span {
    size_t begin;
    size_t end;
  };
  std::string text;
  std::vector<Span> data;
};

/// What the template was found to need. Decided once at compile time from its syntax tree.
struct TemplateTraits {
  bool content_parts = false;       ///< walks message.content: gets part lists; else joined text
  bool text_content = true;         ///< also takes plain text: it is not wrapped into a part list
  bool object_arguments = false;    ///< tool-call arguments must be objects, not JSON text
  bool null_content = false;        ///< has a use for content that is null; else it is empty text
  bool mentions_developer = false;  ///< knows the role "developer"; else it is sent as "system"
  bool uses_tools = false;
  bool null_tools = false;  ///< takes none for a request without tools; else they are undefined
  bool marks_data = false;  ///< render_parts tells the request's bytes from the format's
};

/// A compiled chat template. Immutable and thread-safe.
class ChatTemplate {
 public:
  /// Syntax errors: kInvalidArgument "chat template line 12: …".
  static Result<std::unique_ptr<ChatTemplate>> compile(std::string source,
                                                       SpecialTokens special_tokens);
  static Result<std::unique_ptr<ChatTemplate>> compile(ChatTemplateSource source);

  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;
  ~ChatTemplate();

  /// The prompt text. Errors:
  /// - the template called raise_exception(text): kInvalidArgument with exactly `text`;
  /// - it failed otherwise: kInvalidArgument "rendering the chat template: line 7: …";
  /// - steps or depth beyond the limits: kInvalidArgument; output or memory: kTooLarge;
  /// - JSON that does not parse or has the wrong shape: kInvalidArgument naming the part;
  /// - input.cancel was set meanwhile: kCancelled, within a millisecond;
  /// - both add_generation_prompt and continue_final_message, or a final message that the prompt
  ///   does not contain: kInvalidArgument.
  Result<std::string> render(const RenderInput& input) const;
  /// The same with the request's bytes marked, where traits().marks_data.
  Result<RenderedPrompt> render_parts(const RenderInput& input) const;

  /// The template as plain Jinja: every member of `context_json` (an object) is a variable, nothing
  /// is adapted. For tests, tools and templates that are not about chats.
  Result<std::string> render_context(std::string_view context_json, const RenderInput& input) const;

  const TemplateTraits& traits() const;

 private:
  struct Compiled;
  struct Request;
  Result<Request> read_request(const RenderInput& input, Arena& arena) const;
  /// `lacks_schemas`: whether the request has a tool without parameters.
  Result<RenderedPrompt> render_once(const RenderInput& input, detail::ToolSchemas schemas,
                                     Meter& meter, bool& lacks_schemas) const;
  RenderedPrompt render_native(const Request& request, const RenderInput& input,
                               Arena& arena) const;
  Result<std::string> render_jinja(const Request& request, const RenderInput& input, Arena& arena,
                                   bool use_tools) const;
  explicit ChatTemplate(std::unique_ptr<const Compiled> compiled);
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace stator::chat_template
