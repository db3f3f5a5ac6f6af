// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/sim_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/random.h"
#include "stator/engine/sim/shared_sim_runner.h"
#include "stator/engine/sim/sim_knobs.h"
#include "stator/perf/linear_timing.h"

namespace stator::engine {
namespace {

// Separate streams of hash bits for separate questions about the same state.
constexpr uint64_t kEosStream = 0xE05;
constexpr uint64_t kLogprobStream = 0x106;
constexpr uint64_t kDraftStream = 0xD4AF;

bool contains(std::span<const TokenId> tokens, TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

class SimRunner final : public ModelRunner {
 public:
  /// Of so many blocks the cells stay where they are, for those who read them.
  SimRunner(SimRunnerConfig config, uint32_t shared_blocks, uint32_t shared_host_blocks)
      : config_(std::move(config)),
        range_(config_.last_token - config_.first_token + 1),
        shared_(shared_blocks > 0),
        cells_(shared_blocks),
        host_cells_(shared_host_blocks) {}

  uint32_t vocab_size() const override { return config_.vocab_size; }
  uint32_t max_model_len() const override { return config_.max_model_len; }
  uint32_t draft_tokens() const override {
    return static_cast<uint32_t>(config_.draft_acceptance.size());
  }
  bool structured_output() const override { return !config_.replies.empty(); }
  bool takes_masks() const override { return config_.replies.empty(); }
  bool prompt_logprobs() const override { return true; }
  bool supports_host_tier() const override { return true; }

  void copy_blocks(std::span<const kv::BlockCopy> copies) override {
    for (const auto& [direction, block, slot] : copies) {
      Cell& on_device = cell(cells_, block.value());
      Cell& on_host = cell(host_cells_, slot);
      if (direction == kv::BlockCopy::Direction::kToHost) {
        on_host = on_device;
      } else {
        on_device = on_host;
      }
    }
  }

  std::span<std::byte> device_block(BlockId block) override {
    return shared_ ? bytes(cells_[block.value()]) : std::span<std::byte>();
  }
  std::span<std::byte> host_block(uint32_t slot) override {
    return shared_ && slot < host_cells_.size() ? bytes(host_cells_[slot]) : std::span<std::byte>();
  }

  void run(std::span<const SequenceSlice> slices, std::span<Sampled> sampled) override {
    for (size_t i = 0; i < slices.size(); ++i) {
      const uint64_t state = compute(slices[i], sampled[i]);
      if (slices[i].sample) {
        sample(slices[i], state, sampled[i]);
        draft(slices[i], state, sampled[i]);
      }
    }
  }

  Duration pass_time(const perf::PassShape& shape) const override {
    if (config_.speedup <= 0 || std::isinf(config_.speedup)) {
      return Duration::zero();
    }
    return std::max(perf::to_duration(config_.timing->prefill_ms(shape), config_.speedup) +
                        perf::to_duration(config_.timing->decode_ms(shape),
                                          config_.speedup * config_.decode_speedup),
                    perf::to_duration(config_.host_link.load_ms(shape), config_.speedup));
  }

 private:
  /// The stand-in for a block's KV: the hash of everything up to the last position written to it.
  struct Cell {
    uint64_t state = 0;
    uint32_t position = UINT32_MAX;
  };

  static std::span<std::byte> bytes(Cell& cell) {
    return std::as_writable_bytes(std::span(&cell, 1));
  }

  uint64_t compute(const SequenceSlice& slice, Sampled& out) {
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
      if (slice.score_prompt && position + 1 < slice.prompt_tokens) {
        out.prompt.push_back(
            logprobs(slice.tokens[position + 1], slice.sampling->logprobs.value_or(0), state));
      }
      if ((position + 1) % config_.block_size == 0 || position + 1 == end) {
        cell(slice, position) = {.state = state, .position = position};
      }
    }
    return state;
  }

  Cell& cell(const SequenceSlice& slice, uint32_t position) {
    return cell(cells_, slice.blocks[position / config_.block_size].value());
  }

  static Cell& cell(std::vector<Cell>& cells, size_t block) {
    if (block >= cells.size()) {
      cells.resize(block + 1);  // bounded by the tier's total_blocks
    }
    return cells[block];
  }

  void sample(const SequenceSlice& slice, uint64_t state, Sampled& out) const {
    out.token = next_token(slice, state, said(slice));
    if (slice.sampling->logprobs) {
      out.logprobs = logprobs(out.token, *slice.sampling->logprobs, seeded(slice, state));
    }
  }

  /// Draft tokens of a decode, as long as they are accepted: the tokens that the next passes would
  /// have given.
  void draft(const SequenceSlice& slice, uint64_t state, Sampled& out) {
    if (slice.count != 1 || !slice.may_draft || slice.sampling->logprobs ||
        !slice.allowed.empty()) {
      return;
    }
    size_t answered = said(slice) + 1;
    uint32_t position = static_cast<uint32_t>(slice.tokens.size());
    TokenId last = out.token;
    for (const double acceptance : config_.draft_acceptance) {
      constexpr double kRange = 18446744073709551616.0;  // 2^64
      const bool accepted = static_cast<double>(mix64(state ^ kDraftStream)) < acceptance * kRange;
      if (!accepted || answered >= slice.stop->max_tokens ||
          position / config_.block_size >= slice.blocks.size()) {
        return;
      }
      state = mix64(state ^ last);
      cell(slice, position) = {.state = state, .position = position};
      ++position;
      last = next_token(slice, state, answered++);
      out.drafted.push_back(last);
    }
  }

  static size_t said(const SequenceSlice& slice) {
    return slice.tokens.size() - slice.prompt_tokens;
  }

  static uint64_t seeded(const SequenceSlice& slice, uint64_t state) {
    return slice.sampling->seed && !slice.sampling->greedy()
               ? mix64(state ^ mix64(static_cast<uint64_t>(*slice.sampling->seed)))
               : state;
  }

  /// After `state`, the hash of all before it, and `said` tokens of the answer.
  TokenId next_token(const SequenceSlice& slice, uint64_t state, size_t said) const {
    return scripted(slice, said).value_or(choose(slice, seeded(slice, state), said));
  }

  std::optional<TokenId> scripted(const SequenceSlice& slice, size_t said) const {
    const ScriptedReply* reply = find_reply(slice.tokens.first(slice.prompt_tokens));
    if (reply == nullptr) {
      return std::nullopt;
    }
    if (said < reply->tokens.size()) {
      return reply->tokens[said];
    }
    const inference::StopConditions& stop = *slice.stop;
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

  /// A token of the mask by hash, from the printable range if that has any; the end as soon as it
  /// may come.
  static TokenId choose_allowed(const SequenceSlice& slice, uint64_t state, size_t said) {
    const inference::StopConditions& stop = *slice.stop;
    std::vector<TokenId> tokens;
    for (size_t word = 0; word < slice.allowed.size(); ++word) {
      for (uint64_t bits = slice.allowed[word]; bits != 0; bits &= bits - 1) {
        const auto token =
            static_cast<TokenId>(word * 64 + static_cast<size_t>(std::countr_zero(bits)));
        if (!contains(stop.eos_token_ids, token)) {
          tokens.push_back(token);
        }
      }
    }
    const bool ends = slice.may_end && !stop.ignore_eos && !stop.eos_token_ids.empty() &&
                      (tokens.empty() || said >= stop.min_tokens);
    if (ends) {
      return stop.eos_token_ids.front();
    }
    return tokens.empty() ? TokenId{0} : tokens[state % tokens.size()];
  }

  TokenId choose(const SequenceSlice& slice, uint64_t state, size_t said) const {
    if (!slice.allowed.empty()) {
      return choose_allowed(slice, state, said);
    }
    const inference::StopConditions& stop = *slice.stop;
    const bool may_stop = said >= stop.min_tokens;
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
  inference::TokenLogprobs logprobs(TokenId token, uint32_t alternatives, uint64_t state) const {
    const uint64_t bits = mix64(state ^ kLogprobStream);
    float logprob = -0.01F - static_cast<float>(bits % 1000) / 1000.0F;
    inference::TokenLogprobs out;
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

  SimRunnerConfig config_;
  uint32_t range_;
  const bool shared_;
  std::vector<Cell> cells_;       // by block id
  std::vector<Cell> host_cells_;  // by slot
};

}  // namespace

Result<std::vector<double>> read_acceptance(std::string_view text) {
  constexpr size_t kDraftsMax = 16;
  std::vector<double> out;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    double value = -1;
    const auto end = std::from_chars(item.data(), item.data() + item.size(), value);
    if (end.ec != std::errc() || end.ptr != item.data() + item.size() ||
        !(value >= 0 && value <= 1) || out.size() == kDraftsMax) {
      return Error(Code::kInvalidArgument,
                   fmt::format("draft acceptance must be at most {} numbers from 0 to 1 with "
                               "commas, '{}' is not",
                               kDraftsMax, item));
    }
    out.push_back(value);
  }
  return out;
}

Result<std::unique_ptr<ModelRunner>> make_sim_runner(const SimRunnerConfig& config) {
  return make_shared_sim_runner(config, 0, 0);
}

Result<std::unique_ptr<ModelRunner>> make_shared_sim_runner(SimRunnerConfig config, uint32_t blocks,
                                                            uint32_t host_blocks) {
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
  const bool never_waits = config.speedup == 0;
  if (!(config.decode_speedup > 0) ||
      (!never_waits &&
       !(config.speedup >= kSpeedupMin && config.speedup * config.decode_speedup >= kSpeedupMin))) {
    return refuse(
        fmt::format("speedup {} must be 0 or at least {}, and so must its product with "
                    "decode_speedup {}",
                    config.speedup, kSpeedupMin, config.decode_speedup));
  }
  for (const double acceptance : config.draft_acceptance) {
    if (!(acceptance >= 0 && acceptance <= 1)) {
      return refuse(fmt::format("draft_acceptance {} must be from 0 to 1", acceptance));
    }
  }
  if (config.timing == nullptr) {
    config.timing = std::make_shared<perf::LinearTiming>();
  }
  return std::make_unique<SimRunner>(std::move(config), blocks, host_blocks);
}

}  // namespace stator::engine
