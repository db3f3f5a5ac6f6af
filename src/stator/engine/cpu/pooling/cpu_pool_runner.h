// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "stator/core/result.h"
#include "stator/engine/api/pool_runner.h"
#include "stator/engine/cpu/forward.h"
#include "stator/engine/cpu/kv_arena.h"
#include "stator/engine/cpu/pooling/encoder.h"
#include "stator/engine/cpu/pooling/pooling_model.h"
#include "stator/engine/cpu/thread_team.h"

namespace stator::engine::cpu {

struct CpuPoolConfig {
  uint32_t threads = 1;        ///< 1 … ThreadTeam::kSizeMax, the calling thread included
  uint32_t max_model_len = 0;  ///< tokens of a sequence; 0: what the model allows
  Isa isa = detect_isa();
};

/// Runs a pooling model on the CPU.
///
///   STATOR_TRY(auto model, load_pooling_model("models/all-MiniLM-L6-v2", "auto"));
///   STATOR_TRY(auto runner, CpuPoolRunner::create(model, {.threads = 2}));
///
/// I1  The numbers of a sequence are bit-equal whatever else is in the pass, and for any number of
///     threads.
/// Thread-safety: one caller.
class CpuPoolRunner final : public PoolRunner {
  struct Private {};  // only create() can name it

 public:
  CpuPoolRunner(Private /*key*/, std::shared_ptr<const PoolingModel> model,
                const CpuPoolConfig& config, std::optional<KvArena> cache);
  /// kInvalidArgument, naming the setting, for values out of range.
  static Result<std::unique_ptr<PoolRunner>> create(std::shared_ptr<const PoolingModel> model,
                                                    const CpuPoolConfig& config);

  const inference::PoolAbility& ability() const override { return ability_; }
  uint32_t vocab_size() const override { return model_->vocab_size(); }
  uint32_t max_model_len() const override { return max_model_len_; }
  uint32_t width(inference::PoolTask task) const override;
  void run(std::span<const PoolSequence> sequences, std::span<std::vector<float>> out) override;

 private:
  void run_encoder(std::span<const PoolSequence> sequences, std::span<std::vector<float>> out);
  void run_decoder(std::span<const PoolSequence> sequences, std::span<std::vector<float>> out);
  void pool(const PoolSequence& sequence, std::span<const float> rows, std::vector<float>& out);
  void classify(const PoolSequence& sequence, std::span<const float> rows, std::vector<float>& out);

  std::shared_ptr<const PoolingModel> model_;  // shared: see PoolingModel
  uint32_t max_model_len_;
  inference::PoolAbility ability_;
  ThreadTeam team_;
  std::optional<Encoder> encoder_;
  std::optional<KvArena> cache_;  // of a decoder: one group of sequences
  std::optional<Forward> forward_;
  std::vector<float> rows_;  // of a decoder's group: final hidden states
};

}  // namespace stator::engine::cpu
