// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/responses/responses.h"

#include <utility>

#include "stator/json/writer.h"

namespace stator::protocols::responses {

api::ApiResult<std::vector<std::string>> add_conversation(api::ResponsesRequest& request,
                                                          const ReadOptions& options,
                                                          std::string_view closing) {
  api::Conversation conversation(request.chat.chat, options.limits.json_depth_max,
                                 request.namespaced_tools);
  conversation.add_instructions(request.instructions);
  const Memory* const memory = options.memory;
  const auto lookup = [memory](std::string_view id) {
    return memory == nullptr ? std::nullopt : memory->find_item(id);
  };
  std::vector<std::string> before;
  if (!request.previous_response_id.empty()) {
    if (memory == nullptr) {
      return api::unsupported_error(
          "previous_response_id", "previous_response_id is not supported: nothing is stored here");
    }
    STATOR_TRY(before, memory->items_before(request.previous_response_id));
    for (const std::string& items : before) {
      STATOR_CHECK(conversation.add_items(items, lookup));
    }
  }
  STATOR_CHECK(conversation.add_items(request.input_json, lookup));
  if (!closing.empty()) {
    std::string text;
    json::append_string(text, closing);
    STATOR_CHECK(conversation.add_items(text, lookup));
  }
  STATOR_CHECK(conversation.finish());
  return before;
}

namespace {

api::ApiResult<Reading> read(std::string& body, const ReadOptions& options) {
  STATOR_TRY(api::ResponsesRequest request,
             api::parse_responses_request(body, options.limits,
                                          {.ignore_builtin_tools = options.ignore_builtin_tools}));
  STATOR_TRY(const auto before, add_conversation(request, options));
  auto echo = std::make_shared<ResponsesEcho>();
  echo->members_json = std::move(request.echo_json);
  echo->input_json = std::move(request.input_json);
  echo->previous_id = std::move(request.previous_response_id);
  echo->store = request.store;
  echo->background = request.background;
  echo->summarizes_reasoning = request.summarizes_reasoning;
  echo->encrypts_reasoning = request.encrypts_reasoning;
  echo->tools = std::move(request.namespaced_tools);
  return Reading{.request = std::move(request.chat), .session = {}, .echo = std::move(echo)};
}

void append_count(std::string& out, uint64_t tokens) {
  json::Writer(out)
      .begin_object()
      .key("object")
      .value("response.input_tokens")
      .key("input_tokens")
      .value(tokens)
      .end_object();
}

}  // namespace

constinit const Protocol kProtocol{.endpoint = "responses",
                                   .id_prefix = "resp_",
                                   .request_id_header = {},
                                   .read = read,
                                   .append_count = append_count};

}  // namespace stator::protocols::responses
