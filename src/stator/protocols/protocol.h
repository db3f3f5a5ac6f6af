// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/api/api_error.h"
#include "stator/api/error_body.h"
#include "stator/api/request.h"
#include "stator/api/request_parser.h"
#include "stator/api/response.h"
#include "stator/core/ids.h"

namespace stator::protocols {

// What a protocol in front of the one generation pipeline is made of: a reader (body → the chat
// request that the frontend runs), a writer (what the model says → events of a stream, or one
// body), and the shape of its errors. All of it is pure: text in, text out; no I/O, no clock, no
// locks. README.md says how to add one.

/// What an answer repeats of its request, made by a protocol's reader for its own writer. Immutable
/// once read: the answer of a large body is written on another thread.
struct Echo {
  virtual ~Echo() = default;
};

/// What earlier answers left that a reader may build on. Thread-safe.
class Memory {
 public:
  virtual ~Memory() = default;
  /// Input and output items of the conversation up to that answer, oldest first: JSON, each a
  /// string or an array.
  virtual api::ApiResult<std::vector<std::string>> items_before(
      std::string_view answer_id) const = 0;
  /// One item as JSON; nothing if nobody has it.
  virtual std::optional<std::string> find_item(std::string_view item_id) const = 0;
};

struct ReadOptions {
  api::ParseLimits limits;
  const Memory* memory = nullptr;  ///< null: nothing is stored
  /// Tools that only a provider can run are left out instead of refused.
  bool ignore_builtin_tools = false;
  /// The prompt is only to be counted: what says how to answer may be absent.
  bool only_counts = false;
  /// Drops what coding agents put at the head of the system prompt and change with each request.
  bool strip_preamble = true;
  std::string_view path{};  ///< of the request, for protocols that name the model there
};

struct Protocol;

/// What a reader makes of a body. `request.options.n` is 1.
struct Reading {
  api::ChatRequest request;
  /// That writes the answer, where one route has several; null: the route's.
  const Protocol* protocol = nullptr;
  std::string session;  ///< that the request belongs to, unless a header says; empty: none
  std::shared_ptr<const Echo> echo;  ///< null: nothing
};

/// Heads an answer.
struct AnswerHead {
  std::string id;     ///< with its prefix: "msg_…"
  std::string model;  ///< served name
  int64_t created_s = 0;
  bool tokens_as_token_ids = false;
  std::shared_ptr<const Echo> echo;
};

/// One piece of what the model says. At most one of text, reasoning and call is there.
struct Piece {
  std::string_view text;
  std::string_view reasoning;
  const api::ToolCallDelta* call = nullptr;  ///< a piece of a tool call
  /// Set on the last piece.
  api::ChoiceFinish finish = api::ChoiceFinish::kNone;
  /// The client's stop string that ended it; only on the last piece.
  std::optional<std::string_view> stop_string;
  api::Logprobs logprobs;  ///< of the tokens behind it; none unless asked for
  // Of plain protocols: what the engine said, text or not.
  std::span<const TokenId> tokens{};
  std::span<const inference::TokenLogprobs> token_logprobs{};
};

/// What an answer ends with.
struct Ending {
  api::Usage usage;
  std::string_view nvext_json;  ///< ready-made object; empty = none
};

/// What is sent in place of the rest of a stream.
struct Failure {
  int status = 500;  ///< it would have had as an answer of its own
  std::string_view message;
};

/// Writes the events of one stream, each call whole frames ("event: …\ndata: …\n\n").
///
///   begin → add … add → finish | fail         keep_alive any time after begin
class StreamWriter {
 public:
  virtual ~StreamWriter() = default;

  /// Once, with the first token: the prompt's numbers are final, output_tokens counts from there.
  virtual void begin(std::string& out, const api::Usage& usage) = 0;
  /// Appends nothing for a piece in which there is nothing to see.
  virtual void add(std::string& out, const Piece& piece) = 0;
  virtual void finish(std::string& out, const Ending& ending) = 0;
  virtual void fail(std::string& out, const Failure& failure) = 0;
  virtual void keep_alive(std::string& out) = 0;
};

class Output;

/// A protocol, as data. Functions are called from any thread.
struct Protocol {
  /// Value of the label `endpoint` in metrics.
  std::string_view endpoint;
  /// Of answers' ids; hexadecimal digits follow.
  std::string_view id_prefix;
  /// Header that carries the request's id beside x-request-id; empty: none.
  std::string_view request_id_header;
  /// Status of "all workers busy" where the operator left the default; 0: the default.
  int overload_status = 0;
  /// The output as it comes: neither reasoning nor tool calls are told apart, pieces have tokens.
  bool plain = false;

  api::ApiResult<Reading> (*read)(std::string& body, const ReadOptions& options) = nullptr;
  std::unique_ptr<StreamWriter> (*make_stream_writer)(AnswerHead head) = nullptr;
  /// The whole answer as one JSON body.
  void (*append_body)(std::string& out, const AnswerHead& head, const Output& output,
                      const Ending& ending) = nullptr;
  /// An error as one JSON body.
  api::ErrorStyle::AppendBody append_error = nullptr;
  /// The answer to a request that was only counted; null where there is no such route.
  void (*append_count)(std::string& out, uint64_t tokens) = nullptr;
};

}  // namespace stator::protocols
