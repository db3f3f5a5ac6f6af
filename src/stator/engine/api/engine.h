// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/inference/handoff.h"
#include "stator/inference/media.h"
#include "stator/inference/pool.h"
#include "stator/inference/request.h"
#include "stator/inference/step_output.h"

namespace stator::kv {
class EventLog;
}

namespace stator::engine {

class ForwardPassLog;

/// Receives one session's output. Called on the engine's thread: move it to the home loop and
/// return.
class EngineSink {
 public:
  virtual ~EngineSink() = default;
  virtual void on_step(inference::StepOutput output) noexcept = 0;
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
  inference::MediaKinds media;   ///< what it can be given beside text
  inference::HandoffAbility handoff;
  inference::PoolAbility pool;
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
  virtual Status submit(SessionId session, inference::EngineRequest request) = 0;
  /// Frees the sequence before the next step; its output may still be in flight. Unknown keys are
  /// ignored.
  virtual void cancel(SessionId session, inference::RequestKey key) = 0;

  virtual LoadReport load() const = 0;
  /// The engine's KV events, in order, with replay. Owned by the engine.
  virtual kv::EventLog& events() = 0;
  /// Its forward passes, pass by pass. Owned by the engine; null where they cannot be seen.
  virtual ForwardPassLog* forward_passes() { return nullptr; }
  /// Forgets all idle cached blocks (an AllCleared event follows).
  virtual void reset_prefix_cache() = 0;
};

}  // namespace stator::engine
