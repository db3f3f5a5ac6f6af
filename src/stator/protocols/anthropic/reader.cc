// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/anthropic/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "stator/api/field_table.h"
#include "stator/api/generate_reader.h"
#include "stator/api/parse_body.h"
#include "stator/protocols/anthropic/cache_control.h"
#include "stator/protocols/anthropic/conversation.h"
#include "stator/protocols/anthropic/tools.h"

namespace stator::protocols::anthropic {
namespace {

using api::Field;
using api::FieldReader;
using api::Path;
using api::Rank;

struct Reader {
  api::GenerateReader common;
  Conversation conversation;
  const ReadOptions& options;
  Reading& reading;
  FieldReader& in;

  uint32_t keep_s = 0;
  bool has_max_tokens = false;
  std::optional<uint32_t> thinking_budget = {};
  std::string response_format = {};  // OpenAI's spelling of output_config.format
};

api::ChatRequest& request_of(Reader& r) {
  return r.reading.request;
}

// ---- shared with OpenAI, and rules of the same kind

template <const char* kName>
void read_shared(Reader& r, const Path& path) {
  api::read_generate_field(r.common, kName, path);
}

// Names as template arguments must have a place of their own.
constexpr char kIgnoreEos[] = "ignore_eos";
constexpr char kMaxTokens[] = "max_tokens";
constexpr char kMinP[] = "min_p";
constexpr char kMinTokens[] = "min_tokens";
constexpr char kModel[] = "model";
constexpr char kNvext[] = "nvext";
constexpr char kRepetitionPenalty[] = "repetition_penalty";
constexpr char kSeed[] = "seed";
constexpr char kStream[] = "stream";
constexpr char kTemperature[] = "temperature";
constexpr char kTopK[] = "top_k";
constexpr char kTopP[] = "top_p";

void read_max_tokens(Reader& r, const Path& path) {
  r.has_max_tokens = r.in.peek() != json::Kind::kNull;
  api::read_generate_field(r.common, kMaxTokens, path);
}

void read_stop_sequences(Reader& r, const Path& path) {
  std::vector<std::string>& stops = r.common.options.stop;
  stops = r.in.strings(path).value_or(std::vector<std::string>());
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty()) {
      r.in.violation(Path(path, i), "must not be empty");
    }
  }
  if (stops.size() > api::kMaxStops) {
    r.in.violation(path, fmt::format("must have at most {} entries", api::kMaxStops));
  }
}

// ---- the conversation

void read_system(Reader& r, const Path& path) {
  r.conversation.read_system(path, r.options.strip_preamble);
}
void read_conversation(Reader& r, const Path& path) {
  r.conversation.read_messages(path);
}
void read_tools_field(Reader& r, const Path& path) {
  r.keep_s = std::max(r.keep_s, read_tools(r.in, path, request_of(r).chat));
}
void read_tool_choice_field(Reader& r, const Path& path) {
  read_tool_choice(r.in, path, request_of(r));
}

// ---- thinking, effort, the shape of the output

void read_thinking(Reader& r, const Path& path) {
  std::string type;
  r.thinking_budget.reset();
  const bool present = r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "type") {
      type = r.in.string(member).value_or("");
    } else if (key == "budget_tokens") {
      r.thinking_budget = r.in.integer<uint32_t>(member, 1, api::kMaxOutputTokens);
    } else {
      r.in.skip();
    }
  });
  if (!present) {
    return;
  }
  if (type != "enabled" && type != "disabled" && type != "adaptive") {
    r.in.violation(Path(path, "type"), "must be one of enabled, disabled, adaptive");
    return;
  }
  if (type == "enabled" && !r.thinking_budget) {
    r.in.violation(Path(path, "budget_tokens"), "is required when thinking is enabled");
  }
  if (type == "disabled") {
    r.thinking_budget.reset();
  }
  request_of(r).chat.thinking_json = fmt::format(R"({{"type":"{}"}})", type);
}

void read_format(Reader& r, const Path& path) {
  std::string type;
  std::optional<std::string_view> schema;
  const bool present = r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "type") {
      type = r.in.string(member).value_or("");
    } else if (key == "schema") {
      schema = r.in.raw_object(member);
    } else {
      r.in.skip();
    }
  });
  if (!present) {
    return;
  }
  if (type != "json_schema") {
    r.in.violation(Path(path, "type"), "must be json_schema");
  } else if (!schema) {
    r.in.violation(Path(path, "schema"), "is required");
  } else {
    r.response_format = fmt::format(
        R"({{"type":"json_schema","json_schema":{{"name":"output","schema":{}}}}})", *schema);
  }
}

void read_output_config(Reader& r, const Path& path) {
  r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "effort") {
      request_of(r).chat.reasoning_effort = r.in.string(member).value_or("");
    } else if (key == "format") {
      read_format(r, member);
    } else {
      r.in.skip();
    }
  });
}

// ---- who

/// Claude Code's user_id ends with the session, or is JSON with a member for it.
std::string session_in(std::string_view user_id) {
  constexpr std::string_view kMark = "_session_";
  if (const size_t at = user_id.rfind(kMark); at != std::string_view::npos) {
    return std::string(user_id.substr(at + kMark.size()));
  }
  if (!user_id.starts_with('{')) {
    return {};
  }
  constexpr uint32_t kDepthMax = 8;
  FieldReader in(user_id, kDepthMax);
  std::string session;
  in.object(Path(""), [&](std::string_view key, const Path& member) {
    if (key == "session_id") {
      session = in.string(member).value_or("");
    } else {
      in.skip();
    }
  });
  return session;
}

void read_metadata(Reader& r, const Path& path) {
  r.in.object(path, [&](std::string_view key, const Path& member) {
    if (key == "user_id") {
      r.common.options.user = r.in.string(member).value_or("");
      r.reading.session = session_in(r.common.options.user);
    } else {
      r.in.skip();
    }
  });
}

void read_keep(Reader& r, const Path& path) {
  r.keep_s = std::max(r.keep_s, read_cache_control(r.in, path));
}

// ---- known, and not built: a client that asks for them expects another answer

void read_server_side(Reader& r, const Path& path) {
  const auto value = r.in.any(path);
  if (value && *value != "[]") {
    r.in.unsupported(path, "is not supported: this server runs no tools");
  }
}

constexpr auto kFields = std::to_array<Field<Reader>>({
    {"cache_control", read_keep},
    {"container", read_server_side},
    {kIgnoreEos, read_shared<kIgnoreEos>},
    {kMaxTokens, read_max_tokens},
    {"mcp_servers", read_server_side},
    {"messages", read_conversation},
    {"metadata", read_metadata},
    {kMinP, read_shared<kMinP>},
    {kMinTokens, read_shared<kMinTokens>},
    {kModel, read_shared<kModel>},
    {kNvext, read_shared<kNvext>},
    {"output_config", read_output_config},
    {"output_format", read_format},
    {kRepetitionPenalty, read_shared<kRepetitionPenalty>},
    {kSeed, read_shared<kSeed>},
    {"stop_sequences", read_stop_sequences},
    {kStream, read_shared<kStream>},
    {"system", read_system},
    {kTemperature, read_shared<kTemperature>},
    {"thinking", read_thinking},
    {"tool_choice", read_tool_choice_field},
    {"tools", read_tools_field},
    {kTopK, read_shared<kTopK>},
    {kTopP, read_shared<kTopP>},
});
static_assert(api::is_sorted_table<Reader>(kFields));

// ---- rules between fields

/// Without effect here, and harmless: the client sees their names in a header.
void name_ignored(Reader& r) {
  std::vector<std::string>& ignored = r.common.options.ignored_fields;
  if (r.conversation.has_citations()) {
    ignored.emplace_back("citations");
  }
}

void finish(Reader& r) {
  api::GenerateOptions& options = r.common.options;
  api::ChatRequest& request = request_of(r);
  if (!r.response_format.empty()) {
    r.common.structured_fields.emplace_back("response_format", r.response_format);
    request.response_format_json = r.response_format;
  }
  api::finish_generate_options(r.common);
  if (!r.has_max_tokens && !r.options.only_counts) {
    r.in.violation(Path("max_tokens"), "is required", Rank::kRequired);
  }
  if (!r.conversation.has_messages()) {
    r.in.violation(Path("messages"), "is required and must not be empty", Rank::kRequired);
  }
  check_tool_choice(r.in, request);
  r.conversation.write_to(request.chat, r.common.limits.json_depth_max);
  if (r.thinking_budget && !options.nvext.max_thinking_tokens) {
    options.nvext.max_thinking_tokens = r.thinking_budget;
  }
  if (request.chat.thinking_json != R"({"type":"disabled"})") {
    // Clients hand earlier thinking back because the model is to see it.
    request.chat.chat_template_kwargs_json = R"({"truncate_history_thinking":false})";
  }
  if (options.nvext.use_raw_prompt) {
    r.in.unsupported(Path("nvext.use_raw_prompt"), "is not supported: use /v1/completions");
  }
  if (const uint32_t keep_s = std::max(r.keep_s, r.conversation.keep_s()); keep_s > 0) {
    options.nvext.annotations.push_back(fmt::format("keep:{}", keep_s));
  }
  name_ignored(r);
}

api::ApiStatus read(FieldReader& in, Reading& reading, const ReadOptions& options) {
  api::GenerateOptions& common = reading.request.options;
  Reader r{.common = {.in = in, .limits = options.limits, .options = common},
           .conversation = Conversation(in),
           .options = options,
           .reading = reading,
           .in = in};
  in.object(Path(""), [&](std::string_view key, const Path& path) {
    if (!api::read_known<Reader>(kFields, key, r, path)) {
      api::ignore_field(in, common.ignored_fields, key);
    }
  });
  STATOR_CHECK(in.finish());
  finish(r);
  STATOR_CHECK(in.verdict());
  return api::check_token_ids(common, options.limits.vocab_size);
}

}  // namespace

api::ApiResult<Reading> read_messages(std::string& body, const ReadOptions& options) {
  return api::parse_body<Reading>(body, options.limits,
                                  [&](FieldReader& in, Reading& reading, api::JsonRepair repair) {
                                    reading.request.options.repair = repair;
                                    return read(in, reading, options);
                                  });
}

std::vector<std::string_view> message_fields() {
  std::vector<std::string_view> names;
  api::append_names<Reader>(kFields, names);
  return names;
}

}  // namespace stator::protocols::anthropic
