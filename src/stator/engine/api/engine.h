// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stator/api/generation.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/engine/api/handoff.h"
#include "stator/engine/api/media.h"
#include "stator/engine/api/pool.h"
#include "stator/engine/api/request_context.h"

namespace stator::kv {
class EventLog;
}

namespace stator::engine {

class ForwardPassLog;

/// Names one attempt of one request on the wire and in an engine.
struct RequestKey {
  RequestId request;
  Attempt attempt;
  friend constexpr auto operator<=>(const RequestKey&, const RequestKey&) noexcept = default;
  template <typename H>
  friend H AbslHashValue(
      H state, const RequestKey& key) {  // NOLINT(readability-identifier-naming): absl's hook
    return H::combine(std::move(state), key.request, key.attempt);
  }
};

/// Work for an engine: token ids in, token ids out.
struct EngineRequest {
  RequestKey key;
  std::vector<TokenId>
      tokens;              ///< prompt, then `generated` tokens of earlier attempts; never empty
  uint32_t generated = 0;  ///< output tokens already sent to the client (0 on the first attempt)
  api::SamplingParams sampling;
  api::StopConditions stop;  ///< max_tokens counts `generated`, too
  int32_t priority = 0;      ///< higher runs first and is preempted last
  std::string cache_salt;    ///< isolates the prefix cache; empty = shared
  std::string lora_name;     ///< empty = base model
  /// Time left when submitted, 0 = none. The runtime cancels what is late; engines may ignore it.
  uint32_t deadline_ms = 0;
  /// Shape the output must have, as the JSON text of vLLM's request member `structured_outputs`
  /// (structured::read_structured_output reads it); empty = free. Only for engines whose
  /// EngineInfo::structured_output is set.
  std::string structured_outputs;
  bool require_reasoning = false;  ///< the shape begins after the model's reasoning
  /// Log-probabilities of the prompt, too, with as many alternatives as `sampling.logprobs` says,
  /// which is set. Only for engines whose EngineInfo::prompt_logprobs is set, without `generated`
  /// tokens, and for the whole request.
  bool prompt_logprobs = false;
  /// Images and the like; null: none. Only for engines whose EngineInfo::media has their kinds.
  /// Shared: an image is not copied per choice and attempt.
  std::shared_ptr<const MediaInput> media;
  /// Which of the engine's data-parallel ranks; unset = it may choose.
  std::optional<uint32_t> dp_rank;
  Phase phase = Phase::kWhole;  ///< others only for engines whose HandoffAbility says so
  /// kDecode: what to take. kPrefill: its id, and for givers with a meeting point the payload.
  Handoff handoff;
  /// Set: nothing is generated, `tokens` are the sequences this is about, and of all the above only
  /// key, priority, lora_name and deadline_ms count. Only for engines whose EngineInfo::pool has
  /// the task.
  std::optional<PoolRequest> pool;
  /// Null: nothing travels with it.
  std::shared_ptr<const RequestContext> context;
  uint64_t sent_unix_us = 0;  ///< when the frontend let go of it, by its clock; 0: not known
};

/// New tokens of one sequence. Views into the arrays of its StepOutput.
struct Delta {
  RequestKey key;
  uint32_t offset = 0;  ///< of the first token within the whole answer, all attempts
  uint32_t token_begin = 0;
  uint32_t token_count = 0;
  uint32_t cached_tokens = 0;  ///< of the prompt, from the prefix cache; on the first delta
  uint32_t queued_us = 0;      ///< from submit to its first step, on the first delta; 0: not known
  api::FinishReason finish = api::FinishReason::kNone;
  bool stopped_by_token =
      false;  ///< kStop: by `stop_token_ids` (its id is the last token), not EOS
};

/// A request that ended without finishing. Nothing follows it for that key.
struct Failure {
  RequestKey key;
  Error error;
};

/// What a kPrefill request gives: comes with its last delta, in the same step.
struct Offer {
  RequestKey key;
  Handoff handoff;
};

/// What a request with `prompt_logprobs` gets beside its first tokens, in the same step.
struct PromptLogprobs {
  RequestKey key;
  /// Of the prompt's second token and all that follow: nothing stands before the first one.
  std::vector<api::TokenLogprobs> tokens;
};

/// The answer to a request with `pool`: its last word.
struct Pooled {
  RequestKey key;
  PoolAnswer answer;
};

/// What one engine step produced for one session: one message, whatever the number of sequences.
/// A delta with `finish` set, a failure or a pooled answer is the last word on its key; exactly one
/// of them comes for every accepted request that was not cancelled.
struct StepOutput {
  std::vector<Delta> deltas;
  std::vector<TokenId> tokens;  ///< of all deltas, in order
  std::vector<api::TokenLogprobs>
      logprobs;  ///< parallel to `tokens` if any delta has them, else empty
  std::vector<Failure> failures;
  std::vector<Offer> offers;
  std::vector<PromptLogprobs> prompts;
  std::vector<Pooled> pooled;

  std::span<const TokenId> tokens_of(const Delta& delta) const {
    return std::span(tokens).subspan(delta.token_begin, delta.token_count);
  }
  std::span<const api::TokenLogprobs> logprobs_of(const Delta& delta) const {
    return logprobs.empty() ? std::span<const api::TokenLogprobs>()
                            : std::span(logprobs).subspan(delta.token_begin, delta.token_count);
  }
  /// Empty for a key that got none.
  std::span<const api::TokenLogprobs> prompt_of(const RequestKey& key) const {
    const auto found = std::ranges::find(prompts, key, &PromptLogprobs::key);
    return found == prompts.end() ? std::span<const api::TokenLogprobs>() : found->tokens;
  }
};

/// Receives one session's output. Called on the engine's thread: move it to the home loop and
/// return.
class EngineSink {
 public:
  virtual ~EngineSink() = default;
  virtual void on_step(StepOutput output) noexcept = 0;
};

/// A frontend shard's connection to an engine.
using SessionId = StrongId<struct SessionTag, uint64_t>;

/// What a worker tells about its engine when it registers.
struct EngineInfo {
  std::string kind;  ///< "cpu", "sim", …
  std::string version;
  uint32_t block_size = 16;  ///< tokens
  uint32_t total_blocks = 0;
  uint32_t max_model_len = 0;  ///< prompt and output tokens
  uint32_t max_num_seqs = 0;
  uint32_t max_num_batched_tokens = 0;
  uint32_t vocab_size = 0;
  uint32_t dp_size = 1;            ///< data-parallel ranks, each with `total_blocks` of its own
  bool kv_events = true;           ///< events() tells what it has cached
  bool structured_output = false;  ///< follows EngineRequest::structured_outputs
  /// It does so from within an answer, too: it takes EngineRequest::generated tokens into account
  /// before the next one. Without it such requests are not moved here once they have begun.
  bool structured_replay = false;
  bool prompt_logprobs = false;  ///< follows EngineRequest::prompt_logprobs
  bool token_filters = false;    ///< follows allowed_token_ids and bad_words
  api::MediaKinds media;         ///< what it can be given beside text
  HandoffAbility handoff;
  PoolAbility pool;
};

/// A snapshot of how busy an engine is.
struct LoadReport {
  uint32_t kv_used_blocks = 0;    ///< referenced by running sequences
  uint32_t kv_cached_blocks = 0;  ///< idle but reusable
  uint32_t kv_total_blocks = 0;
  uint32_t running = 0;
  uint32_t waiting = 0;
  uint64_t prefix_hit_tokens = 0;    ///< since start
  uint64_t prefix_query_tokens = 0;  ///< since start
  uint64_t preemptions = 0;          ///< since start
};

/// An inference engine as the worker sees it. All methods are thread-safe unless stated; none
/// blocks on a step. Lifecycle: make → start → sessions → stop (idempotent; ends running requests
/// with kDraining failures) → destroy.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const EngineInfo& info() const = 0;
  virtual Status start() = 0;
  virtual void stop() = 0;

  /// `sink` must outlive the session. After close_session returns, the sink is not called again
  /// and the session's requests are cancelled.
  virtual SessionId open_session(EngineSink& sink) = 0;
  virtual void close_session(SessionId session) = 0;

  /// Ok: accepted, and the sink will get its end unless it is cancelled. Error: refused, nothing
  /// will come. kInvalidArgument for a request this engine cannot run (empty prompt, token out of
  /// the vocabulary, prompt ≥ max_model_len), kOverloaded when its queue is full, kDraining after
  /// stop.
  virtual Status submit(SessionId session, EngineRequest request) = 0;
  /// Frees the sequence before the next step; its output may still be in flight. Unknown keys are
  /// ignored.
  virtual void cancel(SessionId session, RequestKey key) = 0;

  virtual LoadReport load() const = 0;
  /// The engine's KV events, in order, with replay. Owned by the engine.
  virtual kv::EventLog& events() = 0;
  /// Its forward passes, pass by pass. Owned by the engine; null where they cannot be seen.
  virtual ForwardPassLog* forward_passes() { return nullptr; }
  /// Forgets all idle cached blocks (an AllCleared event follows).
  virtual void reset_prefix_cache() = 0;
};

}  // namespace stator::engine
