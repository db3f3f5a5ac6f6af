// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/api/freeform_input.h"
#include "stator/api/response.h"
#include "stator/api/responses_request.h"
#include "stator/json/writer.h"

namespace stator::api {

/// What stands in a response object from its first event to its last.
struct ResponseFrame {
  std::string id;  ///< "resp_" and 32 hex digits
  std::string model;
  int64_t created_s = 0;
  std::string echo_json;  ///< see ResponsesRequest
};

enum class ResponseStatus : uint8_t {
  kQueued,
  kInProgress,
  kCompleted,
  kIncomplete,
  kFailed,
  kCancelled,
};
std::string_view describe(ResponseStatus status);
inline bool is_over(ResponseStatus status) {
  return status > ResponseStatus::kInProgress;
}

/// What changes in it.
struct ResponseState {
  ResponseStatus status = ResponseStatus::kInProgress;
  std::string_view output_json = {};        ///< the items with commas between, without brackets
  std::string_view incomplete_reason = {};  ///< of kIncomplete
  std::string_view error_code = {};         ///< of kFailed
  std::string_view error_message = {};
  int64_t completed_s = 0;           ///< of kCompleted
  const Usage* usage = nullptr;      ///< null until it is over
  std::string_view nvext_json = {};  ///< ready-made object; empty = none
};

/// {"input_tokens","input_tokens_details","output_tokens",…,"total_tokens"}
void write_responses_usage(json::Writer& json, const Usage& usage);

/// The object of POST and GET /v1/responses.
void append_response(std::string& out, const ResponseFrame& frame, const ResponseState& state);

/// event: error. For streams that cannot say response.failed: nobody has their response.
void append_responses_error_event(std::string& out, std::string_view code, std::string_view message,
                                  uint64_t sequence);

/// Puts a response together from pieces of text, reasoning and calls, and writes its events.
///
///   begin → {text | refusal | reasoning | call}* → end or fail
///
/// Items follow each other as the pieces do: a piece of another kind (or another call) closes the
/// open item. Event number n is the n-th event, from 0. Everything is kept until the end, because
/// the last event has the whole response. Text is escaped once; about 0.2 µs per small delta.
///
/// R1  Every item that was opened is closed before the last event.
/// R2  Without events the same pieces give the same last object.
class ResponsesEncoder {
 public:
  struct Options {
    bool events = true;
    bool queued = false;  ///< begins with response.queued: of background responses
    bool summarizes_reasoning = false;
    bool encrypts_reasoning = false;
    std::vector<NamespacedTool> tools;
    ResponseOptions spelling;
  };
  ResponsesEncoder(ResponseFrame frame, Options options);

  /// All append whole events to `out`, or nothing without events.
  void begin(std::string& out);
  void text(std::string& out, std::string_view delta, const Logprobs& logprobs = {});
  void refusal(std::string& out, std::string_view delta);
  void reasoning(std::string& out, std::string_view delta);
  void call(std::string& out, const ToolCallDelta& delta);
  void end(std::string& out, ChoiceFinish finish, const Usage& usage, int64_t now_s,
           std::string_view nvext_json = {});
  void fail(std::string& out, std::string_view code, std::string_view message);

  /// After end() or fail(): the whole object, and how it ended.
  const std::string& response_json() const { return response_json_; }
  ResponseStatus status() const { return status_; }
  /// The output items, as in ResponseState.
  const std::string& output_json() const { return output_; }
  const ResponseFrame& frame() const { return frame_; }
  /// Bytes kept.
  size_t bytes() const { return output_.size() + text_.size() + logprobs_.size(); }

 private:
  enum class Item : uint8_t { kNone, kMessage, kReasoning, kCall };

  void open(std::string& out, Item kind, std::string_view prefix);
  void open_message(std::string& out, bool refusal);
  void close(std::string& out, std::string_view status);
  void close_message(std::string& out, std::string_view status);
  void close_reasoning(std::string& out, std::string_view status);
  void close_call(std::string& out, std::string_view status);
  void append_delta(std::string& out, std::string_view delta, std::string_view logprobs);
  void append_input(std::string& out, std::string_view text);
  void append_logprobs(std::string& into, const Logprobs& logprobs) const;
  void start_event(std::string& out, std::string_view type);
  void finish_event(std::string& out);
  void item_event(std::string& out, std::string_view type, std::string_view item);
  void part_event(std::string& out, std::string_view type, std::string_view part);
  void done_event(std::string& out, std::string_view type, std::string_view member);
  void response_event(std::string& out, std::string_view type, const ResponseState& state);
  void add_item(std::string& out, std::string_view item);
  std::string call_members(std::string_view status) const;

  ResponseFrame frame_;
  Options options_;
  uint64_t sequence_ = 0;
  uint32_t output_index_ = 0;
  Item item_ = Item::kNone;
  bool refusal_ = false;
  uint32_t call_index_ = 0;
  std::string item_id_;
  std::string place_;       // "item_id":…,"output_index":… of the open item
  std::string delta_head_;  // of its delta events, up to the text
  std::string text_;        // of the open item, escaped
  std::string logprobs_;    // of the open item: objects with commas between
  std::string plain_;       // its reasoning as it is, if that is encoded
  std::string call_id_;
  std::string call_name_;
  std::string call_space_;
  bool freeform_ = false;  // the open call is of a custom tool
  FreeformInput freeform_input_;
  std::string output_;
  std::string response_json_;
  ResponseStatus status_ = ResponseStatus::kInProgress;
};

}  // namespace stator::api
