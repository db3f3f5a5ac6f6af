// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "stator/core/result.h"
#include "stator/engine/api/model_runner.h"
#include "stator/engine/core/bad_words.h"
#include "stator/engine/cpu/forward.h"
#include "stator/engine/cpu/kernels.h"
#include "stator/engine/cpu/kv_arena.h"
#include "stator/engine/cpu/model.h"
#include "stator/engine/cpu/prompt_lookup.h"
#include "stator/engine/cpu/sampler.h"
#include "stator/engine/cpu/thread_team.h"

namespace stator::engine::cpu {

struct CpuRunnerConfig {
  uint32_t block_size = 16;    ///< tokens per KV block, 1 … 1024
  uint32_t kv_blocks = 0;      ///< at least 1; memory becomes resident as blocks are used
  uint32_t host_blocks = 0;    ///< blocks of the host tier; resident as they are used
  uint32_t threads = 1;        ///< 1 … ThreadTeam::kSizeMax, the calling thread included
  uint64_t seed = 0;           ///< of the draws of requests without a seed
  uint32_t max_model_len = 0;  ///< 0: what the model allows
  KvType kv_type = KvType::kF32;
  PromptLookup lookup;
  TextEncoder encoder;  ///< for bad_words; called on the engine's thread
  Isa isa = detect_isa();
};

/// Runs a real checkpoint on the CPU.
///
///   STATOR_TRY(auto model, load_model("models/demo"));
///   STATOR_TRY(auto runner, CpuModelRunner::create(model, {.kv_blocks = 1024}));
///
/// I1  Tokens, log-probabilities and KV bytes of a sequence are bit-equal whatever else is in the
///     batch, however its tokens were cut into chunks or steps, whether a prefix was already in
///     the blocks, and for any number of threads. Between kAvx2 and kAvx512, too (kernels.h, K2).
/// I2  A step's scratch memory is bounded: rows are worked off Forward::kRowsMax at a time, logits
///     kLogitRowsMax at a time.
/// Thread-safety: run() by one thread; kv() may be read between steps.
class CpuModelRunner final : public ModelRunner {
  struct Private {};  // only create() can name it

 public:
  CpuModelRunner(Private /*key*/, std::shared_ptr<const Model> model, const CpuRunnerConfig& config,
                 KvArena cache, std::optional<KvArena> host);
  /// kInvalidArgument, naming the setting, for values out of range.
  static Result<std::unique_ptr<CpuModelRunner>> create(std::shared_ptr<const Model> model,
                                                        const CpuRunnerConfig& config);

  uint32_t vocab_size() const override { return model_->config.vocab_size; }
  /// Bounded by the model's positions, by the setting, and by what the whole KV cache holds.
  uint32_t max_model_len() const override { return max_model_len_; }
  bool takes_masks() const override { return true; }
  bool prompt_logprobs() const override { return true; }
  uint32_t draft_tokens() const override { return lookup_.tokens; }
  LongPrompts long_prompts() const override;
  void discard_kv() override { cache_.discard(); }
  void run(std::span<const SequenceSlice> slices, std::span<Sampled> sampled) override;
  bool supports_host_tier() const override { return true; }
  void copy_blocks(std::span<const kv::BlockCopy> copies) override;
  std::span<std::byte> device_block(BlockId block) override { return cache_.block_view(block); }
  std::span<std::byte> host_block(uint32_t slot) override {
    return host_->block_view(BlockId(slot));
  }

  const Model& model() const { return *model_; }
  KvArena& kv() { return cache_; }

  /// Called with the raw logits of every sampled position, before sampling; for tests and tools.
  using LogitsObserver = std::function<void(size_t slice, std::span<const float> logits)>;
  void set_logits_observer(LogitsObserver observer) { observer_ = std::move(observer); }

 private:
  static constexpr size_t kLogitRowsMax = 16;
  /// A row of the current run() whose logits are wanted, and the slice it ends.
  struct Wanted {
    uint32_t row;
    size_t slice;
    uint32_t next;  // position behind the row's: of a prompt token to score, or the one to draw
  };
  /// A slice with guessed tokens behind its last one.
  struct Guess {
    size_t slice = 0;
    std::vector<TokenId> tokens;              // of the sequence, then the guessed ones
    std::span<const GuessMasks::Mask> masks;  // under a grammar: behind each of the guessed
    bool wrong = false;                       // one of them did not come
  };

  void make_guess(const SequenceSlice& slice, size_t index);
  void flush(std::span<const SequenceSlice> slices, std::span<Sampled> sampled);
  void use_logits(const SequenceSlice& slice, const Wanted& wanted, std::span<float> logits,
                  Sampled& out);
  void follow_guess(const SequenceSlice& slice, const Wanted& wanted, std::span<float> logits,
                    Sampled& out);
  SampleResult sample(const SequenceSlice& slice, std::span<const TokenId> tokens,
                      std::span<float> logits, const GuessMasks::Mask& mask);
  /// Into banned_; with an error the slice ends.
  void find_banned(const SequenceSlice& slice, std::span<const TokenId> tokens, Sampled& out);

  std::span<const TokenId> tokens_of(const SequenceSlice& slice, size_t index) const;

  std::shared_ptr<const Model> model_;  // shared: see Model
  PromptLookup lookup_;
  uint64_t seed_;
  uint32_t max_model_len_;
  KvArena cache_;
  std::optional<KvArena> host_;  // none: no host tier
  ThreadTeam team_;
  Forward forward_;
  Sampler sampler_;
  BadWords bad_words_;
  std::vector<TokenId> banned_;
  LogitsObserver observer_;
  std::vector<ForwardRow> rows_;
  std::vector<Wanted> wanted_;
  std::vector<Guess> guesses_;  // of the current run(), by slice
  std::vector<float> logits_;
};

}  // namespace stator::engine::cpu
