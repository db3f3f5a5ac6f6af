// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "stator/api/error_body.h"
#include "stator/api/response.h"

namespace stator::api {

// Server-sent events of the OpenAI protocols. Every append_ call adds whole frames
// ("data: {…}\n\n"), so a connection can write `out` at any time. Cost: about 0.3 µs per small
// chunk.
//
//   ChatChunkEncoder encoder({.id = "chatcmpl-1", .model = "m", .created_s = now}, options);
//   encoder.append_delta(out, {.index = 0, .first = true, .content = "Hi"});
//   encoder.append_delta(out, {.index = 0, .finish = ChoiceFinish::kStop});
//   if (include_usage) encoder.append_usage(out, usage);
//   append_sse_done(out);

/// One chunk of one choice. Nothing is emitted for a chunk without any content (see `empty`).
struct ChatDelta {
  uint32_t index = 0;
  bool first = false;  ///< the choice's first emitted chunk: carries the role
  std::string_view content;
  std::string_view reasoning;
  std::string_view refusal;
  std::span<const ToolCallDelta> tool_calls;
  ChoiceFinish finish = ChoiceFinish::kNone;
  Logprobs logprobs;
  const Usage* usage = nullptr;                 ///< running totals, for continuous_usage_stats
  std::string_view nvext_json;                  ///< ready-made object; empty = none
  std::span<const TokenId> token_ids{};         ///< of the chunk; for ResponseOptions::token_ids
  std::span<const TokenId> prompt_token_ids{};  ///< with the first chunk; the same

  /// Nothing a client could see: such chunks are not sent (half a character, jailed text).
  bool empty() const;
};

class ChatChunkEncoder {
 public:
  /// Copies what it needs; `options.reasoning_field` must be a literal or outlive the encoder.
  ChatChunkEncoder(const ResponseIdentity& identity, const ResponseOptions& options);

  /// Appends one frame, or nothing if `delta.empty()`.
  void append_delta(std::string& out, const ChatDelta& delta) const;
  /// The extra chunk with "choices":[] that include_usage asks for.
  void append_usage(std::string& out, const Usage& usage, std::string_view nvext_json = {}) const;

 private:
  void append_choice(std::string& out, const ChatDelta& delta) const;

  std::string prefix_;  // up to and including "choices":[
  ResponseOptions options_;
};

struct CompletionDelta {
  uint32_t index = 0;
  std::string_view text;
  ChoiceFinish finish = ChoiceFinish::kNone;
  Logprobs logprobs;
  const Usage* usage = nullptr;
  std::string_view nvext_json;
  std::span<const TokenId> token_ids{};         ///< as in ChatDelta
  std::span<const TokenId> prompt_token_ids{};  ///< with the choice's first chunk

  bool empty() const;
};

class CompletionChunkEncoder {
 public:
  CompletionChunkEncoder(const ResponseIdentity& identity, const ResponseOptions& options);

  void append_delta(std::string& out, const CompletionDelta& delta) const;
  void append_usage(std::string& out, const Usage& usage, std::string_view nvext_json = {}) const;

 private:
  std::string prefix_;
  ResponseOptions options_;
};

/// data: {"error":{"message","type","code"}}. Follow it with append_sse_done. `status` as in
/// error_body.h; the type slug comes from sse_error_type.
void append_sse_error(std::string& out, int status, std::string_view message,
                      const ErrorStyle& style = {});
/// data: [DONE]
void append_sse_done(std::string& out);
/// A comment nobody reads: ":\n\n".
void append_sse_keep_alive(std::string& out);
/// event: <name>, data: <json>. `name` has no line breaks, `json` is one line.
void append_sse_annotation(std::string& out, std::string_view name, std::string_view json);

}  // namespace stator::api
