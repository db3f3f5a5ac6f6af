// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/engine/api/model_runner.h"
#include "stator/perf/timing_model.h"

namespace stator::engine {

/// Reads numbers from 0 to 1 with commas between them, at most 16
/// (SimRunnerConfig::draft_acceptance). kInvalidArgument says what is none.
Result<std::vector<double>> read_acceptance(std::string_view text);

/// A text that the simulated model says word for word, instead of tokens drawn by hash: for tests
/// and demonstrations of what stands above an engine (tool calls, reasoning, stop strings).
struct ScriptedReply {
  /// The reply is given to prompts whose text contains this; empty: to any prompt.
  std::string when;
  std::vector<TokenId> tokens;
};

/// Limits of the replies of one engine.
inline constexpr size_t kMaxScriptedReplies = 1024;

struct SimRunnerConfig {
  uint32_t vocab_size = 32'000;
  uint32_t max_model_len = 32'768;
  uint32_t block_size = 16;  ///< must equal EngineConfig::block_size
  uint64_t seed = 0;         ///< another seed is another model
  /// Output tokens are drawn from [first_token, last_token], so that their text can be sensible.
  TokenId first_token = 0;
  TokenId last_token = 31'999;
  /// Mean answer length in tokens after which the model says EOS by itself (if the request names an
  /// EOS token); 0 = never.
  uint32_t eos_every = 0;
  /// How long its passes last; null: perf::LinearTiming. Shared with other engines of the process.
  std::shared_ptr<const perf::TimingModel> timing;
  double speedup = 1;         ///< divides that time; 0 or infinity: no waiting at all
  double decode_speedup = 1;  ///< divides the decode part further
  perf::HostLink host_link;   ///< its load time is divided by `speedup`
  /// Speculative decoding: with what probability draft token i is accepted once all before it
  /// were; empty: off. Tokens stay the same, they come sooner.
  std::vector<double> draft_acceptance;
  /// Of the replies whose `when` is in the prompt the one found furthest to the end is given, so
  /// that the latest turn of a conversation decides; an empty `when` comes last, equals are decided
  /// by their order here. Then EOS follows. No reply fits: drawn tokens, as without replies. With
  /// replies the engine also takes requests for structured output: their shape is up to the author
  /// of the reply.
  std::vector<ScriptedReply> replies;
  /// The bytes of a token, to search prompts for `when`; needed if any `when` is not empty.
  std::function<std::string_view(TokenId)> token_bytes;
};

/// A model made of a hash: every output token is a function of all earlier tokens of its sequence
/// (and of `seed`, and of the request's seed unless greedy), so the output of a preempted, batched,
/// prefix-cached or migrated request can be checked exactly. Its "KV" is the rolling hash at the
/// last written position of each block, read back through the block table like real KV: a scheduler
/// that mixes blocks up is caught by an assertion or gives other tokens. O(new tokens) per step;
/// with scripted replies O(bytes of the prompt · replies) per sampled token. A reply's next token
/// only depends on how many tokens the sequence has generated, so replies survive preemption and
/// migration, too.
/// Logprobs, when asked for, are deterministic and ordered. kInvalidArgument for a bad config.
Result<std::unique_ptr<ModelRunner>> make_sim_runner(const SimRunnerConfig& config);

}  // namespace stator::engine
