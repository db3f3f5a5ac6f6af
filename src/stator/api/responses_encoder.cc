// SPDX-License-Identifier: Apache-2.0
#include "stator/api/responses_encoder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "stator/api/detail/response_json.h"
#include "stator/json/writer.h"

namespace stator::api {
namespace {

constexpr std::string_view kInProgress = "in_progress";
constexpr std::string_view kCompleted = "completed";
constexpr std::string_view kIncomplete = "incomplete";

void append_number(std::string& out, uint64_t number) {
  fmt::format_to(std::back_inserter(out), "{}", number);
}

std::string quoted(std::string_view text) {
  std::string out;
  json::append_string(out, text);
  return out;
}

}  // namespace

void write_responses_usage(json::Writer& json, const Usage& usage) {
  json.begin_object().key("input_tokens").value(usage.prompt_tokens);
  json.key("input_tokens_details").begin_object();
  json.key("cached_tokens").value(usage.cached_tokens);
  json.key("cache_write_tokens").value(0).end_object();
  json.key("output_tokens").value(usage.completion_tokens);
  json.key("output_tokens_details").begin_object();
  json.key("reasoning_tokens").value(usage.reasoning_tokens).end_object();
  json.key("total_tokens").value(uint64_t{usage.prompt_tokens} + usage.completion_tokens);
  json.end_object();
}

std::string_view describe(ResponseStatus status) {
  switch (status) {
    case ResponseStatus::kQueued:
      return "queued";
    case ResponseStatus::kInProgress:
      return kInProgress;
    case ResponseStatus::kCompleted:
      return kCompleted;
    case ResponseStatus::kIncomplete:
      return kIncomplete;
    case ResponseStatus::kFailed:
      return "failed";
    case ResponseStatus::kCancelled:
      return "cancelled";
  }
  return "";
}

void append_response(std::string& out, const ResponseFrame& frame, const ResponseState& state) {
  out.reserve(out.size() + frame.echo_json.size() + state.output_json.size() + 768);
  json::Writer json(out);
  json.begin_object().key("id").value(frame.id).key("object").value("response");
  json.key("created_at").value(frame.created_s).key("status").value(describe(state.status));
  json.key("completed_at");
  if (state.status == ResponseStatus::kCompleted) {
    json.value(state.completed_s);
  } else {
    json.null();
  }
  json.key("error");
  if (state.status == ResponseStatus::kFailed) {
    json.begin_object().key("code").value(state.error_code);
    json.key("message").value(state.error_message).end_object();
  } else {
    json.null();
  }
  json.key("incomplete_details");
  if (state.status == ResponseStatus::kIncomplete) {
    json.begin_object().key("reason").value(state.incomplete_reason).end_object();
  } else {
    json.null();
  }
  json.key("model").value(frame.model);
  out += R"(,"output":[)";
  out += state.output_json;
  out += "],";
  out += frame.echo_json;
  json.key("usage");
  if (state.usage != nullptr) {
    write_responses_usage(json, *state.usage);
  } else {
    json.null();
  }
  if (!state.nvext_json.empty()) {
    json.key("nvext").raw(state.nvext_json);
  }
  json.end_object();
}

void append_responses_error_event(std::string& out, std::string_view code, std::string_view message,
                                  uint64_t sequence) {
  out += "event: error\ndata: ";
  json::Writer json(out);
  json.begin_object().key("type").value("error").key("code").value(code);
  json.key("message").value(message).key("param").null();
  json.key("sequence_number").value(sequence).end_object();
  out += "\n\n";
}

ResponsesEncoder::ResponsesEncoder(ResponseFrame frame, Options options)
    : frame_(std::move(frame)), options_(std::move(options)) {}

// ---- frames

/// `event: T\ndata: {"type":"T"`; the caller adds members with their commas, then finish_event.
void ResponsesEncoder::start_event(std::string& out, std::string_view type) {
  out.append("event: response.").append(type).append("\ndata: {\"type\":\"response.");
  out.append(type).append("\"");
}

void ResponsesEncoder::finish_event(std::string& out) {
  out += R"(,"sequence_number":)";
  append_number(out, sequence_++);
  out += "}\n\n";
}

void ResponsesEncoder::response_event(std::string& out, std::string_view type,
                                      const ResponseState& state) {
  if (!options_.events) {
    return;
  }
  start_event(out, type);
  out += R"(,"response":)";
  if (response_json_.empty()) {
    append_response(out, frame_, state);
  } else {
    out += response_json_;
  }
  finish_event(out);
}

void ResponsesEncoder::item_event(std::string& out, std::string_view type, std::string_view item) {
  if (!options_.events) {
    return;
  }
  start_event(out, type);
  out += R"(,"output_index":)";
  append_number(out, output_index_);
  out.append(R"(,"item":)").append(item);
  finish_event(out);
}

void ResponsesEncoder::part_event(std::string& out, std::string_view type, std::string_view part) {
  if (!options_.events) {
    return;
  }
  start_event(out, type);
  out.append(place_).append(R"(,"part":)").append(part);
  finish_event(out);
}

/// The event that has the whole text of the open item.
void ResponsesEncoder::done_event(std::string& out, std::string_view type,
                                  std::string_view member) {
  if (!options_.events) {
    return;
  }
  start_event(out, type);
  out.append(place_).append(",\"").append(member).append("\":\"").append(text_).append("\"");
  if (item_ == Item::kMessage && !refusal_) {
    out.append(R"(,"logprobs":[)").append(logprobs_).append("]");
  } else if (item_ == Item::kCall && !freeform_) {
    out.append(R"(,"name":)").append(quoted(call_name_));
  }
  finish_event(out);
}

// ---- items

void ResponsesEncoder::open(std::string& out, Item kind, std::string_view prefix) {
  if (item_ != Item::kNone) {
    close(out, kCompleted);
  }
  item_ = kind;
  item_id_ = make_item_id(prefix, frame_.id, output_index_);
  place_ = fmt::format(R"(,"item_id":"{}","output_index":{})", item_id_, output_index_);
  text_.clear();
  logprobs_.clear();
  plain_.clear();
}

void ResponsesEncoder::add_item(std::string& out, std::string_view item) {
  item_event(out, "output_item.done", item);
  output_ += output_.empty() ? "" : ",";
  output_ += item;
  ++output_index_;
  item_ = Item::kNone;
}

void ResponsesEncoder::open_message(std::string& out, bool refusal) {
  open(out, Item::kMessage, "msg");
  refusal_ = refusal;
  place_ += R"(,"content_index":0)";
  if (!options_.events) {
    return;
  }
  item_event(
      out, "output_item.added",
      fmt::format(R"({{"id":"{}","type":"message","status":"in_progress","role":"assistant",)"
                  R"("content":[]}})",
                  item_id_));
  part_event(out, "content_part.added",
             refusal ? R"({"type":"refusal","refusal":""})"
                     : R"({"type":"output_text","text":"","annotations":[],"logprobs":[]})");
  delta_head_.clear();
  start_event(delta_head_, refusal ? "refusal.delta" : "output_text.delta");
  delta_head_.append(place_).append(R"(,"delta":")");
}

void ResponsesEncoder::append_delta(std::string& out, std::string_view delta,
                                    std::string_view logprobs) {
  const size_t before = text_.size();
  json::append_escaped(text_, delta);
  if (!options_.events) {
    return;
  }
  out.append(delta_head_).append(text_, before).append("\"");
  if (item_ == Item::kMessage && !refusal_) {
    out.append(R"(,"logprobs":[)").append(logprobs).append("]");
  }
  finish_event(out);
}

void ResponsesEncoder::append_logprobs(std::string& into, const Logprobs& logprobs) const {
  std::string list;
  json::Writer json(list);
  write_chat_logprobs(json, logprobs, options_.spelling);
  // {"content":[ … ],"refusal":null}
  constexpr std::string_view kHead = R"({"content":[)";
  constexpr std::string_view kTail = R"(],"refusal":null})";
  into.append(list, kHead.size(), list.size() - kHead.size() - kTail.size());
}

void ResponsesEncoder::begin(std::string& out) {
  if (options_.queued) {
    response_event(out, "created", {.status = ResponseStatus::kQueued});
    response_event(out, "queued", {.status = ResponseStatus::kQueued});
  } else {
    response_event(out, "created", {});
  }
  response_event(out, "in_progress", {});
}

void ResponsesEncoder::text(std::string& out, std::string_view delta, const Logprobs& logprobs) {
  const bool has_logprobs = logprobs && !logprobs->empty();
  if (delta.empty() && !has_logprobs) {
    return;
  }
  if (item_ != Item::kMessage || refusal_) {
    open_message(out, false);
  }
  if (!has_logprobs) {
    append_delta(out, delta, {});
    return;
  }
  logprobs_ += logprobs_.empty() ? "" : ",";
  const size_t before = logprobs_.size();
  append_logprobs(logprobs_, logprobs);
  append_delta(out, delta, std::string_view(logprobs_).substr(before));
}

void ResponsesEncoder::refusal(std::string& out, std::string_view delta) {
  if (delta.empty()) {
    return;
  }
  if (item_ != Item::kMessage || !refusal_) {
    open_message(out, true);
  }
  append_delta(out, delta, {});
}

void ResponsesEncoder::reasoning(std::string& out, std::string_view delta) {
  if (delta.empty()) {
    return;
  }
  if (item_ != Item::kReasoning) {
    open(out, Item::kReasoning, "rs");
    place_ += options_.summarizes_reasoning ? R"(,"summary_index":0)" : R"(,"content_index":0)";
    if (options_.events) {
      item_event(
          out, "output_item.added",
          fmt::format(R"({{"id":"{}","type":"reasoning","summary":[],"status":"in_progress"}})",
                      item_id_));
      const bool summary = options_.summarizes_reasoning;
      part_event(out, summary ? "reasoning_summary_part.added" : "content_part.added",
                 summary ? R"({"type":"summary_text","text":""})"
                         : R"({"type":"reasoning_text","text":""})");
      delta_head_.clear();
      start_event(delta_head_, summary ? "reasoning_summary_text.delta" : "reasoning_text.delta");
      delta_head_.append(place_).append(R"(,"delta":")");
    }
  }
  if (options_.encrypts_reasoning) {
    plain_ += delta;
  }
  append_delta(out, delta, {});
}

std::string ResponsesEncoder::call_members(std::string_view status) const {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("id").value(item_id_).key("type");
  json.value(freeform_ ? "custom_tool_call" : "function_call");
  json.key("status").value(status);
  out.append(freeform_ ? R"(,"input":")" : R"(,"arguments":")").append(text_).append("\"");
  json.key("call_id").value(call_id_).key("name").value(call_name_);
  if (!call_space_.empty()) {
    json.key("namespace").value(call_space_);
  }
  json.end_object();
  return out;
}

void ResponsesEncoder::call(std::string& out, const ToolCallDelta& delta) {
  if (item_ != Item::kCall || call_index_ != delta.index) {
    const auto tool = std::ranges::find(options_.tools, delta.name, &NamespacedTool::flat);
    const bool known = tool != options_.tools.end();
    const bool freeform = known && tool->freeform;
    open(out, Item::kCall, freeform ? "ctc" : "fc");  // closes the call before
    freeform_ = freeform;
    freeform_input_ = {};
    call_index_ = delta.index;
    call_id_ = delta.id;
    call_name_ = known ? tool->name : delta.name;
    call_space_ = known ? tool->space : std::string();
    item_event(out, "output_item.added", call_members(kInProgress));
    delta_head_.clear();
    start_event(delta_head_,
                freeform_ ? "custom_tool_call_input.delta" : "function_call_arguments.delta");
    delta_head_.append(place_).append(R"(,"delta":")");
  }
  if (freeform_) {
    append_input(out, freeform_input_.feed(delta.arguments));
  } else if (!delta.arguments.empty()) {
    append_delta(out, delta.arguments, {});
  }
}

void ResponsesEncoder::append_input(std::string& out, std::string_view text) {
  if (!text.empty()) {
    append_delta(out, text, {});
  }
}

void ResponsesEncoder::close(std::string& out, std::string_view status) {
  switch (item_) {
    case Item::kNone:
      return;
    case Item::kMessage:
      close_message(out, status);
      return;
    case Item::kReasoning:
      close_reasoning(out, status);
      return;
    case Item::kCall:
      close_call(out, status);
      return;
  }
}

void ResponsesEncoder::close_message(std::string& out, std::string_view status) {
  std::string part;
  if (refusal_) {
    part.append(R"({"type":"refusal","refusal":")").append(text_).append("\"}");
  } else {
    part.append(R"({"type":"output_text","text":")").append(text_);
    part.append(R"(","annotations":[],"logprobs":[)").append(logprobs_).append("]}");
  }
  done_event(out, refusal_ ? "refusal.done" : "output_text.done", refusal_ ? "refusal" : "text");
  part_event(out, "content_part.done", part);
  std::string item =
      fmt::format(R"({{"id":"{}","type":"message","status":"{}","role":"assistant","content":[)",
                  item_id_, status);
  item.append(part).append("]}");
  add_item(out, item);
}

void ResponsesEncoder::close_reasoning(std::string& out, std::string_view status) {
  const bool summary = options_.summarizes_reasoning;
  std::string part =
      fmt::format(R"({{"type":"{}","text":")", summary ? "summary_text" : "reasoning_text");
  part.append(text_).append("\"}");
  done_event(out, summary ? "reasoning_summary_text.done" : "reasoning_text.done", "text");
  part_event(out, summary ? "reasoning_summary_part.done" : "content_part.done", part);
  std::string item = fmt::format(R"({{"id":"{}","type":"reasoning","summary":[)", item_id_);
  item.append(summary ? part : "").append("]");
  if (!summary) {
    item.append(R"(,"content":[)").append(part).append("]");
  }
  if (options_.encrypts_reasoning) {
    item.append(R"(,"encrypted_content":")").append(encode_reasoning(plain_)).append("\"");
  }
  item.append(R"(,"status":")").append(status).append("\"}");
  add_item(out, item);
}

void ResponsesEncoder::close_call(std::string& out, std::string_view status) {
  if (freeform_) {
    append_input(out, freeform_input_.finish());
    done_event(out, "custom_tool_call_input.done", "input");
  } else {
    done_event(out, "function_call_arguments.done", "arguments");
  }
  add_item(out, call_members(status));
}

void ResponsesEncoder::end(std::string& out, ChoiceFinish finish, const Usage& usage, int64_t now_s,
                           std::string_view nvext_json) {
  const bool cut = finish == ChoiceFinish::kLength || finish == ChoiceFinish::kContentFilter;
  if (output_.empty() && item_ == Item::kNone) {
    open_message(out, false);
  }
  close(out, cut ? kIncomplete : kCompleted);
  status_ = cut ? ResponseStatus::kIncomplete : ResponseStatus::kCompleted;
  const ResponseState state{
      .status = status_,
      .output_json = output_,
      .incomplete_reason = finish == ChoiceFinish::kLength ? "max_output_tokens" : "content_filter",
      .completed_s = now_s,
      .usage = &usage,
      .nvext_json = nvext_json};
  append_response(response_json_, frame_, state);
  response_event(out, describe(status_), state);
}

void ResponsesEncoder::fail(std::string& out, std::string_view code, std::string_view message) {
  close(out, kIncomplete);
  status_ = ResponseStatus::kFailed;
  const ResponseState state{
      .status = status_, .output_json = output_, .error_code = code, .error_message = message};
  append_response(response_json_, frame_, state);
  response_event(out, "failed", state);
}

}  // namespace stator::api
