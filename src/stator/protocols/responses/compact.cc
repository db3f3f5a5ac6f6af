// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "stator/api/responses_encoder.h"
#include "stator/api/responses_request.h"
#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/protocols/output.h"
#include "stator/protocols/responses/responses.h"

namespace stator::protocols::responses {
namespace {

/// What the model is asked after the conversation.
constexpr std::string_view kSummarize =
    "Summarize our conversation so far, so that it can be continued from your summary and my "
    "messages alone. Keep what was decided and why, facts, names, numbers, paths and code that "
    "matter, results of tools, what was done, and what is left to do. Write only the summary.";

struct CompactEcho final : Echo {
  std::vector<std::string> inputs;  ///< items of the conversation, oldest first
};

api::ApiStatus check_request(const api::ResponsesRequest& request) {
  if (request.chat.options.stream) {
    return api::validation_error("stream", "stream is not available here: the answer is one body");
  }
  if (request.background) {
    return api::validation_error("background", "background is not available here");
  }
  return {};
}

api::ApiResult<Reading> read(std::string& body, const ReadOptions& options) {
  STATOR_TRY(api::ResponsesRequest request,
             api::parse_responses_request(body, options.limits, {.ignore_builtin_tools = true}));
  STATOR_CHECK(check_request(request));
  auto echo = std::make_shared<CompactEcho>();
  STATOR_TRY(echo->inputs, add_conversation(request, options, kSummarize));
  echo->inputs.push_back(std::move(request.input_json));
  api::ChatRequest& chat = request.chat;
  chat.tool_choice = {.kind = api::ToolChoice::Kind::kNone, .name = {}};
  chat.options.structured_output.reset();
  chat.response_format_json.clear();
  return Reading{.request = std::move(chat), .session = {}, .echo = std::move(echo)};
}

/// The client's own messages stay; what is around them is in the summary.
void append_user_messages(json::Writer& json, const CompactEcho& echo, std::string_view id) {
  uint32_t index = 0;
  for (const std::string& input : echo.inputs) {
    for (const std::string& text : api::list_input_items(input, id)) {
      auto item = json::parse(text);
      if (!item || item->text_at({"type"}) != "message" || item->text_at({"role"}) != "user") {
        continue;
      }
      (*item)["id"] = api::make_item_id("msg", id, index++);
      json.raw(json::to_text(*item));
    }
  }
  json.begin_object().key("id").value(api::make_item_id("cmp", id, index));
}

std::string summary_of(const Output& output) {
  std::string text;
  std::string reasoning;
  for (const OutputItem& item : output.items()) {
    text += item.kind == OutputItem::Kind::kText ? item.text : "";
    reasoning += item.kind == OutputItem::Kind::kReasoning ? item.text : "";
  }
  return text.empty() ? reasoning : text;
}

void append_body(std::string& out, const AnswerHead& head, const Output& output,
                 const Ending& ending) {
  json::Writer json(out);
  json.begin_object().key("id").value(head.id).key("object").value("response.compaction");
  json.key("created_at").value(head.created_s).key("output").begin_array();
  append_user_messages(json, static_cast<const CompactEcho&>(*head.echo), head.id);
  json.key("type").value("compaction");
  json.key("encrypted_content").value(api::encode_reasoning(summary_of(output))).end_object();
  json.end_array().key("usage");
  api::write_responses_usage(json, ending.usage);
  if (!ending.nvext_json.empty()) {
    json.key("nvext").raw(ending.nvext_json);
  }
  json.end_object();
}

}  // namespace

constinit const Protocol kCompact{.endpoint = "responses",
                                  .id_prefix = "resp_",
                                  .request_id_header = {},
                                  .read = read,
                                  .append_body = append_body};

}  // namespace stator::protocols::responses
