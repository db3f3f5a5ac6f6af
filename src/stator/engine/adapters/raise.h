// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/inference/pool.h"
#include "stator/inference/sampling.h"

namespace stator::engine::adapters {

/// What some bytes of an engine's answer add to one request's output.
struct Raised {
  std::vector<TokenId> tokens;
  std::vector<inference::TokenLogprobs> logprobs;         ///< one per token, or none
  std::vector<inference::TokenLogprobs> prompt_logprobs;  ///< as inference::PromptLogprobs::tokens
  uint32_t cached_tokens = 0;
  inference::FinishReason finish = inference::FinishReason::kNone;
  /// kStop: the last of `tokens` is the EOS or stop token, counted but not shown. Otherwise all of
  /// them are text.
  bool last_is_stop = false;
  std::string handoff;  ///< of a kPrefill request: the object its taker needs, verbatim
  std::optional<inference::PoolAnswer> pooled;  ///< of a request with `pool`: everything

  bool finished() const { return finish != inference::FinishReason::kNone; }
  void clear();
};

/// Reads one engine's events: the JSON objects of its stream, or the one object of a plain answer.
/// One per request, one thread.
///
/// A token leaves only when it is known whether it is the last one, because the last may be a stop
/// token: an implementation holds back what came with a finish reason until the stream's end.
class EventRaiser {
 public:
  virtual ~EventRaiser() = default;
  /// Adds to `out`. Errors end the request: what the engine reports, or kCorrupt.
  virtual Status on_event(std::string_view json, Raised& out) = 0;
  /// The engine said that nothing follows ("[DONE]" or a complete answer). Sets out.finish.
  /// kDisconnected if the answer has no end.
  virtual Status on_done(Raised& out) = 0;
  /// How the stream goes on after an event.
  enum class Next : uint8_t {
    kMore,
    kDone,   ///< that was the last event: what follows says nothing
    kAbort,  ///< the answer is complete here, but the engine goes on: close the connection
  };
  virtual Next next() const { return Next::kMore; }
};

/// Bounds on what an engine may send.
inline constexpr size_t kEventBytesMax = size_t{8} << 20;    ///< one event of a stream
inline constexpr size_t kAnswerBytesMax = size_t{64} << 20;  ///< an answer in one piece
inline constexpr size_t kErrorBytesMax = size_t{64} << 10;   ///< of an error body; the rest is cut

/// Splits a server-sent event stream into the payloads of its `data:` lines, from any split of its
/// bytes. Lines end with LF or CRLF; comments and other fields are skipped; several data lines of
/// one event are joined with LF.
class SseReader {
 public:
  /// Appends bytes; then call next() until it gives nothing.
  Status feed(std::string_view bytes);
  /// The next complete payload; valid until the next call.
  bool next(std::string_view& payload);

 private:
  bool take_line(std::string_view& line);

  std::string buffer_;
  size_t begin_ = 0;     // of the first line not taken
  size_t searched_ = 0;  // no LF before this
  std::string event_;    // data lines of the event under way
  bool has_data_ = false;
};

/// The answer to one generation call, whatever its form: a stream, one JSON object (old servers
/// ignore `stream`), or an error.
class ReplyReader {
 public:
  ReplyReader(std::unique_ptr<EventRaiser> raiser, std::string_view engine)
      : raiser_(std::move(raiser)), engine_(engine) {}

  void on_head(int status, std::string_view content_type);
  /// Adds to `out` what became known.
  Status on_bytes(std::string_view bytes, Raised& out);
  /// The connection ended properly.
  Status on_end(Raised& out);
  /// The connection broke: the answer may be complete all the same. Else `error`, made
  /// kDisconnected so that another worker may go on.
  Status on_cut(Error error, Raised& out);
  /// Nothing more is expected.
  bool done() const { return done_; }
  /// The engine must be told so, by closing the connection.
  bool abort() const { return abort_; }

 private:
  Status on_payload(std::string_view payload, Raised& out);

  enum class Form : uint8_t { kNone, kStream, kPlain, kError };
  std::unique_ptr<EventRaiser> raiser_;
  std::string_view engine_;  // a literal, for messages
  Form form_ = Form::kNone;
  int status_ = 0;
  SseReader sse_;
  std::string body_;
  bool done_ = false;
  bool abort_ = false;
};

/// What an HTTP error of an engine means for its client; `body` in any of the shapes engines use.
/// 400 and 422 are the client's, 404 an unknown model or adapter, 429 and 503 another worker may
/// take, 500 of a dead engine core likewise, other 5xx the engine's.
Error to_error(std::string_view engine, int status, std::string_view body);
/// The text of an error body: error.message, message, detail, or the body itself, shortened.
std::string error_text(std::string_view body);

/// "stop", "length" and the other words engines end with. kDisconnected for "abort": the engine
/// gave the request up, another may do it; kInternal for "error".
Result<inference::FinishReason> to_finish(std::string_view engine, std::string_view word);

}  // namespace stator::engine::adapters
