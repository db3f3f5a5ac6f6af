// SPDX-License-Identifier: Apache-2.0
#include "stator/api/responses_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "stator/api/detail/responses_reader.h"
#include "stator/api/field_table.h"
#include "stator/api/parse_body.h"
#include "stator/json/cursor.h"
#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/text/hex.h"

namespace stator::api {
namespace {

using Reader = ResponsesReader;

// ---- what is honoured

void read_input(Reader& r, const Path& path) {
  r.request.input_json.clear();
  const json::Kind kind = r.in.peek();
  if (kind != json::Kind::kString && kind != json::Kind::kArray && kind != json::Kind::kNull) {
    r.in.type_error(path, "a string or an array of items");
    return;
  }
  r.request.input_json = r.in.any(path).value_or("");
}
void read_instructions(Reader& r, const Path& path) {
  r.request.instructions.clear();
  if (r.in.peek() == json::Kind::kArray) {
    r.in.violation(path, "must be a string: put items into input");
    r.in.skip();
    return;
  }
  r.request.instructions = r.in.string(path).value_or("");
}
void read_previous(Reader& r, const Path& path) {
  r.request.previous_response_id = r.in.string(path, Blank::kRefused).value_or("");
}
void read_store(Reader& r, const Path& path) {
  r.request.store = r.in.boolean(path).value_or(true);
}
void read_background(Reader& r, const Path& path) {
  r.request.background = r.in.boolean(path).value_or(false);
}
void read_max_output_tokens(Reader& r, const Path& path) {
  r.max_output_tokens = r.in.integer<uint32_t>(path, 1, kMaxOutputTokens);
}
void read_max_tool_calls(Reader& r, const Path& path) {
  // Bounds calls of tools that the server runs: there are none, so it holds.
  r.max_tool_calls = r.in.integer<uint32_t>(path, 1, UINT32_MAX);
}
void read_top_logprobs(Reader& r, const Path& path) {
  r.top_logprobs = r.in.integer<uint32_t>(path, 0, kMaxTopLogprobs);
}
void read_parallel_tool_calls(Reader& r, const Path& path) {
  r.request.chat.parallel_tool_calls = r.in.boolean(path).value_or(true);
}
void read_tool_choice(Reader& r, const Path& path) {
  r.tool_choice = r.in.any(path).value_or(std::string_view());
}
void read_name(Reader& r, const Path& path, std::string& into) {
  into = r.in.string(path).value_or("");
  if (into.size() > kMaxResponsesNameBytes) {
    r.in.violation(path, fmt::format("must have at most {} bytes", kMaxResponsesNameBytes));
  }
}
void read_prompt_cache_key(Reader& r, const Path& path) {
  read_name(r, path, r.prompt_cache_key);
}
void read_safety_identifier(Reader& r, const Path& path) {
  read_name(r, path, r.safety_identifier);
}

void read_include(Reader& r, const Path& path) {
  r.request.encrypts_reasoning = false;
  r.wants_logprobs = false;
  static constexpr auto kToolOutputs = std::to_array<std::string_view>(
      {"file_search_call.results", "web_search_call.results", "web_search_call.action.sources",
       "message.input_image.image_url", "computer_call_output.output.image_url",
       "code_interpreter_call.outputs"});
  const auto names = r.in.strings(path);
  for (size_t i = 0; names && i < names->size(); ++i) {
    const std::string& name = (*names)[i];
    if (name == "reasoning.encrypted_content") {
      r.request.encrypts_reasoning = true;
    } else if (name == "message.output_text.logprobs") {
      r.wants_logprobs = true;
    } else if (std::ranges::find(kToolOutputs, name) == kToolOutputs.end()) {
      r.in.violation(Path(path, i),
                     fmt::format("is \"{}\", which is not known", name.substr(0, 64)));
    }
  }
}

void read_reasoning(Reader& r, const Path& path) {
  std::string& effort = r.request.chat.chat.reasoning_effort;
  effort.clear();
  r.reasoning_summary.clear();
  r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "effort") {
      effort = r.in.string(member).value_or("");
    } else if (key == "summary" || key == "generate_summary") {
      const auto summary = r.in.string(member);
      if (summary && *summary != "auto" && *summary != "concise" && *summary != "detailed") {
        r.in.violation(member, "must be one of auto, concise, detailed");
      }
      r.reasoning_summary = summary.value_or("");
    } else {
      if (r.in.any(member)) {
        r.ignore(fmt::format("reasoning.{}", key.substr(0, 40)));
      }
    }
  });
}

void read_format(Reader& r, const Path& path) {
  r.response_format.clear();
  std::string type;
  std::string schema_members;
  r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "type") {
      type = r.in.string(member).value_or("");
    } else if (key == "name" || key == "schema" || key == "strict" || key == "description") {
      if (const auto raw = r.in.any(member)) {
        schema_members += fmt::format("{}\"{}\":{}", schema_members.empty() ? "" : ",", key, *raw);
      }
    } else {
      r.in.skip();
    }
  });
  if (type == "json_schema") {
    r.response_format = R"({"type":"json_schema","json_schema":{)" + schema_members + "}}";
  } else if (type == "json_object") {
    r.response_format = R"({"type":"json_object"})";
  } else if (type == "grammar" || type == "python") {
    r.in.unsupported(Path(path, "type"), fmt::format("is \"{}\": use guided_grammar", type));
  } else if (type != "text" && !type.empty()) {
    r.in.violation(Path(path, "type"), "must be one of text, json_object, json_schema");
  }
}

void read_text(Reader& r, const Path& path) {
  r.verbosity.clear();
  r.text = {};
  bool has_format = false;
  const size_t begin = r.in.mark();
  const bool present = r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "format") {
      has_format = r.in.peek() == json::Kind::kObject;
      read_format(r, member);
    } else if (key == "verbosity") {
      r.verbosity = r.in.string(member).value_or("");
    } else if (r.in.any(member)) {
      r.ignore(fmt::format("text.{}", key.substr(0, 40)));
    }
  });
  if (present && has_format) {
    r.text = r.in.since(begin);
  }
  if (!r.verbosity.empty()) {
    r.ignore("text.verbosity");
  }
}

void read_metadata(Reader& r, const Path& path) {
  r.metadata = {};
  size_t entries = 0;
  const size_t begin = r.in.mark();
  const bool present = r.in.object(path, [&](std::string_view key, const Path& member) {
    ++entries;
    if (key.size() > 4 * kMaxMetadataKeyChars) {
      r.in.violation(
          member, fmt::format("must have at most {} characters in its name", kMaxMetadataKeyChars));
    }
    const auto value = r.in.string(member);
    if (value && value->size() > 4 * kMaxMetadataValueChars) {
      r.in.violation(member,
                     fmt::format("must have at most {} characters", kMaxMetadataValueChars));
    }
  });
  if (entries > kMaxMetadataEntries) {
    r.in.violation(path, fmt::format("must have at most {} entries", kMaxMetadataEntries));
  }
  if (present) {
    r.metadata = r.in.since(begin);
  }
}

void read_service_tier(Reader& r, const Path& path) {
  static constexpr auto kTiers = std::to_array<std::string_view>(
      {"auto", "default", "flex", "scale", "priority", "fast", "standard_only"});
  r.service_tier = r.in.string(path).value_or("");
  if (!r.service_tier.empty() && std::ranges::find(kTiers, r.service_tier) == kTiers.end()) {
    r.in.violation(path, "must be one of auto, default, flex, scale, priority, fast");
  } else if (!r.service_tier.empty() && r.service_tier != "auto" && r.service_tier != "default") {
    r.ignore("service_tier");  // the answer says "default"
  }
}

void read_truncation(Reader& r, const Path& path) {
  const auto word = r.in.string(path);
  if (word && *word != "auto" && *word != "disabled") {
    r.in.violation(path, "must be auto or disabled");
  } else if (word && *word == "auto") {
    r.ignore("truncation");  // a prompt that is too long is refused; the answer says "disabled"
  }
}

void read_stream_options(Reader& r, const Path& path) {
  r.common.stream_options_seen = r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "include_obfuscation") {
      if (r.in.boolean(member) == true) {
        r.ignore("stream_options.include_obfuscation");
      }
    } else {
      r.in.skip();  // include_usage: usage is always there
    }
  });
}

// ---- what is refused, or changes nothing

void refuse_any(Reader& r, const Path& path, std::string_view text) {
  if (const auto value = r.in.any(path); value && *value != "[]" && *value != "{}") {
    r.in.unsupported(path, text);
  }
}
void read_conversation(Reader& r, const Path& path) {
  refuse_any(r, path, "is not supported: use previous_response_id");
}
void read_prompt(Reader& r, const Path& path) {
  refuse_any(r, path, "is not supported: send instructions and input");
}
void read_context_management(Reader& r, const Path& path) {
  refuse_any(r, path, "is not supported: ask POST /v1/responses/compact");
}
void read_moderation(Reader& r, const Path& path) {
  refuse_any(r, path, "is not supported: nothing is moderated here");
}
void read_choices(Reader& r, const Path& path) {
  r.in.integer<uint32_t>(path, 1, 1);
}

constexpr auto kFields = std::to_array<Field<Reader>>({
    {"background", read_background},
    {"context_management", read_context_management},
    {"conversation", read_conversation},
    {"include", read_include},
    {"input", read_input},
    {"instructions", read_instructions},
    {"max_output_tokens", read_max_output_tokens},
    {"max_tool_calls", read_max_tool_calls},
    {"metadata", read_metadata},
    {"moderation", read_moderation},
    {"n", read_choices},
    {"parallel_tool_calls", read_parallel_tool_calls},
    {"previous_response_id", read_previous},
    {"prompt", read_prompt},
    {"prompt_cache_key", read_prompt_cache_key},
    {"reasoning", read_reasoning},
    {"safety_identifier", read_safety_identifier},
    {"service_tier", read_service_tier},
    {"store", read_store},
    {"stream_options", read_stream_options},
    {"text", read_text},
    {"tool_choice", read_tool_choice},
    {"tools", read_responses_tools},
    {"top_logprobs", read_top_logprobs},
    {"truncation", read_truncation},
});
static_assert(is_sorted_table<Reader>(kFields));

bool read_template_field(Reader& r, std::string_view key, const Path& path) {
  ChatInput& chat = r.request.chat.chat;
  if (key == "chat_template_kwargs" || key == "chat_template_args") {
    chat.chat_template_kwargs_json = r.in.raw_object(path).value_or("");
    return true;
  }
  return false;
}

void finish(Reader& r) {
  ResponsesRequest& request = r.request;
  GenerateOptions& options = request.chat.options;
  if (!r.response_format.empty()) {
    request.chat.response_format_json = r.response_format;
    r.common.structured_fields.emplace_back("response_format", r.response_format);
  }
  finish_generate_options(r.common);
  if (r.max_output_tokens) {
    options.max_tokens = r.max_output_tokens;
  }
  if (r.wants_logprobs || r.top_logprobs.value_or(0) > 0) {
    options.sampling.logprobs = r.top_logprobs.value_or(0);
  }
  request.summarizes_reasoning = !r.reasoning_summary.empty();
  finish_tool_choice(r);
  if (request.background && !request.store) {
    r.in.violation(Path("background"), "needs store: true, since the answer is fetched later");
  }
  if (request.input_json.empty() && request.previous_response_id.empty()) {
    r.in.violation(Path("input"), "is required", Rank::kRequired);
  }
  request.echo_json = make_echo(r);
}

ApiStatus read_request(FieldReader& in, ResponsesRequest& request, const ParseLimits& limits,
                       ResponsesPolicy policy) {
  Reader r{.common = {.in = in, .limits = limits, .options = request.chat.options},
           .request = request,
           .in = in,
           .policy = policy,
           .depth_max = limits.json_depth_max};
  in.object(Path(""), [&](std::string_view key, const Path& path) {
    if (!read_known<Reader>(kFields, key, r, path) && !read_template_field(r, key, path) &&
        !read_generate_field(r.common, key, path)) {
      ignore_field(in, request.chat.options.ignored_fields, key);
    }
  });
  STATOR_CHECK(in.finish());
  finish(r);
  STATOR_CHECK(in.verdict());
  return check_token_ids(request.chat.options, limits.vocab_size);
}

void echo_text(json::Writer& json, std::string_view key, std::string_view text) {
  json.key(key);
  if (text.empty()) {
    json.null();
  } else {
    json.value(text);
  }
}

template <typename T>
void echo_number(json::Writer& json, std::string_view key, const std::optional<T>& value) {
  json.key(key);
  if (value) {
    json.value(*value);
  } else {
    json.null();
  }
}

constexpr std::string_view kReasoningMark = "stator1:";

}  // namespace

std::optional<std::string_view> raw_string(FieldReader& in, const Path& path) {
  if (in.peek() == json::Kind::kNull) {
    in.skip();
    return std::nullopt;
  }
  const size_t begin = in.mark();
  return in.has_string(path) ? std::optional(in.since(begin)) : std::nullopt;
}

std::string decode_raw(std::string_view json_string) {
  if (json_string.size() < 2) {
    return {};
  }
  std::string out;
  json::decode_string(json_string.substr(1, json_string.size() - 2), out);
  return out;
}

bool is_object_or_blank(std::string_view text, uint32_t depth_max) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return true;
  }
  json::Cursor json(text, depth_max);
  return json.peek() == json::Kind::kObject && json.skip() && json.finish();
}

std::string make_echo(const ResponsesReader& r) {
  const ResponsesRequest& request = r.request;
  const GenerateOptions& options = request.chat.options;
  std::string out;
  json::Writer json(out);
  json.begin_object();
  json.key("background").value(request.background);
  echo_text(json, "instructions", request.instructions);
  echo_number(json, "max_output_tokens", r.max_output_tokens);
  echo_number(json, "max_tool_calls", r.max_tool_calls);
  json.key("metadata").raw(r.metadata.empty() ? "{}" : r.metadata);
  json.key("parallel_tool_calls").value(request.chat.parallel_tool_calls);
  echo_text(json, "previous_response_id", request.previous_response_id);
  echo_text(json, "prompt_cache_key", r.prompt_cache_key);
  json.key("reasoning").begin_object();
  echo_text(json, "effort", request.chat.chat.reasoning_effort);
  echo_text(json, "summary", r.reasoning_summary);
  json.end_object();
  echo_text(json, "safety_identifier", r.safety_identifier);
  json.key("service_tier").value("default");
  json.key("store").value(request.store);
  json.key("temperature").value(options.sampling.temperature.value_or(1.0F));
  json.key("text");
  if (r.text.empty()) {
    json.begin_object().key("format").raw(R"({"type":"text"})");
    if (!r.verbosity.empty()) {
      json.key("verbosity").value(r.verbosity);
    }
    json.end_object();
  } else {
    json.raw(r.text);
  }
  json.key("tool_choice").raw(r.tool_choice.empty() ? R"("auto")" : r.tool_choice);
  json.key("tools").raw(r.tools.empty() ? "[]" : r.tools);
  json.key("top_logprobs").value(r.top_logprobs.value_or(0));
  json.key("top_p").value(options.sampling.top_p.value_or(1.0F));
  json.key("truncation").value("disabled");
  echo_text(json, "user", options.user);
  json.end_object();
  return out.substr(1, out.size() - 2);
}

ApiResult<ResponsesRequest> parse_responses_request(std::string& body, const ParseLimits& limits,
                                                    ResponsesPolicy policy) {
  return parse_body<ResponsesRequest>(
      body, limits, [&](FieldReader& in, ResponsesRequest& request, JsonRepair repair) {
        request.chat.options.repair = repair;
        return read_request(in, request, limits, policy);
      });
}

std::string encode_reasoning(std::string_view text) {
  std::string out(kReasoningMark);
  out.reserve(out.size() + 2 * text.size());
  constexpr std::string_view kDigits = "0123456789abcdef";
  for (const char c : text) {
    out += kDigits[static_cast<uint8_t>(c) >> 4U];
    out += kDigits[static_cast<uint8_t>(c) & 15U];
  }
  return out;
}

std::optional<std::string> decode_reasoning(std::string_view content) {
  if (!content.starts_with(kReasoningMark) || content.size() % 2 != kReasoningMark.size() % 2) {
    return std::nullopt;
  }
  content.remove_prefix(kReasoningMark.size());
  std::string out;
  for (size_t i = 0; i < content.size(); i += 2) {
    const uint32_t high = text::hex_value(content[i]);
    const uint32_t low = text::hex_value(content[i + 1]);
    if (high == text::kNoHexDigit || low == text::kNoHexDigit) {
      return std::nullopt;
    }
    out += static_cast<char>(high << 4U | low);
  }
  return out;
}

std::string make_item_id(std::string_view prefix, std::string_view response_id, uint32_t index) {
  const size_t at = response_id.find('_');
  return fmt::format("{}_{}{:04x}", prefix,
                     at == std::string_view::npos ? response_id : response_id.substr(at + 1),
                     index);
}

std::string response_of_item(std::string_view item_id) {
  constexpr size_t kResponseDigits = 32;
  const size_t at = item_id.find('_');
  if (at == std::string_view::npos || item_id.size() < at + 1 + kResponseDigits + 4) {
    return {};
  }
  return fmt::format("resp_{}", item_id.substr(at + 1, kResponseDigits));
}

namespace {

std::string_view prefix_of(std::string_view type) {
  return type == "message"                ? "msg"
         : type == "function_call"        ? "fc"
         : type == "function_call_output" ? "fco"
         : type == "custom_tool_call"     ? "ctc"
         : type == "compaction"           ? "cmp"
         : type == "reasoning"            ? "rs"
                                          : "item";
}

/// As the API lists it: content in parts, an id, a status.
std::string normalize_item(json::Value item, std::string_view response_id, uint32_t index) {
  if (item.find("type") == nullptr && item.find("role") != nullptr) {
    item["type"] = "message";
  }
  const std::string type(item.text_at({"type"}));
  if (item.text_at({"id"}).empty()) {
    item["id"] = make_item_id(prefix_of(type), response_id, index);
  }
  if (item.text_at({"status"}).empty() && type != "reasoning" && type != "item_reference") {
    item["status"] = "completed";
  }
  if (const json::Value* content = item.find("content");
      type == "message" && content != nullptr && content->is_string()) {
    const bool from_model = item.text_at({"role"}) == "assistant";
    json::Value part = json::Value::object();
    part["type"] = from_model ? "output_text" : "input_text";
    part["text"] = std::string(content->text());
    if (from_model) {
      part["annotations"] = json::Value::array();
    }
    item["content"] = json::Value::array({std::move(part)});
  }
  return json::to_text(item);
}

}  // namespace

std::vector<std::string> list_input_items(std::string_view input_json,
                                          std::string_view response_id) {
  std::vector<std::string> out;
  auto input = json::parse(input_json);
  if (!input) {
    return out;
  }
  if (input->is_string()) {
    json::Value message = json::Value::object();
    message["role"] = "user";
    message["content"] = std::move(*input);
    input = json::Value::array({std::move(message)});
  }
  uint32_t index = kFirstInputItem;
  for (const json::Value& item : input->elements()) {
    out.push_back(normalize_item(item, response_id, index++));
  }
  return out;
}

std::vector<std::string_view> responses_fields() {
  std::vector<std::string_view> names;
  append_names<ResponsesReader>(kFields, names);
  return names;
}

}  // namespace stator::api
