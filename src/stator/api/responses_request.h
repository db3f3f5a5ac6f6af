// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/api/api_error.h"
#include "stator/api/request.h"
#include "stator/api/request_parser.h"

namespace stator::api {

// OpenAI's Responses API: its bodies become the same request as a chat's.
//
//   STATOR_TRY(ResponsesRequest request, parse_responses_request(body, limits, {}));
//   Conversation conversation(request.chat.chat, limits.json_depth_max);
//   conversation.add_instructions(request.instructions);
//   STATOR_CHECK(conversation.add_items(earlier_items, lookup));   // of previous_response_id
//   STATOR_CHECK(conversation.add_items(request.input_json, lookup));
//   STATOR_CHECK(conversation.finish());
//
// Pure and thread-safe. Errors are those of request_parser.h; `param` names the item and part.

inline constexpr size_t kMaxMetadataEntries = 16;
inline constexpr size_t kMaxMetadataKeyChars = 64;
inline constexpr size_t kMaxMetadataValueChars = 512;
inline constexpr size_t kMaxResponsesNameBytes = 512;  ///< prompt_cache_key, safety_identifier

/// A tool that the model sees otherwise than the client: under one name instead of two where it
/// stands in a namespace, as a function with one string where it is a custom one.
struct NamespacedTool {
  std::string flat;   ///< "<space>__<name>"; without a space the name
  std::string space;  ///< empty: none
  std::string name;
  bool freeform = false;  ///< see freeform_input.h
};

struct ResponsesRequest {
  /// Everything but the conversation, which Conversation adds.
  ChatRequest chat;
  std::string input_json;    ///< as sent: a JSON string or an array of items; empty = absent
  std::string instructions;  ///< empty = none
  std::string previous_response_id;
  bool store = true;
  bool background = false;
  bool summarizes_reasoning = false;  ///< reasoning.summary was asked for
  bool encrypts_reasoning = false;    ///< include has reasoning.encrypted_content
  std::vector<NamespacedTool> namespaced_tools;
  /// What the response object repeats of the request: JSON members without the braces.
  std::string echo_json;
};

struct ResponsesPolicy {
  /// Tools that a provider would run (web_search, …) are left out instead of refused.
  bool ignore_builtin_tools = false;
};

ApiResult<ResponsesRequest> parse_responses_request(std::string& body, const ParseLimits& limits,
                                                    ResponsesPolicy policy);

/// Turns items into the messages of a chat: reasoning and function calls become members of the
/// assistant's message they belong to.
class Conversation {
 public:
  /// The item of that id as JSON, for item_reference; nothing if nobody has it.
  using Lookup = std::function<std::optional<std::string>(std::string_view id)>;

  /// Replaces the messages of `chat`, which outlives this.
  Conversation(ChatInput& chat, uint32_t depth_max, std::vector<NamespacedTool> tools = {});

  void add_instructions(std::string_view text);
  /// A JSON string (a user's message) or an array of items, which must be valid JSON; empty: none.
  ApiStatus add_items(std::string_view items_json, const Lookup& lookup);
  /// kInvalidArgument if there is no message.
  ApiStatus finish();

 private:
  struct Item;
  friend struct ItemReader;

  void add_message(std::string_view role, Role kind, std::string_view content_json);
  void add_assistant_content(std::string_view content_json);
  void add_reasoning(std::string_view text_body);
  void add_call(const Item& item, std::string_view call_id_json, std::string_view arguments_json);
  void add_output(std::string_view call_id_json, std::string_view content_json);
  void flush();
  std::string& begin_message(Role kind);

  ChatInput& chat_;
  const uint32_t depth_max_;
  const std::vector<NamespacedTool> tools_;
  // The assistant's message being put together: JSON, empty = absent.
  std::string content_;
  std::string reasoning_;                 // escaped, without quotes
  std::string calls_;                     // objects with commas between
  std::vector<std::string> media_paths_;  // of all media written, in order
};

/// The opaque text that carries reasoning, or a compacted conversation, to the client and back when
/// nothing is stored, and what is in it; nothing if it is not one of ours. It is encoded, not
/// encrypted: the client may see the reasoning anyway.
std::string encode_reasoning(std::string_view text);
std::optional<std::string> decode_reasoning(std::string_view content);

/// An item's id: "<prefix>_<32 hex digits of the response><4 hex digits>", so that a reference to
/// it names its response.
std::string make_item_id(std::string_view prefix, std::string_view response_id, uint32_t index);
/// "resp_…" of such an id; empty if it is none of ours.
std::string response_of_item(std::string_view item_id);
/// Numbers of input items begin here, those of output items at 0.
inline constexpr uint32_t kFirstInputItem = 0x8000;

/// The items of `input_json` as GET …/input_items lists them: each with id, type and, for messages,
/// status and content parts. One JSON text per item.
std::vector<std::string> list_input_items(std::string_view input_json,
                                          std::string_view response_id);

/// The root keys of a Responses body that no other body of this module has; sorted.
std::vector<std::string_view> responses_fields();

}  // namespace stator::api
