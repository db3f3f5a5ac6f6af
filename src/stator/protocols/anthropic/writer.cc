// SPDX-License-Identifier: Apache-2.0
#include "stator/protocols/anthropic/writer.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "stator/json/cursor.h"
#include "stator/json/writer.h"
#include "stator/protocols/anthropic/error_shape.h"

namespace stator::protocols::anthropic {
namespace {

using api::ChoiceFinish;

// Clients hand a block of thinking back as it is; what is not signed by Anthropic says so.
constexpr std::string_view kSignature = "erased";
constexpr std::string_view kOwnCallPrefix = "call_";
constexpr std::string_view kCallPrefix = "toolu_";
constexpr uint32_t kArgumentsDepthMax = 128;

/// Ids that were made up here look like Anthropic's; the model's own stay as they are.
std::string call_id(std::string_view id) {
  if (!id.starts_with(kOwnCallPrefix)) {
    return std::string(id);
  }
  std::string renamed(kCallPrefix);
  renamed += id.substr(kOwnCallPrefix.size());
  return renamed;
}

/// How an answer ended, for its `stop_reason`.
struct Stop {
  ChoiceFinish finish = ChoiceFinish::kStop;
  std::optional<std::string> stop_string;
  bool has_calls = false;
};

std::string_view stop_reason(const Stop& stop) {
  switch (stop.finish) {
    case ChoiceFinish::kLength:
      return "max_tokens";
    case ChoiceFinish::kToolCalls:
      return "tool_use";
    case ChoiceFinish::kContentFilter:
      return "refusal";
    case ChoiceFinish::kStop:
    case ChoiceFinish::kNone:
      break;
  }
  if (stop.stop_string) {
    return "stop_sequence";
  }
  // A call that the client named ends as "stop" with OpenAI, not so with Anthropic.
  return stop.has_calls ? "tool_use" : "end_turn";
}

void write_stop(json::Writer& writer, const Stop& stop) {
  const std::string_view reason = stop_reason(stop);
  writer.key("stop_reason").value(reason).key("stop_sequence");
  if (stop.stop_string && reason == "stop_sequence") {
    writer.value(*stop.stop_string);
  } else {
    writer.null();
  }
}

/// What was found in the cache is not among input_tokens.
void write_usage(json::Writer& writer, const api::Usage& usage) {
  const uint32_t cached = std::min(usage.cached_tokens, usage.prompt_tokens);
  writer.key("usage").begin_object();
  writer.key("input_tokens").value(usage.prompt_tokens - cached);
  writer.key("cache_creation_input_tokens").value(0);
  writer.key("cache_read_input_tokens").value(cached);
  writer.key("output_tokens").value(usage.completion_tokens);
  writer.end_object();
}

void write_head(json::Writer& writer, const AnswerHead& head) {
  writer.key("id").value(head.id).key("type").value("message");
  writer.key("role").value("assistant").key("model").value(head.model);
}

// ---- streams

class MessageStream final : public StreamWriter {
 public:
  explicit MessageStream(AnswerHead head) : head_(std::move(head)) {}

  void begin(std::string& out, const api::Usage& usage) override {
    out += "event: message_start\ndata: ";
    json::Writer writer(out);
    writer.begin_object().key("type").value("message_start");
    writer.key("message").begin_object();
    write_head(writer, head_);
    writer.key("content").begin_array().end_array();
    writer.key("stop_reason").null().key("stop_sequence").null();
    write_usage(writer, usage);
    writer.end_object().end_object();
    out += "\n\n";
    keep_alive(out);
  }

  void add(std::string& out, const Piece& piece) override {
    if (!piece.reasoning.empty()) {
      open(out, Block::kThinking, {});
      append_delta(out, "thinking_delta", "thinking", piece.reasoning);
    }
    if (!piece.text.empty()) {
      open(out, Block::kText, {});
      append_delta(out, "text_delta", "text", piece.text);
    }
    if (piece.call != nullptr) {
      add_call(out, *piece.call);
    }
    if (piece.finish != ChoiceFinish::kNone) {
      stop_.finish = piece.finish;
      stop_.stop_string = piece.stop_string;
      close(out);
    }
  }

  void finish(std::string& out, const Ending& ending) override {
    close(out);
    out += "event: message_delta\ndata: ";
    json::Writer writer(out);
    writer.begin_object().key("type").value("message_delta").key("delta").begin_object();
    write_stop(writer, stop_);
    writer.end_object();
    write_usage(writer, ending.usage);
    if (!ending.nvext_json.empty()) {
      writer.key("nvext").raw(ending.nvext_json);
    }
    writer.end_object();
    out += "\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
  }

  void fail(std::string& out, const Failure& failure) override {
    out += "event: error\ndata: ";
    append_error(out, error_type(failure.status), failure.message);
    out += "\n\n";
  }

  void keep_alive(std::string& out) override {
    out += "event: ping\ndata: {\"type\":\"ping\"}\n\n";
  }

 private:
  enum class Block : uint8_t { kNone, kText, kThinking, kCall };

  void add_call(std::string& out, const api::ToolCallDelta& call) {
    if (block_ != Block::kCall || call_ != call.index) {
      close(out);
      call_ = call.index;
      stop_.has_calls = true;
      open(out, Block::kCall, call);
    }
    if (!call.arguments.empty()) {
      append_delta(out, "input_json_delta", "partial_json", call.arguments);
    }
  }

  void append_index(std::string& out) const {
    out += ",\"index\":";
    out += std::to_string(index_);
  }

  void open(std::string& out, Block block, const api::ToolCallDelta& call) {
    if (block_ == block) {
      return;
    }
    close(out);
    block_ = block;
    out += "event: content_block_start\ndata: {\"type\":\"content_block_start\"";
    append_index(out);
    out += ",\"content_block\":";
    switch (block) {
      case Block::kText:
        out += R"({"type":"text","text":""})";
        break;
      case Block::kThinking:
        out += R"({"type":"thinking","thinking":"","signature":""})";
        break;
      case Block::kCall: {
        json::Writer writer(out);
        writer.begin_object().key("type").value("tool_use").key("id").value(call_id(call.id));
        writer.key("name").value(call.name).key("input").raw("{}").end_object();
        break;
      }
      case Block::kNone:
        break;
    }
    out += "}\n\n";
  }

  void append_delta(std::string& out, std::string_view type, std::string_view member,
                    std::string_view text) const {
    out += "event: content_block_delta\ndata: {\"type\":\"content_block_delta\"";
    append_index(out);
    out += ",\"delta\":{\"type\":\"";
    out += type;
    out += "\",\"";
    out += member;
    out += "\":";
    json::append_string(out, text);
    out += "}}\n\n";
  }

  void close(std::string& out) {
    if (block_ == Block::kNone) {
      return;
    }
    if (block_ == Block::kThinking) {
      append_delta(out, "signature_delta", "signature", kSignature);
    }
    out += "event: content_block_stop\ndata: {\"type\":\"content_block_stop\"";
    append_index(out);
    out += "}\n\n";
    block_ = Block::kNone;
    ++index_;
  }

  const AnswerHead head_;
  Block block_ = Block::kNone;  // the open one
  uint32_t index_ = 0;          // of the open block, else of the next
  uint32_t call_ = 0;           // of the open block, if it is one
  Stop stop_;
};

// ---- whole messages

bool is_object(std::string_view text) {
  json::Cursor cursor(text, kArgumentsDepthMax);
  return cursor.peek() == json::Kind::kObject && cursor.skip() && cursor.finish();
}

void write_item(json::Writer& writer, const OutputItem& item) {
  writer.begin_object().key("type");
  switch (item.kind) {
    case OutputItem::Kind::kText:
      writer.value("text").key("text").value(item.text);
      break;
    case OutputItem::Kind::kReasoning:
      writer.value("thinking").key("thinking").value(item.text);
      writer.key("signature").value(kSignature);
      break;
    case OutputItem::Kind::kCall:
      writer.value("tool_use").key("id").value(call_id(item.id)).key("name").value(item.name);
      // A call that was cut off by max_tokens is no object: clients must still be able to read it.
      writer.key("input").raw(is_object(item.text) ? std::string_view(item.text) : "{}");
      break;
  }
  writer.end_object();
}

}  // namespace

std::unique_ptr<StreamWriter> make_stream_writer(AnswerHead head) {
  return std::make_unique<MessageStream>(std::move(head));
}

void append_message(std::string& out, const AnswerHead& head, const Output& output,
                    const Ending& ending) {
  json::Writer writer(out);
  writer.begin_object();
  write_head(writer, head);
  writer.key("content").begin_array();
  bool has_calls = false;
  for (const OutputItem& item : output.items()) {
    has_calls |= item.kind == OutputItem::Kind::kCall;
    write_item(writer, item);
  }
  writer.end_array();
  write_stop(
      writer,
      {.finish = output.finish(), .stop_string = output.stop_string(), .has_calls = has_calls});
  write_usage(writer, ending.usage);
  if (!ending.nvext_json.empty()) {
    writer.key("nvext").raw(ending.nvext_json);
  }
  writer.end_object();
}

}  // namespace stator::protocols::anthropic
