// SPDX-License-Identifier: Apache-2.0
#include <array>

#include <fmt/format.h>

#include "stator/api/detail/chat_reader.h"
#include "stator/api/detail/field_names.h"
#include "stator/api/detail/tool_choice.h"
#include "stator/api/field_table.h"
#include "stator/api/generate_reader.h"
#include "stator/api/parse_body.h"

namespace stator::api {
namespace {

struct Reader {
  GenerateReader common;
  ChatInputReader input;
  ChatRequest& request;
  FieldReader& in;

  bool logprobs = false;
  std::optional<uint32_t> top_logprobs = {};
  ToolChoiceInput tool_choice = {};
};

void read_logprobs(Reader& r, const Path& path) {
  r.logprobs = r.in.boolean(path).value_or(false);
}
void read_top_logprobs(Reader& r, const Path& path) {
  r.top_logprobs = r.in.integer<uint32_t>(path, 0, kMaxTopLogprobs);
}
void read_include_reasoning(Reader& r, const Path& path) {
  r.request.options.include_reasoning = r.in.boolean(path).value_or(true);
}
void read_parallel_tool_calls(Reader& r, const Path& path) {
  r.request.parallel_tool_calls = r.in.boolean(path).value_or(true);
}
void read_format(Reader& r, const Path& path) {
  r.request.response_format_json = read_structured_field(r.common, "response_format", path);
}
void read_functions(Reader& r, const Path& path) {
  if (r.in.any(path)) {
    r.in.unsupported(path, "is not supported: use tools");
  }
}
void read_function_call(Reader& r, const Path& path) {
  if (r.in.any(path)) {
    r.in.unsupported(path, "is not supported: use tool_choice");
  }
}
void read_modalities(Reader& r, const Path& path) {
  const auto names = r.in.strings(path).value_or(std::vector<std::string>());
  for (const std::string& name : names) {
    if (name == "audio" || name == "image" || name == "video") {
      r.in.unsupported(path, "other than \"text\" are not supported");
    } else if (name != "text") {
      r.in.violation(path, "must be of text, audio, image, video");
    }
  }
}
void read_ignored_object(Reader& r, const Path& path) {
  if (r.in.raw_object(path)) {
    note_without_effect(r.common, path);
  }
}

void read_tool_choice(Reader& r, const Path& path) {
  r.tool_choice = {};
  read_chat_tool_choice(r.in, path, r.tool_choice);
}

constexpr auto kFields = std::to_array<Field<Reader>>({
    {"audio", read_ignored_object},
    {"function_call", read_function_call},
    {"functions", read_functions},
    {"include_reasoning", read_include_reasoning},
    {"logprobs", read_logprobs},
    {"modalities", read_modalities},
    {"parallel_tool_calls", read_parallel_tool_calls},
    {"prediction", read_ignored_object},
    {"response_format", read_format},
    {"tool_choice", read_tool_choice},
    {"top_logprobs", read_top_logprobs},
});
static_assert(is_sorted_table<Reader>(kFields));

void finish(Reader& r) {
  GenerateOptions& options = r.request.options;
  finish_generate_options(r.common);
  if (r.request.chat.messages_json.empty()) {
    r.in.violation(Path("messages"), "is required and must not be empty", Rank::kRequired);
  }
  finish_chat_input(r.input);
  if (r.top_logprobs.value_or(0) > 0 && !r.logprobs) {
    r.in.violation(Path("top_logprobs"), "needs logprobs: true");
  }
  if (r.logprobs) {
    options.sampling.logprobs = r.top_logprobs.value_or(0);
  }
  finish_chat_tool_choice(r.common, r.request, r.tool_choice);
}

ApiStatus read_chat_request(FieldReader& in, ChatRequest& request, const ParseLimits& limits) {
  Reader r{.common = {.in = in, .limits = limits, .options = request.options},
           .input = {.in = in, .chat = request.chat, .depth_max = limits.json_depth_max},
           .request = request,
           .in = in};
  in.object(Path(""), [&](std::string_view key, const Path& path) {
    if (!read_known<Reader>(kFields, key, r, path) && !read_chat_field(r.input, key, path) &&
        !read_generate_field(r.common, key, path)) {
      ignore_field(in, request.options.ignored_fields, key);
    }
  });
  STATOR_CHECK(in.finish());
  finish(r);
  STATOR_CHECK(in.verdict());
  STATOR_CHECK(check_token_ids(request.options, limits.vocab_size));
  if (request.options.nvext.use_raw_prompt) {
    request.chat.last_user_text = last_user_text(request.chat.messages_json, limits.json_depth_max);
  }
  return {};
}

}  // namespace

ApiResult<ChatRequest> parse_chat_request(std::string& body, const ParseLimits& limits) {
  return parse_body<ChatRequest>(body, limits,
                                 [&](FieldReader& in, ChatRequest& request, JsonRepair repair) {
                                   request.options.repair = repair;
                                   return read_chat_request(in, request, limits);
                                 });
}

void append_chat_names(std::vector<std::string_view>& out) {
  append_names<Reader>(kFields, out);
}

}  // namespace stator::api
