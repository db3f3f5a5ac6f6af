// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "stator/core/ids.h"
#include "stator/engine/cpu/kernels.h"
#include "stator/engine/cpu/lora.h"
#include "stator/engine/cpu/matmul.h"
#include "stator/engine/cpu/thread_team.h"

namespace stator::engine::cpu {

/// Adds what adapters say to what a model computed. The references outlive this.
/// Thread-safety: one caller.
class LoraMath {
 public:
  LoraMath(const Kernels& kernels, ThreadTeam& team, Matmul& matmul)
      : kernels_(kernels), team_(team), matmul_(matmul) {}

  /// Rows of inputs, and of the outputs that are added to.
  struct Place {
    const float* in;
    int64_t in_stride;
    float* out;
    int64_t out_stride;
  };

  /// For `count` rows: adapter_at(row) is the row's adapter or null, pair_of(adapter) what that one
  /// does, null or empty for nothing. Rows of one adapter that stand together are one product.
  template <typename AdapterAt, typename PairOf>
  void adapt_rows(int64_t count, const AdapterAt& adapter_at, const PairOf& pair_of,
                  const Place& place) {
    for (int64_t first = 0; first < count;) {
      const LoraAdapter* adapter = adapter_at(first);
      int64_t end = first + 1;
      while (end < count && adapter_at(end) == adapter) {
        ++end;
      }
      const int64_t begin = std::exchange(first, end);
      const LoraPair* pair = adapter == nullptr ? nullptr : pair_of(*adapter);
      if (pair != nullptr && pair->a.outputs() != 0) {
        add_pair(*pair, end - begin,
                 {place.in + begin * place.in_stride, place.in_stride,
                  place.out + begin * place.out_stride, place.out_stride});
      }
    }
  }
  /// To the embedding of one token.
  void add_embedding(const LoraEmbedding& embedding, TokenId token, float* out);

 private:
  void add_pair(const LoraPair& pair, int64_t count, const Place& place);

  const Kernels& kernels_;
  ThreadTeam& team_;
  Matmul& matmul_;
  std::vector<float> inner_;  // [rank] of the rows of one adapter
  std::vector<float> out_;
};

}  // namespace stator::engine::cpu
