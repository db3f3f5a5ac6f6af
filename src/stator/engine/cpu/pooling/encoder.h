// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stator/engine/api/pool_runner.h"
#include "stator/engine/cpu/kernels.h"
#include "stator/engine/cpu/matmul.h"
#include "stator/engine/cpu/pooling/encoder_model.h"
#include "stator/engine/cpu/thread_team.h"

namespace stator::engine::cpu {

/// The forward pass of an encoder: sequences in, one hidden vector per token out.
///
///   embeddings → norm → layers × (attention over the whole sequence → norm → feed-forward → norm)
///
/// I1  What a sequence gives does not depend on the others, nor on the team (kernels.h, K1).
/// Thread-safety: one caller. `model` and `team` outlive this.
class Encoder {
 public:
  Encoder(const EncoderModel& model, const Kernels& kernels, ThreadTeam& team);

  /// Hidden vectors of all tokens, sequence after sequence, `hidden_size` numbers each; valid until
  /// the next call.
  std::span<const float> run(std::span<const PoolSequence> sequences);

  /// The classification head on the first token of a sequence: raw numbers, one per label.
  void classify(const float* first_token, std::vector<float>& out);

 private:
  /// Where a sequence lies among the rows.
  struct Part {
    int64_t begin = 0;
    int64_t count = 0;
  };

  void embed(std::span<const PoolSequence> sequences);
  void attention(const EncoderLayer& layer, int64_t rows);
  void attend(const Part& part, int64_t head, int64_t row, uint32_t member);
  void feed_forward(const EncoderLayer& layer, int64_t rows);
  /// stream = norm(stream + projected + bias).
  void add_and_normalize(const EncoderLinear& linear, const EncoderNorm& norm, int64_t rows);

  const EncoderModel& model_;
  const Kernels& kernels_;
  ThreadTeam& team_;
  Matmul matmul_;
  std::vector<Part> parts_;
  std::vector<int64_t> part_of_row_;
  std::vector<float> stream_;               // [hidden] per row, as are
  std::vector<float> attended_;             // this
  std::vector<float> projected_;            // and this
  std::vector<float> query_key_value_;      // [3 · hidden]
  std::vector<float> inner_;                // [intermediate]
  std::vector<std::vector<float>> scores_;  // per team member
};

}  // namespace stator::engine::cpu
