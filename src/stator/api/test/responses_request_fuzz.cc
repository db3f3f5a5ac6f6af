// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stator/api/error_body.h"
#include "stator/api/freeform_input.h"
#include "stator/api/request_parser.h"
#include "stator/api/responses_request.h"
#include "stator/core/assert.h"
#include "stator/json/value.h"
#include "stator/text/utf8.h"

namespace {

void check_error(const stator::api::ApiError& error) {
  std::string out;
  const int status = stator::api::append_error_body(out, error);
  STATOR_ASSERT(status == 400 || status == 501, "parse errors are the client's");
  STATOR_ASSERT(stator::text::is_valid_utf8(out), "error bodies are UTF-8");
}

/// Whatever a model writes as the arguments of a custom tool: its text does not depend on where the
/// pieces were cut.
void check_freeform(std::string_view arguments) {
  stator::api::FreeformInput whole;
  stator::api::FreeformInput split;
  std::string text = whole.feed(arguments);
  text += whole.finish();
  std::string pieces;
  for (size_t i = 0; i < arguments.size(); ++i) {
    pieces += split.feed(arguments.substr(i, 1));
  }
  pieces += split.finish();
  STATOR_ASSERT(text == pieces, "a custom tool's text is the same whatever the pieces");
}

}  // namespace

// Any bytes are either a request whose conversation is a chat's, or an error with a valid body.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::api;
  std::string body(reinterpret_cast<const char*>(data), size);
  if (size < 4096) {
    check_freeform(body);
  }
  auto request = parse_responses_request(body, {.guided_decoding = size % 2 == 0}, {});
  if (!request.has_value()) {
    check_error(request.error());
    return 0;
  }
  STATOR_ASSERT(stator::json::parse("{" + request->echo_json + "}").has_value(),
                "the echo is JSON");
  list_input_items(request->input_json, "resp_0");
  Conversation conversation(request->chat.chat, 128, request->namespaced_tools);
  conversation.add_instructions(request->instructions);
  if (auto added = conversation.add_items(request->input_json, {}); !added.has_value()) {
    check_error(added.error());
    return 0;
  }
  if (conversation.finish().has_value()) {
    std::string chat = R"({"model":"m","messages":)" + request->chat.chat.messages_json + "}";
    STATOR_ASSERT(parse_chat_request(chat, {}).has_value(), "items become messages of a chat");
  }
  return 0;
}
