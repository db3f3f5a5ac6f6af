// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stator::loadgen {

/// What one answer said so far.
struct AnswerCounts {
  uint32_t chunks = 0;  ///< events with text, reasoning or a piece of a tool call
  bool done = false;    ///< the closing [DONE] was seen
  bool failed = false;  ///< an error event or object was seen
  bool has_usage = false;
  uint64_t prompt_tokens = 0;      ///< of `usage`; the last one counts
  uint64_t completion_tokens = 0;  ///< of `usage`, reasoning included
};

/// Reads a server-sent event stream of an OpenAI-compatible server from pieces of any size,
/// counting instead of parsing: no allocation per event. One stream's events are alike up to the
/// text, so where the text was found in one event is looked at first in the next; only events
/// without text there are searched. A line longer than 1 MiB counts as a failure.
class SseScanner {
 public:
  static constexpr size_t kLineBytesMax = 1 << 20;

  void reset();
  void feed(std::string_view bytes);
  /// The stream ended: one without text and without token counts was no answer.
  void finish();

  /// Collects the raw JSON text of `content`, still escaped, behind `*text`; null = do not. `*text`
  /// must outlive the stream. At most `bytes_max`; the rest is dropped.
  void capture(std::string* text, size_t bytes_max);

  const AnswerCounts& counts() const { return counts_; }
  /// The data of the first event that reported a failure, at most 300 bytes.
  const std::string& error() const { return error_; }

 private:
  void take_line(std::string_view line);
  bool take_known_place(std::string_view line);
  void search(std::string_view line);
  void fail(std::string_view data);
  void keep_text(std::string_view from_quote);

  AnswerCounts counts_;
  std::string partial_line_;
  std::string error_;
  std::string* text_ = nullptr;
  size_t text_bytes_max_ = 0;
  bool error_event_ = false;
  // Where the last event had its text: `known_field_` (say "content":") began at this offset.
  size_t known_at_ = 0;
  std::string known_field_;
};

/// The position behind `"name":` and white space, at the value; npos if there is no such field.
/// Works on raw JSON: quotes inside strings are escaped there, so text cannot look like a field.
size_t find_value(std::string_view json, std::string_view quoted_name, size_t from = 0);

/// Reads `usage` of an answer into `counts`; false if there is none.
bool read_usage(std::string_view json, AnswerCounts& counts);

/// Length of the JSON string that begins behind its opening quote, up to the closing quote.
size_t json_string_length(std::string_view after_quote);

}  // namespace stator::loadgen
