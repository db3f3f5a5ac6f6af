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
constexpr float kHighest = std::numeric_limits<float>::max();
constexpr auto kBlock = static_cast<size_t>(kLanes);  // tokens of a block, blocks of a super block
constexpr auto kSuper = static_cast<size_t>(kSuperBlock);
constexpr size_t kFewBlocks = 32;  // are looked at without bounds

/// NaN counts as −∞, and nothing is beyond the highest float: differences of logits are numbers.
float tame(float logit) {
  return logit > kBanned ? std::min(logit, kHighest) : kBanned;
}

void tame(std::span<float> logits) {
  for (float& logit : logits) {
    logit = tame(logit);
  }
}

uint64_t step_key_of(uint64_t key, uint64_t index) {
  return mix64(key ^ mix64(index));
}

size_t block_of(TokenId token) {
  return token / kSuper * kBlock + token % kBlock;
}
size_t member_of(TokenId token) {
  return token / kBlock % kBlock;
}
/// Its first token; the others follow 16 apart.
size_t begin_of(size_t block) {
  return block / kBlock * kSuper + block % kBlock;
}

/// The next lower float: `x > below(y)` is `x ≥ y`.
float below(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value == 0) {
    return -std::numeric_limits<float>::denorm_min();
  }
  return value == kBanned ? value : std::bit_cast<float>(value > 0 ? bits - 1 : bits + 1);
}

/// Floats in their order, as integers.
int64_t order_of(float value) {
  const auto bits = std::bit_cast<int32_t>(value);
  return bits >= 0 ? bits : bits ^ INT32_MAX;
}
float float_at(int64_t order) {
  const auto bits = static_cast<int32_t>(order);
  return std::bit_cast<float>(bits >= 0 ? bits : bits ^ INT32_MAX);
}

bool has_penalties(const inference::SamplingParams& params) {
  return params.repetition_penalty != 1.0F || params.frequency_penalty != 0.0F ||
         params.presence_penalty != 0.0F;
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

double arrival(uint64_t key, uint64_t index, TokenId token) {
  std::array<float, kBlock> times;
  const size_t block = block_of(token);
  sampling_kernels_for(Isa::kBaseline)
      .block_arrivals(step_key_of(key, index), static_cast<uint32_t>(block),
                      static_cast<uint32_t>(begin_of(block)), times.data());
  return static_cast<double>(times[member_of(token)]);
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

void keep_tokens(std::span<const TokenId> tokens, std::span<float> logits) {
  std::vector<float> kept;
  kept.reserve(tokens.size());
  for (const TokenId token : tokens) {
    kept.push_back(token < logits.size() ? logits[token] : kBanned);
  }
  std::ranges::fill(logits, kBanned);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < logits.size()) {
      logits[tokens[i]] = kept[i];
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

Sampler::Sampler(uint32_t vocab_size, const Kernels& kernels)
    : kernels_(sampling_kernels_for(kernels.isa)),
      output_counts_(vocab_size),
      repeated_(vocab_size) {
  maxima_.resize((vocab_size + kSuper - 1) / kSuper * kBlock);
  bounds_.resize(maxima_.size());
  racing_.resize(maxima_.size() + kBlock);
}

void Sampler::find_maxima(std::span<const float> logits) {
  blocks_ = (logits.size() + kSuper - 1) / kSuper * kBlock;
  highest_ =
      kernels_.block_maxima(logits.data(), static_cast<int64_t>(logits.size()), maxima_.data());
}

bool Sampler::look(std::span<const float> logits) {
  find_maxima(logits);
  return !std::isnan(highest_);
}

inference::TokenLogprobs Sampler::logprobs(std::span<const float> raw, TokenId token,
                                           uint32_t top) {
  find_maxima(raw);
  const auto count = static_cast<int64_t>(raw.size());
  const float highest =
      *std::ranges::max_element(maxima_.begin(), maxima_.begin() + static_cast<ptrdiff_t>(blocks_));
  const double log_sum = highest + std::log(kernels_.exp_sum(raw.data(), count, highest));
  const auto entry = [&](TokenId id, uint32_t rank) {
    const auto logprob = static_cast<float>(raw[id] - log_sum);
    // Written so that NaN (every logit −∞) becomes the floor, too.
    return inference::TokenLogprob{
        .token = id, .logprob = logprob > kLogprobFloor ? logprob : kLogprobFloor, .rank = rank};
  };
  const auto rank_of = [&](TokenId id) {
    return static_cast<uint32_t>(kernels_.count_above(raw.data(), count, raw[id])) + 1;
  };
  inference::TokenLogprobs result;
  result.sampled = entry(token, rank_of(token));
  const size_t wanted = std::min<size_t>(top, raw.size());
  if (wanted == 0) {
    return result;
  }
  const float least = kth_highest(raw, wanted);
  std::vector<TokenId> order;
  for (size_t id = 0; id < raw.size(); ++id) {
    if (raw[id] >= least) {
      order.push_back(static_cast<TokenId>(id));
    }
  }
  const auto end = order.begin() + static_cast<ptrdiff_t>(wanted);
  std::partial_sort(order.begin(), end, order.end(), [&](TokenId a, TokenId b) {
    return raw[a] != raw[b] ? raw[a] > raw[b] : a < b;
  });
  for (size_t i = 0; i < wanted; ++i) {
    // Equal logits share the rank of the first of them.
    const bool tie = i > 0 && raw[order[i]] == raw[order[i - 1]];
    result.top.push_back(
        entry(order[i], tie ? result.top.back().rank : static_cast<uint32_t>(i) + 1));
  }
  return result;
}

/// EOS and stop tokens are allowed if `may_end`, whatever their bits; EOS never with ignore_eos.
void Sampler::apply_mask(const SampleRequest& request) {
  const std::span<float> logits = request.logits;
  std::vector<std::pair<TokenId, float>> ends;
  if (request.may_end && request.stop != nullptr) {
    const auto keep = [&](const std::vector<TokenId>& ids) {
      for (const TokenId id : ids) {
        if (id < logits.size()) {
          ends.emplace_back(id, logits[id]);
        }
      }
    };
    if (!request.stop->ignore_eos) {
      keep(request.stop->eos_token_ids);
    }
    keep(request.stop->stop_token_ids);
  }
  kernels_.keep_allowed(request.allowed.data(), static_cast<int64_t>(request.allowed.size()),
                        logits.data(), static_cast<int64_t>(logits.size()));
  if (request.stop != nullptr) {
    for (const TokenId id : request.stop->eos_token_ids) {
      if (id < logits.size()) {
        logits[id] = kBanned;
      }
    }
  }
  for (const auto& [id, logit] : ends) {
    logits[id] = logit;
  }
}

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

bool Sampler::prepare(const SampleRequest& request) {
  const inference::SamplingParams& params = *request.params;
  const std::span<float> logits = request.logits;
  bool changed = !request.looked_at;
  if (!request.looked_at) {
    tame(logits);
  }
  if (!request.allowed.empty()) {
    apply_mask(request);
    changed = true;
  }
  if (params.logprobs) {
    raw_.assign(logits.begin(), logits.end());
  }
  if (!params.allowed_token_ids.empty()) {
    keep_tokens(params.allowed_token_ids, logits);
    changed = true;
  }
  for (const TokenId token : request.banned) {
    if (token < logits.size()) {
      logits[token] = kBanned;
      changed = true;
    }
  }
  // A grammar that leaves nothing but the end is stronger than min_tokens.
  const bool must_end =
      !request.allowed.empty() &&
      std::ranges::all_of(request.allowed, [](uint64_t bits) { return bits == 0; });
  if (request.stop != nullptr && !must_end && request.output.size() < request.stop->min_tokens) {
    ban_stop_tokens(*request.stop, request.output.size(), logits);
    changed = true;
  }
  if (!params.logit_bias.empty()) {
    add_logit_bias(params, logits);
    changed = true;
  }
  if (has_penalties(params)) {
    apply_penalties(request);
    tame(logits);  // they multiply and divide by what a client chose
    changed = true;
  }
  return changed;
}

SampleResult Sampler::sample(const SampleRequest& request) {
  const inference::SamplingParams& params = *request.params;
  const std::span<float> logits = request.logits;
  if (prepare(request)) {
    find_maxima(logits);
    highest_ = kBanned;  // of what is left, some of it banned
    for (size_t block = 0; block < blocks_; ++block) {
      highest_ = std::max(highest_, maxima_[block]);
    }
  }
  const EffectiveSampling effective = normalize_sampling(params);
  SampleResult result;
  if (highest_ != kBanned) {
    result.token = effective.greedy
                       ? pick_best(logits)
                       : draw(logits, effective, step_key_of(request.key, request.output.size()));
  }
  if (params.logprobs) {
    result.logprobs = logprobs(raw_, result.token, *params.logprobs);
  }
  return result;
}

TokenId Sampler::pick_best(std::span<const float> logits) const {
  const float least = below(highest_);
  const int64_t block =
      kernels_.find_above(maxima_.data(), 0, static_cast<int64_t>(blocks_), least);
  return static_cast<TokenId>(kernels_.find_above(logits.data(), block / kLanes * kSuperBlock,
                                                  static_cast<int64_t>(logits.size()), least));
}

MassQuery Sampler::mass_query(std::span<const float> logits, const EffectiveSampling& effective,
                              const Cut& cut) const {
  return {.logits = logits.data(),
          .count = static_cast<int64_t>(logits.size()),
          .maxima = maxima_.data(),
          .highest = highest_,
          .temperature = effective.temperature,
          .least = cut.least,
          .above = cut.above,
          .before = cut.before};
}

TokenId Sampler::draw(std::span<const float> logits, const EffectiveSampling& effective,
                      uint64_t key) {
  Cut cut{.least = -kHighest, .above = kBanned};
  if (effective.min_p > 0.0F) {
    // p < min_p · max p, in logits: no softmax needed.
    cut.least = std::max(cut.least, highest_ + effective.temperature * std::log(effective.min_p));
  }
  const auto count = static_cast<int64_t>(logits.size());
  const bool by_rank = effective.top_k > 0 && effective.top_k < logits.size();
  const bool by_mass = effective.top_p < 1.0F;
  double total = 0;
  if (by_mass) {
    if (by_rank) {  // what top_p is a share of
      cut.least = std::max(cut.least, kth_highest(logits, effective.top_k));
    }
    total = static_cast<double>(kernels_.mass(mass_query(logits, effective, cut)));
  }
  if (blocks_ > kFewBlocks) {
    bound_ = kernels_.race_bounds({.maxima = maxima_.data(),
                                   .count = static_cast<int64_t>(blocks_),
                                   .temperature = effective.temperature,
                                   .key = key,
                                   .least = cut.least},
                                  bounds_.data());
  }
  const double droppable = (1.0 - static_cast<double>(effective.top_p)) * total;
  for (std::optional<TokenId> winner; (winner = race(logits, cut, {effective.temperature, key}));) {
    const float logit = logits[*winner];
    cut.above = logit;
    cut.before = *winner;
    if (by_rank && kernels_.count_above(logits.data(), count, logit) >= effective.top_k) {
      continue;
    }
    if (by_mass) {
      const auto above = static_cast<double>(kernels_.mass(mass_query(logits, effective, cut)));
      if (above > 0 && total - above <= droppable) {
        continue;
      }
    }
    return *winner;
  }
  return pick_best(logits);
}

std::optional<TokenId> Sampler::race(std::span<const float> logits, const Cut& cut,
                                     const Draw& draw) {
  const auto blocks = static_cast<int64_t>(blocks_);
  const Race race{.logits = logits.data(),
                  .maxima = maxima_.data(),
                  .count = static_cast<int64_t>(logits.size()),
                  .temperature = draw.temperature,
                  .key = draw.key,
                  .least = cut.least,
                  .above = cut.above,
                  .before = cut.before};
  RaceWinner best{.score = kBanned, .token = 0};
  const auto note = [&](const RaceWinner& winner) {
    if (winner.score > best.score || (winner.score == best.score && winner.token < best.token)) {
      best = winner;
    }
  };
  open_.clear();
  const auto run = [&](const uint32_t* list, int64_t count) {
    const RaceHeat heat = kernels_.race_heat(race, list, static_cast<int32_t>(count), best.score);
    note(heat.winner);
    for (uint32_t open = heat.open; open != 0; open &= open - 1) {
      const int at = std::countr_zero(open);
      open_.push_back({.block = list[at], .bound = heat.bounds[at]});
    }
  };
  int64_t listed = blocks;
  if (blocks_ <= kFewBlocks) {
    std::iota(racing_.begin(), racing_.begin() + static_cast<ptrdiff_t>(blocks), 0U);
  } else {
    if (cut.above > kBanned) {
      bound_ = kernels_.cut_bounds(maxima_.data(), blocks, cut.above, bounds_.data());
    }
    // The 16 blocks with the one that promises most; then the few that promise more than what
    // these have.
    const int64_t first =
        kernels_.find_above(bounds_.data(), 0, blocks, below(bound_)) / kLanes * kLanes;
    if (first == blocks) {
      return std::nullopt;  // nothing is left
    }
    std::iota(racing_.begin(), racing_.begin() + kLanes, static_cast<uint32_t>(first));
    run(racing_.data(), kLanes);
    listed = kernels_.collect_above(bounds_.data(), blocks, below(best.score), racing_.data());
  }
  for (int64_t at = 0; at < listed; at += kLanes) {
    run(racing_.data() + at, std::min(kLanes, listed - at));
  }
  for (const auto& [block, bound] : open_) {
    if (bound >= best.score) {
      note(kernels_.race_block(race, block));
    }
  }
  return best.score == kBanned ? std::nullopt : std::optional(best.token);
}

float Sampler::kth_highest(std::span<const float> logits, size_t k) {
  if (blocks_ < 4 * k) {
    return kth_of(logits, k);
  }
  // The k-th highest of the blocks' maxima is a lower bound, and few logits are above it.
  const float bound = kth_of(std::span(maxima_).first(blocks_), k);
  candidates_.clear();
  const auto blocks = static_cast<int64_t>(blocks_);
  for (int64_t at = 0;
       (at = kernels_.find_above(maxima_.data(), at, blocks, below(bound))) < blocks; ++at) {
    const size_t begin = begin_of(static_cast<size_t>(at));
    for (size_t id = begin; id < std::min(begin + kSuper, logits.size()); id += kBlock) {
      if (logits[id] >= bound) {
        candidates_.push_back(logits[id]);
      }
    }
  }
  return kth_of(candidates_, k);
}

float Sampler::kth_of(std::span<const float> values, size_t k) {
  constexpr size_t kFew = 64;
  const auto count = static_cast<int64_t>(values.size());
  const auto above = [&](float than) {
    return static_cast<size_t>(kernels_.count_above(values.data(), count, than));
  };
  int64_t low = order_of(kBanned);
  int64_t high = order_of(kHighest);
  if (above(kBanned) < k) {
    return kBanned;
  }
  // above(low) ≥ k > above(high): the k-th is the lowest with fewer than k above it.
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    const size_t there = above(float_at(middle));
    (there < k ? high : low) = middle;
    if (there >= k && there <= k + kFew) {
      few_.clear();
      for (int64_t at = 0;
           (at = kernels_.find_above(values.data(), at, count, float_at(low))) < count; ++at) {
        few_.push_back(values[static_cast<size_t>(at)]);
      }
      const auto kth = few_.begin() + static_cast<ptrdiff_t>(k) - 1;
      std::nth_element(few_.begin(), kth, few_.end(), std::greater<>());
      return *kth;
    }
  }
  return float_at(high);
}

}  // namespace stator::engine::cpu
