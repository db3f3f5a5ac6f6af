// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stator/api/request.h"
#include "stator/blocks/block_hash.h"
#include "stator/continuity/journal.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/frontend/answer.h"
#include "stator/frontend/model_catalog.h"
#include "stator/frontend/output_pipeline.h"
#include "stator/frontend/text_meters.h"
#include "stator/inference/request.h"
#include "stator/inference/sampling.h"
#include "stator/inference/step_output.h"
#include "stator/net/http_server.h"
#include "stator/parsers/stop_matcher.h"
#include "stator/request/prompt_view.h"
#include "stator/request/request_run.h"
#include "stator/router/prefill_router.h"
#include "stator/router/router_service.h"

namespace stator::frontend {

/// What the client said about where its request should go, and when.
struct RoutingWish {
  std::optional<WorkerId> pinned;
  std::optional<uint32_t> pinned_rank;
  std::optional<WorkerId> prefill_pinned;  ///< where the prompt is to be computed
  std::optional<uint32_t> prefill_rank;
  std::vector<WorkerId> allowed;  ///< empty = all
  std::vector<std::string> required_taints;
  std::vector<std::pair<std::string, float>> preferred_taints;
  router::CostOverride override;
  std::optional<uint32_t> expected_output_tokens;
  uint32_t strict_priority = 0;
  std::string tenant;
  double latency_sensitivity = 0;  ///< seconds ahead in the queue, where there is no priority
  double tenant_weight = 1;        ///< of its turns in the router's queue
  std::string session;             ///< empty = none
};

/// How long a model may reason, and what makes it stop: the frontend writes `close` for the model
/// and lets it go on from there, so that engines need not know of it.
struct ThinkingBudget {
  uint32_t tokens = 0;
  std::vector<TokenId> close;  ///< the family's marker and a line break
};

/// A request after validation, rendering and tokenization: what is left is to run it.
struct GenerationPlan {
  std::shared_ptr<ServedModel> model;
  std::vector<std::vector<TokenId>> prompts;  ///< ≥ 1, each not empty and below the context limit
  std::vector<std::vector<blocks::SequenceHash>> sequences;  ///< per prompt, of its full blocks
  uint32_t choices_per_prompt = 1;
  inference::SamplingParams sampling;
  std::vector<inference::StopConditions>
      stop;  ///< per prompt: max_tokens is clamped to the context
  std::shared_ptr<const parsers::StopMatcher> stop_strings;
  DecodeOptions decode;
  std::unique_ptr<const OutputFormat> format;          ///< null: plain text
  std::optional<ThinkingBudget> thinking;              ///< only with a format
  std::shared_ptr<const inference::MediaInput> media;  ///< of the one prompt; null: text only
  std::string media_json;                              ///< the same for the receipt
  std::string structured_outputs;                      ///< as in inference::EngineRequest
  bool require_reasoning = false;                      ///< the same
  bool hides_reasoning = false;                        ///< from the client, who wants none
  std::vector<std::string> echo;  ///< per prompt, sent before the first token; empty = none
  bool echo_logprobs = false;     ///< with `echo`, those of the prompt
  /// The engine tells log-probabilities of prompts, for the echo or `prompt_alternatives`.
  bool prompt_logprobs = false;
  std::optional<uint32_t> prompt_alternatives;  ///< per token of the prompt, in the answer
  /// Alternatives per token that the client sees, where engines are asked for more.
  std::optional<uint32_t> shown_alternatives;
  /// Of a prompt's choices the likeliest so many are answered; 0: all.
  uint32_t best_choices = 0;
  /// max_tokens is 0: the one token that engines make of every prompt is nobody's.
  bool writes_nothing = false;
  std::string cache_salt;
  std::string adapter;  ///< of the model; empty: the model itself
  RoutingWish routing;
  int32_t priority = 0;
  double received_unix_ms = 0;
  std::optional<double> client_unix_ms;  ///< when the client says it asked (request_timestamp_ms)
  std::optional<Duration> timeout;  ///< from arrival to the end of the answer; the client's wish
  bool want_worker_id = false;
  bool want_stop_reason = false;  ///< which stop string or token ended it
  bool announce_worker = false;   ///< with the frame `worker_instance_id`
  bool want_timing = false;
  bool want_token_ids = false;        ///< those of the answer; it has one choice
  bool want_engine_data = false;      ///< what the engine said of the request
  bool want_prompt_logprobs = false;  ///< in nvext, too
  /// Only who would answer is wanted (nvext annotation query_instance_id): nothing is generated.
  bool dry_run = false;
  continuity::JournalLimits migration;
  std::shared_ptr<const inference::RequestContext> context;  ///< null: nothing travels with it
  const TextMeters* texts = nullptr;  ///< measures some deltas; null: nobody does
  AnswerSpec answer;

  /// Of its blocks' hashes.
  uint64_t hash_seed() const { return blocks::hash_seed(adapter, cache_salt); }
  /// Whether its choices may go on at another worker when theirs is lost.
  continuity::Replay replay() const;
  /// It cannot be kept here; the client is told.
  void ignore_thinking_budget();
};

/// The text of one choice; where it is and at whom says its request::ChoiceRun.
struct ChoiceText {
  OutputPipeline pipeline;
  uint32_t cached_tokens = 0;
  uint32_t queued_us = 0;  ///< in the engine, as it says; 0: it does not
  uint32_t reasoning_tokens = 0;
  bool thought_enough = false;  ///< the thinking budget ended its reasoning
  double logprob_sum = 0;       ///< of its tokens, where choices are compared
  uint32_t logprob_count = 0;
};

/// What the output parser met, for metrics.
struct ParserCounts {
  uint32_t tool_calls = 0;
  std::array<uint32_t, parsers::kRecoveryCount> recoveries = {};  ///< by parsers::Recovery
};

using request::ChoiceRun;
using request::Progress;

/// One client request being generated: its run, the texts of its choices and its answer. Lives on a
/// shard from dispatch until the answer ended or the client left. Pure of transport: sessions and
/// timers are the shard's.
///
/// I1  What the journal does not accept never reaches a pipeline.
class Generation {
 public:
  /// An answer that is collected is held in `answers`; null: in no budget.
  Generation(GenerationPlan&& plan, net::HttpExchange& exchange, TimePoint received,
             net::ByteBudget* answers = nullptr);

  const GenerationPlan& plan() const { return plan_; }
  request::RequestRun& run() { return run_; }
  const request::RequestRun& run() const { return run_; }
  std::vector<ChoiceRun>& choices() { return run_.choices(); }
  const std::vector<ChoiceRun>& choices() const { return run_.choices(); }
  TimePoint received() const { return received_; }
  std::optional<TimePoint> first_token() const { return first_token_; }
  TimePoint last_activity() const { return last_activity_; }
  bool all_finished() const { return run_.all_closed(); }
  bool produced_tokens() const { return first_token_.has_value(); }
  uint32_t output_tokens() const { return usage_.completion_tokens; }
  uint32_t prompt_tokens() const { return usage_.prompt_tokens; }
  uint32_t cached_tokens() const { return usage_.cached_tokens; }
  uint32_t reasoning_tokens() const { return usage_.reasoning_tokens; }
  const ParserCounts& parser_counts() const { return counts_; }

  /// Takes a worker's output for `choice`; writes what became text.
  Progress on_delta(ChoiceRun& choice, const inference::Delta& delta,
                    const inference::StepOutput& output, TimePoint now);
  /// Ends the reasoning of a choice for the model; after kThoughtEnough.
  continuity::Journal::Step end_thinking(ChoiceRun& choice, TimePoint now);
  /// Ends a choice to which no worker will say its last word. kChoiceDone.
  Progress finish_choice(ChoiceRun& choice, inference::FinishReason finish, TimePoint now);
  /// After the last choice finished: ends the answer.
  void finish(TimePoint now);
  /// Instead of finish(), of a large body: see Answer::take_writer.
  Answer::BodyWriter take_writer(TimePoint now);
  void send_body(std::string body) { answer_->send_body(std::move(body)); }
  size_t collected_bytes() const { return answer_->collected_bytes(); }
  /// Ends the answer with an error, as a status or as an event.
  void fail(const api::ApiError& error);
  /// Sends a comment if the stream has been quiet for `interval`.
  void keep_alive(TimePoint now, Duration interval);

  /// The request as the engine gets it for a choice's current attempt: with everything accepted so
  /// far, so that it goes on where the last attempt ended.
  inference::EngineRequest make_engine_request(const ChoiceRun& choice, TimePoint now) const;
  /// The same for routing. A view: valid as long as the choice's output does not grow.
  request::PromptView view_prompt(const ChoiceRun& choice) const;

 private:
  ChoiceText& text_of(const ChoiceRun& choice) { return texts_[choice.facts().index]; }
  const ChoiceText& text_of(const ChoiceRun& choice) const { return texts_[choice.facts().index]; }
  bool scores_prompt(const ChoiceRun& choice) const;
  std::optional<uint32_t> thinking_left(const ChoiceRun& choice) const;
  Progress take_delta(ChoiceRun& choice, const inference::Delta& delta,
                      const inference::StepOutput& output, TimePoint now);
  void send_echo(const ChoiceRun& choice, const inference::StepOutput& output);
  void show_prompt_logprobs(const ChoiceRun& choice, const inference::StepOutput& output);
  std::span<const inference::TokenLogprobs> weigh_logprobs(
      ChoiceRun& choice, std::span<const inference::TokenLogprobs> logprobs);
  void choose_best();
  bool shows_usage() const;
  void send(const AnswerPiece& piece);
  std::string_view show_token_ids(std::span<const TokenId> tokens);
  void send_events(const parsers::EventList& events, AnswerPiece piece);
  void start_output(ChoiceRun& choice, const inference::Delta& delta,
                    const inference::StepOutput& output, TimePoint now);
  Decoded write_output(ChoiceRun& choice, std::span<const TokenId> tokens,
                       std::span<const inference::TokenLogprobs> logprobs,
                       const inference::Delta& delta);
  std::string nvext_json(TimePoint now) const;

  GenerationPlan plan_;
  std::unique_ptr<Answer> answer_;
  request::RequestRun run_;
  std::vector<ChoiceText> texts_;  // of its choices, in order
  api::Usage usage_;
  TimePoint received_;
  std::optional<TimePoint> first_token_;
  TimePoint last_activity_;
  TimePoint last_sent_;  ///< to the client
  ParserCounts counts_;
  std::optional<std::string> stop_reason_;
  std::optional<TokenId> stop_token_;
  uint32_t deltas_ = 0;               // modulo TextMeters::kSampled
  std::vector<TokenId> token_ids_;    // that are shown at the end; bounded by max_tokens
  std::string prompt_logprobs_json_;  // of the first prompt, for nvext
  std::vector<inference::TokenLogprobs> shown_logprobs_;  // of the piece that is sent
};

}  // namespace stator::frontend
