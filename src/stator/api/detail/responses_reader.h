// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "stator/api/field_reader.h"
#include "stator/api/generate_reader.h"
#include "stator/api/responses_request.h"

namespace stator::api {

/// Reading state of a Responses body. Tools and tool_choice relate: the latter is looked at last.
struct ResponsesReader {
  GenerateReader common;
  ResponsesRequest& request;
  FieldReader& in;
  const ResponsesPolicy policy;
  uint32_t depth_max;

  std::string_view tools = {};        ///< as sent; empty = none
  std::string_view tool_choice = {};  ///< the same
  std::string_view text = {};
  std::string_view metadata = {};
  std::string response_format = {};  ///< text.format in a chat's words
  std::string verbosity = {};
  std::string reasoning_summary = {};
  std::string service_tier = {};
  std::string prompt_cache_key = {};
  std::string safety_identifier = {};
  std::optional<uint32_t> max_output_tokens = {};
  std::optional<uint32_t> max_tool_calls = {};
  std::optional<uint32_t> top_logprobs = {};
  bool wants_logprobs = false;

  void ignore(std::string_view name) { request.chat.options.ignored_fields.emplace_back(name); }
};

/// A JSON string as it stands in the text, with its quotes; nothing for null.
std::optional<std::string_view> raw_string(FieldReader& in, const Path& path);
/// What such a text means; empty for an empty one.
std::string decode_raw(std::string_view json_string);
/// Whether a call's arguments are nothing, or a JSON object.
bool is_object_or_blank(std::string_view text, uint32_t depth_max);

/// The value of `tools`: function tools and namespaces of them.
void read_responses_tools(ResponsesReader& reader, const Path& path);
/// After the last field: `tool_choice` against the tools.
void finish_tool_choice(ResponsesReader& reader);
/// The members of the response object that repeat the request.
std::string make_echo(const ResponsesReader& reader);

}  // namespace stator::api
