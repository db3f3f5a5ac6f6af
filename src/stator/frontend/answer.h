// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/api/api_error.h"
#include "stator/api/error_body.h"
#include "stator/api/response.h"
#include "stator/core/clock.h"
#include "stator/frontend/frontend_metrics.h"
#include "stator/inference/sampling.h"
#include "stator/net/byte_budget.h"
#include "stator/net/http_server.h"
#include "stator/protocols/protocol.h"
#include "stator/responses/response_store.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::frontend {

inline constexpr std::string_view kJson = "application/json";
inline constexpr std::string_view kEventStream = "text/event-stream; charset=utf-8";
/// A body of fewer bytes is written in about a millisecond: to hand it to another thread would cost
/// more than it saves others.
inline constexpr size_t kQuickBodyBytesMax = size_t{256} << 10;

/// Everything that shapes an answer and is fixed before the first token.
struct AnswerSpec {
  Endpoint endpoint = Endpoint::kChat;            ///< where `protocol` is null
  const protocols::Protocol* protocol = nullptr;  ///< what writes it; null: OpenAI's two
  std::shared_ptr<const protocols::Echo> echo;    ///< for `protocol`
  responses::ResponseStore* responses = nullptr;  ///< where a response is kept; null: nowhere
  std::string owner;                              ///< whose it is, see owner_of()
  bool stream = false;
  std::string id;               ///< "chatcmpl-…"
  std::string model;            ///< served name
  std::string request_id;       ///< ours: in ids, logs and receipts
  std::string request_id_echo;  ///< for the x-request-id header: the client's own, else ours
  std::string ignored_fields;   ///< for x-stator-ignored-fields; empty = none
  int64_t created_s = 0;
  uint32_t choices = 1;
  uint32_t choices_per_prompt = 1;  ///< that are answered
  api::ResponseOptions options;
  bool logprobs = false;
  std::string annotations;  ///< event frames before the first chunk of a stream
  api::ErrorStyle error_style;
  Duration retry_after{};

  EndpointLabel label() const {
    return protocol == nullptr ? EndpointLabel(endpoint) : EndpointLabel(protocol->endpoint);
  }
};

/// The headers that every answer to a request has. Views into the spec.
std::vector<net::HttpHeader> answer_headers(const AnswerSpec& spec);
/// Sends status 200 and the headers of a stream of events, then the annotations, which are taken
/// out of `spec`.
void begin_event_stream(net::HttpExchange& exchange, AnswerSpec& spec);

/// One piece of one choice.
struct AnswerPiece {
  uint32_t choice = 0;
  std::string_view text;
  std::string_view reasoning;
  const api::ToolCallDelta* call = nullptr;  ///< a piece of a tool call
  std::string_view nvext_json;               ///< ready-made object, in streams; empty = none
  api::ChoiceFinish finish = api::ChoiceFinish::kNone;
  std::span<const inference::TokenLogprobs> logprobs;  ///< of the tokens behind it
  /// Those tokens: of answers that are not parsed, and with ResponseOptions::token_ids of all.
  std::span<const TokenId> tokens{};
  const api::Usage* usage = nullptr;            ///< running totals, if asked for
  std::optional<std::string_view> stop_string;  ///< with `finish`: the client's, that ended it
};

/// Writes one answer to an exchange, as an event stream or as one body. Until `add` is first called
/// nothing has been sent, so `fail` still gives a real HTTP status; afterwards it is an error
/// event. On the shard's loop; the exchange and the tokenizer outlive it.
class Answer {
 public:
  /// What a body collects is held in `budget`, which outlives it; null: in none.
  static std::unique_ptr<Answer> make(AnswerSpec spec, net::HttpExchange& exchange,
                                      const tokenizer::Tokenizer& tokenizer,
                                      net::ByteBudget* budget = nullptr);
  virtual ~Answer() = default;

  /// Whether something left for the client. A piece in which there is nothing to see sends
  /// nothing; its log-probabilities go with the next piece of its choice.
  virtual bool add(const AnswerPiece& piece) = 0;
  /// Adds a frame to those before a stream's first chunk; nothing for bodies and started streams.
  virtual void annotate(std::string_view /*name*/, std::string_view /*json*/) {}
  /// Log-probabilities of a prompt, for OpenAI's bodies; see api::append_prompt_logprobs.
  virtual void add_prompt_logprobs(uint32_t /*prompt*/, std::string /*json*/) {}
  /// For ResponseOptions::token_ids, before the choice's first piece. `prompt`: which of them.
  virtual void add_prompt_tokens(uint32_t /*choice*/, uint32_t /*prompt*/,
                                 std::span<const TokenId> /*tokens*/) {}
  /// Before the end of a body: of all choices only these are answered, in this order.
  virtual void keep(std::span<const uint32_t> /*choices*/) {}
  /// Ends the exchange.
  virtual void finish(const api::Usage& usage, std::string_view nvext_json) = 0;
  /// Of a large body, instead of finish(): what writes it, on any thread and once. Whoever called
  /// it ends the exchange with send_body(). Empty: finish() takes no time worth mentioning.
  using BodyWriter = std::function<std::string()>;
  virtual BodyWriter take_writer(const api::Usage& /*usage*/, std::string /*nvext_json*/) {
    return {};
  }
  virtual void send_body(std::string /*body*/) {}
  /// What a body has collected, as bytes of that body; 0 for streams.
  virtual size_t collected_bytes() const { return 0; }
  /// Ends the exchange.
  virtual void fail(const api::ApiError& error) = 0;
  /// Keeps a quiet stream's proxies awake; nothing for bodies and unstarted streams.
  virtual void keep_alive() {}
};

/// Ends an exchange with an error body; adds Retry-After where another try makes sense, and
/// x-should-retry: false where clients would try again for nothing.
void respond_error(net::HttpExchange& exchange, const api::ApiError& error,
                   const api::ErrorStyle& style, Duration retry_after,
                   std::span<const net::HttpHeader> headers = {});

}  // namespace stator::frontend
