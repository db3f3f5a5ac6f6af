// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/pooling_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace stator::engine {
namespace {

Error refuse(std::string text) {
  return {Code::kInvalidArgument, std::move(text)};
}

}  // namespace

Status check_pool_request(const inference::EngineRequest& request, const PoolLimits& limits) {
  const inference::PoolRequest& pool = *request.pool;
  if (!limits.ability.tasks.has(pool.task)) {
    return refuse(fmt::format("this model cannot do task '{}'", to_string(pool.task)));
  }
  if (pool.lengths.empty() || pool.lengths.size() > inference::kPoolSequencesMax) {
    return refuse(fmt::format("{} sequences in one request, must be 1 … {}", pool.lengths.size(),
                              inference::kPoolSequencesMax));
  }
  const uint64_t sum = std::accumulate(pool.lengths.begin(), pool.lengths.end(), uint64_t{0});
  if (sum != request.tokens.size() || std::ranges::find(pool.lengths, 0U) != pool.lengths.end() ||
      (!pool.first_lengths.empty() && pool.first_lengths.size() != pool.lengths.size())) {
    return refuse("the lengths of the sequences do not fit their tokens");
  }
  const uint32_t longest = std::ranges::max(pool.lengths);
  if (limits.max_model_len != 0 && longest > limits.max_model_len) {
    return refuse(fmt::format("a sequence has {} tokens; this model takes at most {}", longest,
                              limits.max_model_len));
  }
  const auto outside = std::ranges::find_if(
      request.tokens, [&](TokenId token) { return token >= limits.vocab_size; });
  if (outside != request.tokens.end()) {
    return refuse(
        fmt::format("token id {} is outside the vocabulary of {}", *outside, limits.vocab_size));
  }
  const uint64_t rows = pool.task == inference::PoolTask::kTokenEmbed ? sum : pool.lengths.size();
  const bool vectors =
      pool.task == inference::PoolTask::kTokenEmbed || pool.task == inference::PoolTask::kEmbed;
  if (vectors && rows * limits.ability.width > inference::kPoolValuesMax) {
    return refuse(
        fmt::format("the answer would have {} vectors of {} numbers, at most {} numbers "
                    "fit: divide the request",
                    rows, limits.ability.width, inference::kPoolValuesMax));
  }
  return {};
}

}  // namespace stator::engine
