// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/sim_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/random.h"

namespace stator::engine {
namespace {

// Separate streams of hash bits for separate questions about the same state.
constexpr uint64_t kEosStream = 0xE05;
constexpr uint64_t kLogprobStream = 0x106;

bool contains(std::span<const TokenId> tokens, TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

class SimRunner final : public ModelRunner {
 public:
  explicit SimRunner(const SimRunnerConfig& config)
      : config_(config), range_(config.last_token - config.first_token + 1) {}

  uint32_t vocab_size() const override { return config_.vocab_size; }
  uint32_t max_model_len() const override { return config_.max_model_len; }
  bool structured_output() const override { return !config_.replies.empty(); }

  Duration run(std::span<const SequenceSlice> slices, std::span<Sampled> sampled) override {
    for (size_t i = 0; i < slices.size(); ++i) {
      const uint64_t state = compute(slices[i]);
      if (slices[i].sample) {
        sample(slices[i], state, sampled[i]);
      }
    }
    return step_time(slices);
  }

 private:
  /// The stand-in for a block's KV: the hash of everything up to the last position written to it.
  struct Cell {
    uint64_t state = 0;
    uint32_t position = UINT32_MAX;
  };

  uint64_t compute(const SequenceSlice& slice) {
    uint64_t state = mix64(config_.seed);
    if (slice.start > 0) {
      const Cell& before = cell(slice, slice.start - 1);
      STATOR_ASSERT(before.position == slice.start - 1,
                    "the block table names a block that does not hold this sequence's prefix");
      state = before.state;
    }
    const uint32_t end = slice.start + slice.count;
    for (uint32_t position = slice.start; position < end; ++position) {
      state = mix64(state ^ slice.tokens[position]);
      if ((position + 1) % config_.block_size == 0 || position + 1 == end) {
        cell(slice, position) = {.state = state, .position = position};
      }
    }
    return state;
  }

  Cell& cell(const SequenceSlice& slice, uint32_t position) {
    const size_t block = slice.blocks[position / config_.block_size].value();
    if (block >= cells_.size()) {
      cells_.resize(block + 1);  // bounded by the pool's total_blocks
    }
    return cells_[block];
  }

  void sample(const SequenceSlice& slice, uint64_t state, Sampled& out) const {
    if (slice.sampling->seed && !slice.sampling->greedy()) {
      state = mix64(state ^ mix64(static_cast<uint64_t>(*slice.sampling->seed)));
    }
    out.token = scripted(slice).value_or(choose(slice, state));
    if (slice.sampling->logprobs) {
      out.logprobs = logprobs(out.token, *slice.sampling->logprobs, state);
    }
  }

  std::optional<TokenId> scripted(const SequenceSlice& slice) const {
    const ScriptedReply* reply = find_reply(slice.tokens.first(slice.prompt_tokens));
    if (reply == nullptr) {
      return std::nullopt;
    }
    const size_t said = slice.tokens.size() - slice.prompt_tokens;
    if (said < reply->tokens.size()) {
      return reply->tokens[said];
    }
    const api::StopConditions& stop = *slice.stop;
    const bool may_stop =
        said >= stop.min_tokens && !stop.ignore_eos && !stop.eos_token_ids.empty();
    return may_stop ? std::optional(stop.eos_token_ids.front()) : std::nullopt;
  }

  const ScriptedReply* find_reply(std::span<const TokenId> prompt) const {
    if (config_.replies.empty()) {
      return nullptr;
    }
    std::string text;
    if (config_.token_bytes) {
      for (const TokenId token : prompt) {
        text += config_.token_bytes(token);
      }
    }
    const ScriptedReply* best = nullptr;
    size_t best_end = 0;
    for (const ScriptedReply& reply : config_.replies) {
      const size_t begin = reply.when.empty() ? 0 : text.rfind(reply.when);
      if (begin == std::string::npos) {
        continue;
      }
      const size_t end = begin + reply.when.size();
      if (best == nullptr || end > best_end) {
        best = &reply;
        best_end = end;
      }
    }
    return best;
  }

  TokenId choose(const SequenceSlice& slice, uint64_t state) const {
    const api::StopConditions& stop = *slice.stop;
    const bool may_stop = slice.tokens.size() - slice.prompt_tokens >= stop.min_tokens;
    const bool wants_eos = config_.eos_every > 0 && !stop.ignore_eos &&
                           !stop.eos_token_ids.empty() &&
                           mix64(state ^ kEosStream) % config_.eos_every == 0;
    if (may_stop && wants_eos) {
      return stop.eos_token_ids.front();
    }
    // Skips what must not be said; gives up when the whole range is forbidden.
    const size_t tries = stop.eos_token_ids.size() + stop.stop_token_ids.size();
    for (uint64_t i = 0; i <= tries; ++i) {
      const TokenId token = token_at(state % range_ + i);
      const bool forbidden = contains(stop.eos_token_ids, token) ||
                             (!may_stop && contains(stop.stop_token_ids, token));
      if (!forbidden) {
        return token;
      }
    }
    return token_at(state % range_);
  }

  TokenId token_at(uint64_t index) const {
    return config_.first_token + static_cast<TokenId>(index % range_);
  }

  /// The sampled token first, then its neighbours in the range, each clearly less likely.
  api::TokenLogprobs logprobs(TokenId token, uint32_t alternatives, uint64_t state) const {
    const uint64_t bits = mix64(state ^ kLogprobStream);
    float logprob = -0.01F - static_cast<float>(bits % 1000) / 1000.0F;
    api::TokenLogprobs out;
    out.sampled = {.token = token, .logprob = logprob, .rank = 1};
    const uint32_t count = std::min(alternatives, range_);
    const uint64_t index = token < config_.first_token ? 0 : token - config_.first_token;
    for (uint32_t i = 0; i < count; ++i) {
      const TokenId other = i == 0 ? token : token_at(index + i);
      out.top.push_back({.token = other, .logprob = logprob, .rank = i + 1});
      logprob = std::max(logprob - 1.5F, -9999.0F);
    }
    return out;
  }

  Duration step_time(std::span<const SequenceSlice> slices) const {
    const SimTiming& timing = config_.timing;
    if (timing.speedup <= 0 || std::isinf(timing.speedup)) {
      return Duration::zero();
    }
    double us = timing.step_us;
    for (const SequenceSlice& slice : slices) {
      const double count = slice.count;
      if (slice.count > 1) {
        us += timing.prefill_token_us * count +
              timing.prefill_pair_us * count * (slice.start + count / 2);
      } else {
        us += timing.decode_sequence_us +
              timing.decode_context_token_us * static_cast<double>(slice.tokens.size());
      }
    }
    return std::chrono::duration_cast<Duration>(
        std::chrono::duration<double, std::micro>(us / timing.speedup));
  }

  SimRunnerConfig config_;
  uint32_t range_;
  std::vector<Cell> cells_;  // by block id
};

}  // namespace

Result<std::unique_ptr<ModelRunner>> make_sim_runner(const SimRunnerConfig& config) {
  const auto refuse = [](std::string message) {
    return Error(Code::kInvalidArgument, "simulated engine: " + std::move(message));
  };
  if (config.first_token > config.last_token || config.last_token >= config.vocab_size) {
    return refuse(fmt::format("first_token {} … last_token {} must be a range within vocab_size {}",
                              config.first_token, config.last_token, config.vocab_size));
  }
  if (config.block_size == 0) {
    return refuse("block_size is 0, must be the engine's");
  }
  if (config.replies.size() > kMaxScriptedReplies) {
    return refuse(fmt::format("{} replies, at most {} are allowed", config.replies.size(),
                              kMaxScriptedReplies));
  }
  for (const ScriptedReply& reply : config.replies) {
    const auto unknown = std::ranges::find_if(
        reply.tokens, [&](TokenId token) { return token >= config.vocab_size; });
    if (unknown != reply.tokens.end()) {
      return refuse(fmt::format("a reply has token {}, the vocabulary ends at {}", *unknown,
                                config.vocab_size));
    }
    if (!reply.when.empty() && !config.token_bytes) {
      return refuse("a reply has a condition, but the text of tokens is not known");
    }
  }
  const SimTiming& timing = config.timing;
  for (const double coefficient :
       {timing.step_us, timing.prefill_token_us, timing.prefill_pair_us, timing.decode_sequence_us,
        timing.decode_context_token_us, timing.speedup}) {
    if (std::isnan(coefficient) || coefficient < 0) {
      return refuse(fmt::format("timing coefficient {} must be a number ≥ 0", coefficient));
    }
  }
  return std::make_unique<SimRunner>(config);
}

}  // namespace stator::engine
