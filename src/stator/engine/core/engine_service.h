// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/engine/api/engine.h"
#include "stator/engine/api/model_runner.h"
#include "stator/engine/core/engine_config.h"
#include "stator/guided/vocabulary.h"

namespace stator::storage {
class LowerTiers;
}

namespace stator::engine {

namespace handoff {
class Port;
}

/// Where an engine's KV blocks may also come from or go to; any may be null.
struct EngineNeighbours {
  /// Below host memory, shared by the engines of a process.
  std::shared_ptr<storage::LowerTiers> lower;
  /// Engines of the other role: this one computes prompts for them, or goes on from theirs. Of one
  /// engine; made for its KV blocks. Shared with who asks whether prompts are owed.
  std::shared_ptr<handoff::Port> port;
};

/// Where the bytes of the model's tokens come from, for grammars. Called once, on a thread of the
/// engine's, when the first request has structured_outputs. Empty: there are none.
using VocabularySource = std::function<Result<std::shared_ptr<const guided::Vocabulary>>()>;

/// A complete engine: one thread that owns a scheduler and drives a runner step by step, or several
/// of both, one for each of `runners`: data-parallel ranks, each with the KV blocks and limits of
/// `config` of its own. The ranks' passes begin together and last as long as the slowest one's. A
/// request without a dp_rank goes to the rank with the fewest requests.
///
///   STATOR_TRY(auto engine, make_engine(config, std::move(runner), clock, metrics));
///   STATOR_CHECK(engine->start());
///   SessionId session = engine->open_session(sink);
///   STATOR_CHECK(engine->submit(session, request));   // sink.on_step(...) on the engine's thread
///
/// Threads: submit, cancel, open_session, close_session, load, events and reset_prefix_cache come
/// from any thread and wait at most for another caller, except that close_session waits for a
/// running on_step of any session. stop and close_session must not be called from inside on_step.
/// Requests cross to the engine's thread through an inbox that holds at most `waiting_max` of them;
/// beyond that submit says kOverloaded. An idle engine sleeps.
///
/// `clock` times steps and the waits that a simulated runner asks for; it must advance by itself
/// (the operating system's). Simulations on virtual time drive Scheduler directly. `clock` and
/// `metrics` outlive the engine.
///
/// A request with structured_outputs waits while a thread of its own compiles the grammar, at most
/// `waiting_max` of them; grammars of earlier requests are kept (guided::GrammarCache). Whatever
/// goes wrong is a failure of that request.
///
/// Tiers below host memory, and prompts of others, need config.host_blocks to load into.
///
/// Errors: kInvalidArgument if the config contradicts itself or the runner; the message names the
/// key. There is at least one runner.
Result<std::unique_ptr<Engine>> make_engine(EngineConfig config,
                                            std::vector<std::unique_ptr<ModelRunner>> runners,
                                            Clock& clock, Metrics& metrics,
                                            VocabularySource vocabulary = {},
                                            EngineNeighbours neighbours = {});
/// Of one rank.
Result<std::unique_ptr<Engine>> make_engine(EngineConfig config,
                                            std::unique_ptr<ModelRunner> runner, Clock& clock,
                                            Metrics& metrics, VocabularySource vocabulary = {});

}  // namespace stator::engine
