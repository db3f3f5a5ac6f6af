// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "stator/core/random.h"

namespace stator::engine::cpu {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();
constexpr float kLogprobFloor = -9999.0F;
// The smallest distance of a 53-bit uniform from 1 is 2^-54, so no Gumbel draw exceeds −ln(2^-54).
constexpr double kGumbelMax = 37.5;

constexpr float kHighest = std::numeric_limits<float>::max();

/// −∞ if there is none; a NaN is none.
float highest(std::span<const float> logits) {
  float best = kBanned;
  for (const float logit : logits) {
    best = logit > best ? logit : best;
  }
  return best;
}

/// NaN counts as −∞, and nothing is beyond the highest float: differences of logits are numbers.
float tame(float logit) {
  return logit > kBanned ? std::min(logit, kHighest) : kBanned;
}

void tame(std::span<float> logits) {
  for (float& logit : logits) {
    logit = tame(logit);
  }
}

// What looks at whole vocabularies uses plain arrays of lanes, which compilers turn into vectors.
constexpr size_t kScanLanes = 16;

/// No Gumbel draw of these bits is above this: −ln(−ln(u)) ≤ −ln(1 − u), and of 1 − u the power of
/// two below it is known. A look at one number spares two logarithms.
double gumbel_bound(uint64_t bits) {
  constexpr double kLn2 = 0.69314718055995;
  const auto width = std::bit_width((uint64_t{1} << 53U) - bits);
  return (55.0 - static_cast<double>(width)) * kLn2;
}

/// Uniform in (0, 1) from 53 bits.
double uniform_of(uint64_t bits) {
  return (static_cast<double>(bits) + 0.5) * 0x1.0p-53;
}

bool has_penalties(const inference::SamplingParams& params) {
  return params.repetition_penalty != 1.0F || params.frequency_penalty != 0.0F ||
         params.presence_penalty != 0.0F;
}

void filter(const EffectiveSampling& effective, std::span<float> logits) {
  for (float& logit : logits) {
    logit = tame(logit / effective.temperature);
  }
  if (effective.min_p > 0.0F) {
    apply_min_p(effective.min_p, logits);
  }
  if (effective.top_k > 0) {
    apply_top_k(effective.top_k, logits);
  }
  if (effective.top_p < 1.0F) {
    apply_top_p(effective.top_p, logits);
  }
}

}  // namespace

EffectiveSampling normalize_sampling(const inference::SamplingParams& params) {
  if (params.greedy()) {
    return {.greedy = true};
  }
  return {.temperature = std::max(params.temperature, 0.01F),
          .top_p = params.top_p,
          .top_k = static_cast<uint32_t>(std::max(params.top_k, 0)),
          .min_p = params.min_p};
}

uint64_t draw_key(const inference::SamplingParams& params, uint64_t runner_seed,
                  uint64_t sequence) {
  if (params.seed && *params.seed != -1) {
    return mix64(static_cast<uint64_t>(*params.seed));
  }
  return mix64(mix64(runner_seed) ^ sequence);
}

inference::TokenLogprobs compute_logprobs(std::span<const float> raw, TokenId token, uint32_t top) {
  const double maximum = highest(raw);
  double sum = 0;
  for (const float logit : raw) {
    sum += std::isnan(logit) ? 0 : std::exp(logit - maximum);
  }
  const double log_sum = maximum + std::log(sum);
  const auto entry = [&](TokenId id, uint32_t rank) {
    const auto logprob = static_cast<float>(raw[id] - log_sum);
    // Written so that NaN (every logit −∞) becomes the floor, too.
    return inference::TokenLogprob{
        .token = id, .logprob = logprob > kLogprobFloor ? logprob : kLogprobFloor, .rank = rank};
  };
  // Orders NaN, too.
  const auto value_of = [&](TokenId id) { return std::isnan(raw[id]) ? kBanned : raw[id]; };
  const auto rank_of = [&](TokenId id) {
    const float own = value_of(id);
    const auto likelier = std::ranges::count_if(raw, [&](float other) { return other > own; });
    return static_cast<uint32_t>(likelier) + 1;
  };
  inference::TokenLogprobs result;
  result.sampled = entry(token, rank_of(token));
  const size_t count = std::min<size_t>(top, raw.size());
  if (count == 0) {
    return result;
  }
  std::vector<TokenId> order(raw.size());
  std::iota(order.begin(), order.end(), TokenId{0});
  const auto end = order.begin() + static_cast<ptrdiff_t>(count);
  std::partial_sort(order.begin(), end, order.end(), [&](TokenId a, TokenId b) {
    return value_of(a) != value_of(b) ? value_of(a) > value_of(b) : a < b;
  });
  for (size_t i = 0; i < count; ++i) {
    // Equal logits share the rank of the first of them.
    const bool tie = i > 0 && value_of(order[i]) == value_of(order[i - 1]);
    result.top.push_back(
        entry(order[i], tie ? result.top.back().rank : static_cast<uint32_t>(i) + 1));
  }
  return result;
}

void apply_mask(std::span<const uint64_t> allowed, bool may_end,
                const inference::StopConditions* stop, std::span<float> logits) {
  std::vector<std::pair<TokenId, float>> ends;
  if (may_end && stop != nullptr) {
    const auto keep = [&](const std::vector<TokenId>& ids) {
      for (const TokenId id : ids) {
        if (id < logits.size()) {
          ends.emplace_back(id, logits[id]);
        }
      }
    };
    if (!stop->ignore_eos) {
      keep(stop->eos_token_ids);
    }
    keep(stop->stop_token_ids);
  }
  for (size_t word = 0; word * 64 < logits.size(); ++word) {
    const uint64_t bits = word < allowed.size() ? allowed[word] : 0;
    const size_t end = std::min(logits.size(), word * 64 + 64);
    if (bits == 0) {
      std::fill(logits.begin() + static_cast<ptrdiff_t>(word * 64),
                logits.begin() + static_cast<ptrdiff_t>(end), kBanned);
    } else if (bits != ~uint64_t{0}) {
      for (size_t id = word * 64; id < end; ++id) {
        logits[id] = (bits >> (id % 64) & 1U) != 0 ? logits[id] : kBanned;
      }
    }
  }
  if (stop != nullptr) {
    for (const TokenId id : stop->eos_token_ids) {
      if (id < logits.size()) {
        logits[id] = kBanned;
      }
    }
  }
  for (const auto& [id, logit] : ends) {
    logits[id] = logit;
  }
}

void ban_stop_tokens(const inference::StopConditions& stop, size_t generated,
                     std::span<float> logits) {
  if (generated >= stop.min_tokens) {
    return;
  }
  for (const auto* ids : {&stop.eos_token_ids, &stop.stop_token_ids}) {
    for (const TokenId id : *ids) {
      if (id < logits.size()) {
        logits[id] = kBanned;
      }
    }
  }
}

void add_logit_bias(const inference::SamplingParams& params, std::span<float> logits) {
  for (const auto& [token, bias] : params.logit_bias) {
    if (token < logits.size()) {
      logits[token] += bias;
    }
  }
}

void apply_min_p(float min_p, std::span<float> logits) {
  // p < min_p · max p, in logits: no softmax needed.
  const float threshold = highest(logits) + std::log(min_p);
  for (float& logit : logits) {
    logit = logit >= threshold ? logit : kBanned;
  }
}

void apply_top_k(uint32_t top_k, std::span<float> logits) {
  if (top_k >= logits.size()) {
    return;
  }
  tame(logits);  // a NaN has no place in an order
  std::vector<float> sorted(logits.begin(), logits.end());
  const auto kth = sorted.begin() + static_cast<ptrdiff_t>(top_k) - 1;
  std::nth_element(sorted.begin(), kth, sorted.end(), std::greater<>());
  const float threshold = *kth;
  for (float& logit : logits) {
    logit = logit < threshold ? kBanned : logit;
  }
}

void apply_top_p(float top_p, std::span<float> logits) {
  tame(logits);
  const double maximum = highest(logits);
  double total = 0;
  for (const float logit : logits) {
    total += std::exp(logit - maximum);
  }
  const double droppable = (1.0 - static_cast<double>(top_p)) * total;
  // Tokens below an equal share of the droppable mass go whatever their order, which spares most
  // of the vocabulary the sort.
  const double share = droppable / static_cast<double>(logits.size());
  double dropped = 0;
  std::vector<TokenId> rest;
  for (TokenId id = 0; id < logits.size(); ++id) {
    const double mass = std::exp(logits[id] - maximum);
    if (mass < share) {
      dropped += mass;
      logits[id] = kBanned;
    } else if (logits[id] != kBanned) {
      rest.push_back(id);
    }
  }
  std::ranges::sort(rest, [&](TokenId a, TokenId b) {
    return logits[a] != logits[b] ? logits[a] < logits[b] : a > b;
  });
  for (size_t i = 0; i + 1 < rest.size(); ++i) {
    dropped += std::exp(logits[rest[i]] - maximum);
    if (dropped > droppable) {
      return;
    }
    logits[rest[i]] = kBanned;
  }
}

bool all_finite(std::span<const float> logits) {
  std::array<float, kScanLanes> sums{};  // 0, or NaN once something infinite or no number came
  size_t i = 0;
  for (; i + kScanLanes <= logits.size(); i += kScanLanes) {
    for (size_t lane = 0; lane < kScanLanes; ++lane) {
      sums[lane] += logits[i + lane] * 0.0F;
    }
  }
  for (; i < logits.size(); ++i) {
    sums[0] += logits[i] * 0.0F;
  }
  return std::ranges::all_of(sums, [](float sum) { return sum == 0.0F; });
}

TokenId pick_best(std::span<const float> logits) {
  std::array<float, kScanLanes> most;
  most.fill(kBanned);
  size_t i = 0;
  for (; i + kScanLanes <= logits.size(); i += kScanLanes) {
    for (size_t lane = 0; lane < kScanLanes; ++lane) {
      most[lane] = logits[i + lane] > most[lane] ? logits[i + lane] : most[lane];
    }
  }
  for (; i < logits.size(); ++i) {
    most[0] = logits[i] > most[0] ? logits[i] : most[0];
  }
  const float best = std::ranges::max(most);
  const auto found = best == kBanned ? logits.end() : std::ranges::find(logits, best);
  return found == logits.end() ? 0 : static_cast<TokenId>(found - logits.begin());
}

TokenId draw(std::span<const float> logits, uint64_t key, uint64_t index) {
  const uint64_t step_key = mix64(key ^ mix64(index));
  TokenId winner = 0;
  double best = -std::numeric_limits<double>::infinity();
  for (TokenId token = 0; token < logits.size(); ++token) {
    if (logits[token] + kGumbelMax <= best) {
      continue;  // cannot win, whatever its draw: also skips everything that was dropped
    }
    const uint64_t bits = mix64(step_key + token) >> 11U;
    if (logits[token] + gumbel_bound(bits) <= best) {
      continue;
    }
    const double gumbel = -std::log(-std::log(uniform_of(bits)));
    if (logits[token] + gumbel > best) {
      best = logits[token] + gumbel;
      winner = token;
    }
  }
  return winner;
}

Sampler::Sampler(uint32_t vocab_size) : output_counts_(vocab_size), repeated_(vocab_size) {}

void Sampler::apply_penalties(const SampleRequest& request) {
  const inference::SamplingParams& params = *request.params;
  const auto penalize_once = [&](TokenId token) {
    if (token >= request.logits.size() || repeated_[token]) {
      return;
    }
    repeated_[token] = true;
    float& logit = request.logits[token];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
  };
  std::ranges::for_each(request.prompt, penalize_once);
  std::ranges::for_each(request.output, penalize_once);
  for (const TokenId token : request.output) {
    if (token < output_counts_.size()) {
      ++output_counts_[token];
    }
  }
  for (const TokenId token : request.output) {
    if (token >= output_counts_.size() || output_counts_[token] == 0) {
      continue;
    }
    request.logits[token] -= params.frequency_penalty * static_cast<float>(output_counts_[token]);
    request.logits[token] -= params.presence_penalty;
    output_counts_[token] = 0;
  }
  for (const auto& tokens : {request.prompt, request.output}) {
    for (const TokenId token : tokens) {
      if (token < repeated_.size()) {
        repeated_[token] = false;
      }
    }
  }
}

SampleResult Sampler::sample(const SampleRequest& request) {
  const inference::SamplingParams& params = *request.params;
  const std::span<float> logits = request.logits;
  if (!request.finite) {
    tame(logits);
  }
  if (!request.allowed.empty()) {
    apply_mask(request.allowed, request.may_end, request.stop, logits);
  }
  if (params.logprobs) {
    raw_.assign(logits.begin(), logits.end());
  }
  // A grammar that leaves nothing but the end is stronger than min_tokens.
  const bool must_end =
      std::ranges::all_of(request.allowed, [](uint64_t bits) { return bits == 0; });
  if (request.stop != nullptr && (request.allowed.empty() || !must_end)) {
    ban_stop_tokens(*request.stop, request.output.size(), logits);
  }
  add_logit_bias(params, logits);
  if (has_penalties(params)) {
    apply_penalties(request);
    tame(logits);  // they multiply and divide by what a client chose
  }
  const EffectiveSampling effective = normalize_sampling(params);
  SampleResult result;
  if (effective.greedy) {
    result.token = pick_best(logits);
  } else {
    filter(effective, logits);
    result.token = draw(logits, request.key, request.output.size());
  }
  if (params.logprobs) {
    result.logprobs = compute_logprobs(raw_, result.token, *params.logprobs);
  }
  return result;
}

}  // namespace stator::engine::cpu
