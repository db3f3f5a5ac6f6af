// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/chat_template.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

#include "stator/chat_template/arena.h"
#include "stator/chat_template/detail/conversation.h"
#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/lexer.h"
#include "stator/chat_template/detail/meter.h"
#include "stator/chat_template/detail/native.h"
#include "stator/chat_template/detail/object.h"
#include "stator/chat_template/detail/parser.h"
#include "stator/chat_template/detail/traits.h"
#include "stator/chat_template/value.h"

namespace stator::chat_template {
namespace {

// A template is text a human wrote; its tree takes a few times its size.
constexpr size_t kSourceBytesMax = size_t{4} << 20U;
constexpr size_t kProgramBytesMax = size_t{512} << 20U;

/// One template ready to run.
struct Unit {
  detail::Program program;
  DictData* names = nullptr;  // name → index into program.names
  TemplateTraits traits;
};

/// The variables of one render.
class Context {
 public:
  Context(const Unit& unit, Arena& arena) : unit_(unit) {
    values_ = {arena.array<Value>(unit.program.names.size()), unit.program.names.size()};
    std::ranges::fill(values_, Value::missing());
    set("self", Value::object(arena.make<detail::NamespaceObject>(detail::NamespaceObject{
                    {Object::Type::kNamespace}, DictData::make(arena, 0)})));
  }
  void set(std::string_view name, const Value& value) {
    if (const Value* index = unit_.names->find(name)) {
      values_[static_cast<size_t>(index->as_int())] = value;
    }
  }
  /// Every member of an object, except those named `kept`.
  void set_members(const Value& object, std::string_view kept) {
    for (const auto& entry : object.as_dict().items()) {
      if (entry.key.text() != kept) {
        set(entry.key.text(), entry.value);
      }
    }
  }
  std::span<const Value> values() const { return values_; }

 private:
  const Unit& unit_;
  std::span<Value> values_;
};

Result<std::string> to_error(detail::Failure& failure, uint32_t line) {
  if (failure.raised) {
    return Error(failure.code, std::move(failure.message));
  }
  return Error(failure.code, "rendering the chat template: line " + std::to_string(line) + ": " +
                                 failure.message);
}

Result<std::string> run(const Unit& unit, const Context& context, Arena& arena,
                        const RenderInput& input) {
  detail::Interpreter interpreter(unit.program, arena, input.limits, input.now);
  // Most of a prompt is text of the request.
  const size_t expected =
      1024 + input.messages_json.size() + input.tools_json.size() + input.documents_json.size();
  try {
    return interpreter.run(context.values(), expected);
  } catch (detail::Failure& failure) {
    return to_error(failure, interpreter.line());
  }
}

Result<Value> parse(std::string_view json, std::string_view what, Arena& arena) {
  auto value = Value::from_json(json, arena);
  if (!value) {
    return std::move(value.error()).with_context(what);
  }
  return value;
}

Result<Value> parse_object(std::string_view json, std::string_view what, Arena& arena) {
  STATOR_TRY(const Value value, parse(json, what, arena));
  if (!value.is_dict()) {
    return Error(Code::kInvalidArgument, std::string(what) + " must be an object");
  }
  return value;
}

bool names_variable(const Unit& unit, std::string_view name) {
  return unit.names->find(name) != nullptr;
}

/// Renders small conversations to find out what a template copes with.
class Probe {
 public:
  Probe(const Unit& unit, const SpecialTokens& tokens) : unit_(unit), tokens_(tokens) {}

  /// Empty when it fails.
  std::string render(const std::string& messages) const;
  /// Whether what a user says in `content` of this form comes out as the text that it is.
  bool shows_content(std::string_view content) const;
  /// Whether a conversation with a tool call renders sensibly with arguments of this form.
  bool takes_arguments(std::string_view arguments) const;
  /// Whether the template tells null content from empty text, and knows what to do with it.
  bool takes_null_content(std::string_view arguments) const;

 private:
  const Unit& unit_;
  const SpecialTokens& tokens_;
};

// What a user says, in both forms.
constexpr std::string_view kTextContent = R"("probe_text")";
constexpr std::string_view kPartsContent = R"([{"type":"text","text":"probe_text"}])";

// Arguments of a call, in both forms.
constexpr std::string_view kObjectArguments = R"({"probe_key":"v"})";
constexpr std::string_view kTextArguments = R"("{\"probe_key\":\"v\"}")";

bool shows_arguments(std::string_view prompt) {
  return prompt.find("probe_key") != prompt.npos;
}

constexpr std::string_view kQuestion = R"({"role":"user","content":"q"})";
constexpr std::string_view kResult =
    R"({"role":"tool","tool_call_id":"call00001","name":"f","content":"r"})";

std::string assistant_call(std::string_view content, std::string_view arguments) {
  return R"({"role":"assistant","content":)" + std::string(content) +
         R"(,"tool_calls":[{"id":"call00001","type":"function","function":{"name":"f","arguments":)" +
         std::string(arguments) + "}}]}";
}

std::string conversation(std::initializer_list<std::string_view> messages) {
  std::string json;
  for (const std::string_view message : messages) {
    json += json.empty() ? '[' : ',';
    json += message;
  }
  return json + ']';
}

std::string Probe::render(const std::string& messages) const {
  constexpr size_t kProbeBytes = size_t{8} << 20U;
  RenderInput input;
  input.limits = {
      .steps_max = 200'000, .output_bytes_max = 1U << 20U, .memory_bytes_max = kProbeBytes};
  Meter meter(input.limits.steps_max, nullptr);
  Arena arena(kProbeBytes, &meter);
  Context context(unit_, arena);
  for (const auto& [name, text] : tokens_) {
    context.set(name, Value::string(text));
  }
  const auto value = Value::from_json(messages, arena);
  context.set("messages", *value);
  context.set("add_generation_prompt", Value::boolean(false));
  return run(unit_, context, arena, input).value_or("");
}

bool Probe::shows_content(std::string_view content) const {
  const std::string prompt =
      render(conversation({R"({"role":"user","content":)" + std::string(content) + "}"}));
  // Parts printed as the data they are come from a template that expected text.
  return prompt.find("probe_text") != prompt.npos && prompt.find("'text'") == prompt.npos &&
         prompt.find("\"text\"") == prompt.npos;
}

bool Probe::takes_arguments(std::string_view arguments) const {
  const std::string prompt =
      render(conversation({kQuestion, assistant_call(R"("")", arguments), kResult}));
  // A mapping printed the Python way is a template that expected text.
  return shows_arguments(prompt) && prompt.find("{'probe_key'") == prompt.npos;
}

/// How often a prompt prints a value that is not there.
size_t count_nulls(std::string_view prompt) {
  size_t count = 0;
  for (const std::string_view word : {"None", "null"}) {
    for (size_t at = prompt.find(word); at != prompt.npos; at = prompt.find(word, at + 1)) {
      ++count;
    }
  }
  return count;
}

bool Probe::takes_null_content(std::string_view arguments) const {
  constexpr std::string_view kEmptyText = R"("")";
  const auto with_call = [&](std::string_view content) {
    return conversation({kQuestion, assistant_call(content, arguments), kResult});
  };
  const auto plain = [](std::string_view content) {
    return conversation(
        {kQuestion, R"({"role":"assistant","content":)" + std::string(content) + "}", kQuestion});
  };
  std::string null = render(with_call("null"));
  std::string empty = render(with_call(kEmptyText));
  if (null.empty() && empty.empty()) {  // no tool calls with this template
    null = render(plain("null"));
    empty = render(plain(kEmptyText));
  }
  return !null.empty() && null != empty && count_nulls(null) <= count_nulls(empty) &&
         shows_arguments(null) >= shows_arguments(empty);
}

TemplateTraits find_traits(const Unit& unit, std::string_view source, const SpecialTokens& tokens) {
  TemplateTraits traits;
  const detail::ContentUse content = detail::find_content_use(unit.program);
  const Probe probe(unit, tokens);
  if (content.walks_parts) {
    // What is walked may be the content of other roles, or a branch that chats do not take.
    const bool shows_text = probe.shows_content(kTextContent);
    traits.content_parts = !shows_text || probe.shows_content(kPartsContent);
    traits.text_content = shows_text || content.tests_string;
  }
  traits.mentions_developer = source.find("developer") != std::string_view::npos;
  traits.uses_tools = names_variable(unit, "tools");
  traits.null_tools = content.tools_none && !content.tools_defined;
  traits.object_arguments =
      probe.takes_arguments(kObjectArguments) || !probe.takes_arguments(kTextArguments);
  traits.null_content =
      probe.takes_null_content(traits.object_arguments ? kObjectArguments : kTextArguments);
  return traits;
}

Result<Unit> compile_unit(std::string_view text, const SpecialTokens& tokens, Arena& arena) {
  if (text.size() > kSourceBytesMax) {
    return Error(Code::kTooLarge, "a chat template larger than 4 MiB");
  }
  try {
    const std::string normalized = detail::normalize_source(text);
    const std::string_view source = arena.copy(std::string_view(normalized));
    Unit unit;
    unit.program = detail::parse_template(source, arena);
    unit.names = DictData::make(arena, unit.program.names.size());
    for (size_t i = 0; i < unit.program.names.size(); ++i) {
      unit.names->set(arena, Value::string(unit.program.names[i]),
                      Value::integer(static_cast<int64_t>(i)));
    }
    unit.traits = find_traits(unit, source, tokens);
    return unit;
  } catch (detail::Failure& failure) {
    return Error(failure.code, std::move(failure.message));
  }
}

}  // namespace

struct ChatTemplate::Compiled {
  Arena arena{kProgramBytesMax};
  SpecialTokens special_tokens;
  std::optional<NativeFormat> native;  // then the units are empty
  Unit chat;
  std::optional<Unit> tool_use;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Compiled> compiled)
    : compiled_(std::move(compiled)) {}

ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::compile(std::string source,
                                                            SpecialTokens special_tokens) {
  return compile(ChatTemplateSource{std::move(source), std::nullopt, std::move(special_tokens)});
}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::compile(ChatTemplateSource source) {
  auto compiled = std::make_unique<Compiled>();
  compiled->special_tokens = std::move(source.special_tokens);
  if (source.native) {
    compiled->native = source.native;
    compiled->chat.traits = {.content_parts = false,
                             .text_content = true,
                             .object_arguments = true,
                             .null_content = true,
                             .mentions_developer = true,
                             .uses_tools = true,
                             .marks_data = true};
    return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(compiled)));
  }
  STATOR_TRY(compiled->chat, compile_unit(source.text, compiled->special_tokens, compiled->arena));
  if (source.tool_use_text) {
    STATOR_TRY(compiled->tool_use,
               compile_unit(*source.tool_use_text, compiled->special_tokens, compiled->arena),
               "the tool_use template");
  }
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(compiled)));
}

const TemplateTraits& ChatTemplate::traits() const {
  return compiled_->chat.traits;
}

/// The parts of a request as values, adapted to what `traits` ask for.
struct ChatTemplate::Request {
  Value messages;
  Value tools = Value::missing();  // no tools = undefined
  Value documents = Value::missing();
  Value extra = Value::missing();
};

/// Tools take as long to read as a short conversation, so a template that does not name them is not
/// made to wait for that.
Result<ChatTemplate::Request> ChatTemplate::read_request(const RenderInput& input,
                                                         Arena& arena) const {
  if (input.add_generation_prompt && input.continue_final_message) {
    return Error(Code::kInvalidArgument,
                 "add_generation_prompt and continue_final_message exclude each other");
  }
  Request request;
  STATOR_TRY(request.messages, parse(input.messages_json, "messages", arena));
  const bool reads_tools = compiled_->chat.traits.uses_tools || compiled_->tool_use.has_value();
  if (reads_tools && !input.tools_json.empty()) {
    STATOR_TRY(request.tools, parse(input.tools_json, "tools", arena));
    detail::check_tools(request.tools);
    request.tools = request.tools.truthy() ? request.tools : Value::missing();
  }
  if (!input.documents_json.empty()) {
    STATOR_TRY(request.documents, parse(input.documents_json, "documents", arena));
  }
  if (!input.extra_json.empty()) {
    STATOR_TRY(request.extra, parse_object(input.extra_json, "chat_template_kwargs", arena));
  }
  return request;
}

Result<std::string> ChatTemplate::render(const RenderInput& input) const {
  STATOR_TRY(RenderedPrompt prompt, render_parts(input));
  return std::move(prompt.text);
}

Result<RenderedPrompt> ChatTemplate::render_parts(const RenderInput& input) const {
  Meter meter(input.limits.steps_max, input.cancel);
  bool lacks_schemas = false;
  auto prompt = render_once(input, detail::ToolSchemas::kAsSent, meter, lacks_schemas);
  if (!prompt && lacks_schemas) {
    // The template reads a schema that the client left out. Both attempts share the steps.
    auto with_schemas = render_once(input, detail::ToolSchemas::kAdded, meter, lacks_schemas);
    return with_schemas ? std::move(with_schemas) : std::move(prompt);
  }
  return prompt;
}

Result<RenderedPrompt> ChatTemplate::render_once(const RenderInput& input,
                                                 detail::ToolSchemas schemas, Meter& meter,
                                                 bool& lacks_schemas) const {
  Arena arena(input.limits.memory_bytes_max, &meter);
  try {
    STATOR_TRY(const Request request, read_request(input, arena));
    if (!request.tools.is_missing()) {
      lacks_schemas = detail::adapt_tools(request.tools, schemas, arena);
    }
    RenderInput timed = input;
    if (!request.extra.is_missing()) {
      timed.now = detail::overridden_time(request.extra, input.now);
    }
    const bool use_tools = !request.tools.is_missing() && compiled_->tool_use.has_value();
    const Unit& unit = use_tools ? *compiled_->tool_use : compiled_->chat;
    detail::adapt_messages(request.messages, unit.traits, arena);
    const std::string_view final_text =
        input.continue_final_message ? detail::mark_final_message(request.messages, arena) : "";
    RenderedPrompt prompt;
    if (compiled_->native) {
      prompt = render_native(request, timed, arena);
    } else {
      STATOR_TRY(prompt.text, render_jinja(request, timed, arena, use_tools));
    }
    if (input.continue_final_message) {
      detail::cut_at_mark(prompt, final_text);
    }
    return prompt;
  } catch (detail::Failure& failure) {
    return Error(failure.code, std::move(failure.message));
  }
}

RenderedPrompt ChatTemplate::render_native(const Request& request, const RenderInput& input,
                                           Arena& arena) const {
  const detail::NativeInput native{request.messages, request.tools,
                                   request.extra,    input.add_generation_prompt,
                                   input.now,        arena};
  detail::PromptWriter out(input.limits.output_bytes_max, arena.meter());
  switch (*compiled_->native) {
    case NativeFormat::kDeepseekV32:
      detail::render_deepseek_v32(native, out);
      break;
    case NativeFormat::kDeepseekV4:
      detail::render_deepseek_v4(native, out);
      break;
    case NativeFormat::kHarmony:
      detail::render_harmony(native, out);
  }
  return out.take();
}

Result<std::string> ChatTemplate::render_jinja(const Request& request, const RenderInput& input,
                                               Arena& arena, bool use_tools) const {
  const Unit& unit = use_tools ? *compiled_->tool_use : compiled_->chat;
  Context context(unit, arena);
  for (const auto& [name, text] : compiled_->special_tokens) {
    context.set(name, Value::string(text));
  }
  const bool null_tools = request.tools.is_missing() && unit.traits.null_tools;
  context.set("tools", null_tools ? Value() : request.tools);
  context.set("add_generation_prompt", Value::boolean(input.add_generation_prompt));
  context.set("documents", request.documents);
  if (!request.extra.is_missing()) {
    context.set_members(request.extra, "messages");
  }
  context.set("messages", request.messages);
  return run(unit, context, arena, input);
}

Result<std::string> ChatTemplate::render_context(std::string_view context_json,
                                                 const RenderInput& input) const {
  Meter meter(input.limits.steps_max, input.cancel);
  Arena arena(input.limits.memory_bytes_max, &meter);
  try {
    STATOR_TRY(const Value members, parse_object(context_json, "the context", arena));
    if (compiled_->native) {
      return Error(Code::kInvalidArgument, "a native format has no variables");
    }
    Context context(compiled_->chat, arena);
    context.set_members(members, "");
    return run(compiled_->chat, context, arena, input);
  } catch (detail::Failure& failure) {
    return Error(failure.code, std::move(failure.message));
  }
}

}  // namespace stator::chat_template
