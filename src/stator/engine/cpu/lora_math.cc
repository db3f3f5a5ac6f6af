// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/lora_math.h"

#include <algorithm>

namespace stator::engine::cpu {

void LoraMath::add_embedding(const LoraEmbedding& embedding, TokenId token, float* out) {
  if (embedding.a.empty()) {
    return;
  }
  const int64_t rank = round_up_lanes(embedding.b.inputs());
  const int64_t width = embedding.b.padded_outputs();
  out_.resize(std::max(out_.size(), static_cast<size_t>(width)));
  matmul_.run({.data = embedding.a.data() + int64_t{token} * rank, .stride = rank, .count = 1},
              embedding.b, out_.data(), width);
  kernels_.add_scaled(out, out_.data(), embedding.scale, width);
}

void LoraMath::add_pair(const LoraPair& pair, int64_t count, const Place& place) {
  const int64_t rank = pair.a.padded_outputs();
  const int64_t width = pair.b.padded_outputs();
  inner_.resize(std::max(inner_.size(), static_cast<size_t>(count * rank)));
  out_.resize(std::max(out_.size(), static_cast<size_t>(count * width)));
  matmul_.run({.data = place.in, .stride = place.in_stride, .count = count}, pair.a, inner_.data(),
              rank);
  matmul_.run({.data = inner_.data(), .stride = rank, .count = count}, pair.b, out_.data(), width);
  team_.run(count, [&](int64_t row, uint32_t /*member*/) {
    kernels_.add_scaled(place.out + row * place.out_stride, out_.data() + row * width, pair.scale,
                        width);
  });
}

}  // namespace stator::engine::cpu
