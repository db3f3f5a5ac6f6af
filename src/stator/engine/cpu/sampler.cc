// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "stator/core/random.h"

namespace stator::engine::cpu {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();
constexpr float kLogprobFloor = -9999.0F;
constexpr float kHighest = std::numeric_limits<float>::max();
constexpr auto kBlock = static_cast<size_t>(kLanes);  // tokens of a block, blocks of a super block
constexpr auto kSuper = static_cast<size_t>(kSuperBlock);

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

uint64_t block_hash(uint64_t step_key, size_t block) {
  return mix64(step_key + block);
}

/// Exponential with mean 1, from the upper 53 bits.
double exponential_of(uint64_t hash) {
  return -std::log1p(-(static_cast<double>(hash >> 11U) + 0.5) * 0x1.0p-53);
}

/// A little less than exponential_of(), without a logarithm: −ln(1 − v) ≥ v + v²/2 + v³/3.
float at_least(uint64_t hash) {
  const float v = static_cast<float>(hash >> 40U) * 0x1p-24F;
  return v * (1 + v * (0.5F + v * 0.333333F)) * (1 - 0x1p-21F);
}

/// The first of 16 exponentials, and which it is: the lowest bits are in no exponential_of().
double first_arrival(uint64_t block_hash) {
  return exponential_of(block_hash) / static_cast<double>(kBlock);
}
size_t first_member(uint64_t block_hash) {
  return block_hash % kBlock;
}

uint64_t token_key_of(uint64_t step_key) {
  constexpr uint64_t kTokens = 0x5BF0'3635'DEE3'9E1DULL;
  return mix64(step_key ^ kTokens);
}
/// What another token of the block adds to the first arrival: exponentials have no memory.
double later_by(uint64_t token_key, TokenId token) {
  return exponential_of(mix64(token_key + token));
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
  const uint64_t step_key = step_key_of(key, index);
  const uint64_t hash = block_hash(step_key, block_of(token));
  const double first = first_arrival(hash);
  return member_of(token) == first_member(hash) ? first
                                                : first + later_by(token_key_of(step_key), token);
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

Sampler::Sampler(uint32_t vocab_size, const Kernels& kernels)
    : kernels_(kernels.sampling), output_counts_(vocab_size), repeated_(vocab_size) {
  maxima_.resize((vocab_size + kSuper - 1) / kSuper * kBlock);
  bounds_.resize(maxima_.size());
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
  bound_ = kernels_.race_bounds({.maxima = maxima_.data(),
                                 .count = static_cast<int64_t>(blocks_),
                                 .temperature = effective.temperature,
                                 .key = key},
                                bounds_.data());
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
  const float least = std::max(cut.least, cut.above);
  if (least > -kHighest) {
    bound_ = kBanned;
    for (size_t block = 0; block < blocks_; ++block) {
      bounds_[block] = maxima_[block] < least ? kBanned : bounds_[block];
      bound_ = std::max(bound_, bounds_[block]);
    }
  }
  const auto blocks = static_cast<int64_t>(blocks_);
  std::optional<Winner> best;
  const int64_t first = kernels_.find_above(bounds_.data(), 0, blocks, below(bound_));
  if (first == blocks) {
    return std::nullopt;  // nothing is left
  }
  enter_block(logits, cut, draw, static_cast<size_t>(first), best);
  const auto to_beat = [&] {
    return best ? below(below(static_cast<float>(best->score))) : kBanned;
  };
  for (int64_t at = 0; (at = kernels_.find_above(bounds_.data(), at, blocks, to_beat())) < blocks;
       ++at) {
    if (at != first) {
      enter_block(logits, cut, draw, static_cast<size_t>(at), best);
    }
  }
  return best ? std::optional(best->token) : std::nullopt;
}

void Sampler::enter_block(std::span<const float> logits, const Cut& cut, const Draw& draw,
                          size_t block, std::optional<Winner>& best) const {
  const auto& [temperature, key] = draw;
  const size_t begin = begin_of(block);
  std::array<float, kBlock> members;
  for (size_t i = 0; i < kBlock; ++i) {
    const size_t id = begin + i * kBlock;
    const bool kept = id < logits.size() && cut.keeps(logits[id], static_cast<TokenId>(id));
    members[i] = kept ? logits[id] : kBanned;
  }
  const uint64_t hash = block_hash(key, block);
  const size_t leader = first_member(hash);
  const uint64_t token_key = token_key_of(key);
  const RaceMembers race{.logits = members.data(),
                         .temperature = temperature,
                         .first = at_least(hash) / static_cast<float>(kBlock),
                         .leader = static_cast<uint32_t>(leader),
                         .key = token_key + begin};
  // Logarithms only of those that may win.
  double first = 0;
  uint32_t left = UINT16_MAX;
  const auto may_win = [&] {
    return left &
           kernels_.race_members(race, best ? below(static_cast<float>(best->score)) : kBanned);
  };
  for (uint32_t bits = may_win(); bits != 0;) {
    const auto member =
        (bits >> leader & 1U) != 0 ? leader : static_cast<size_t>(std::countr_zero(bits));
    left &= ~(1U << member);
    bits &= left;
    if (members[member] == kBanned) {
      continue;
    }
    first = first == 0 ? first_arrival(hash) : first;
    const auto token = static_cast<TokenId>(begin + member * kBlock);
    const double after = member == leader ? first : first + later_by(token_key, token);
    const double score = tame(members[member] / temperature) - std::log(after);
    if (!best || score > best->score || (score == best->score && token < best->token)) {
      best = {.score = score, .token = token};
      bits = bits == 0 ? 0 : may_win();
    }
  }
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
