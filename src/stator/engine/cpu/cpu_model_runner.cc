// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/cpu_model_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/core/assert.h"

namespace stator::engine::cpu {
namespace {

constexpr uint32_t kBlockSizeMax = 1024;
constexpr uint32_t kDraftsMax = 64;

Status check(std::string_view name, uint64_t value, uint64_t max) {
  if (value >= 1 && value <= max) {
    return {};
  }
  return Error(Code::kInvalidArgument,
               fmt::format("CPU engine: {} = {} is not within 1 and {}", name, value, max));
}

uint32_t length_limit(const ModelConfig& model, const CpuRunnerConfig& config) {
  const uint64_t cache = uint64_t{config.kv_blocks} * config.block_size;
  const uint64_t asked = config.max_model_len == 0 ? model.max_positions : config.max_model_len;
  return static_cast<uint32_t>(std::min({uint64_t{model.max_positions}, asked, cache}));
}

}  // namespace

LongPrompts CpuModelRunner::long_prompts() const {
  LongPrompts out;
  const ModelConfig& config = model_->config;
  for (const RopeConfig* rope :
       {&config.rope, config.window_rope ? &*config.window_rope : nullptr}) {
    const bool dynamic = rope != nullptr && rope->scaling == RopeScaling::kDynamic;
    if (dynamic || (rope != nullptr && rope->scaling == RopeScaling::kLongRope)) {
      out.longer_than = std::min(out.longer_than, rope->original_positions);
      out.by_length = out.by_length || dynamic;
    }
  }
  return out;
}

Result<std::unique_ptr<CpuModelRunner>> CpuModelRunner::create(std::shared_ptr<const Model> model,
                                                               const CpuRunnerConfig& config) {
  STATOR_CHECK(check("block_size", config.block_size, kBlockSizeMax));
  STATOR_CHECK(check("kv_blocks", config.kv_blocks, UINT32_MAX));
  if (config.lookup.tokens > kDraftsMax || config.lookup.match_least < 1 ||
      config.lookup.match_most < config.lookup.match_least ||
      config.lookup.match_most > kDraftsMax) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("CPU engine: prompt lookup takes 0 to {} tokens and matches of 1 to {}",
                    kDraftsMax, kDraftsMax));
  }
  STATOR_CHECK(check("threads", config.threads, ThreadTeam::kSizeMax));
  if (!supports(config.isa)) {
    return Error(Code::kUnsupported,
                 fmt::format("CPU engine: this machine cannot run {} code", to_string(config.isa)));
  }
  const KvLayout layout{.layers = model->config.layers,
                        .kv_heads = model->config.kv_heads,
                        .head_dim = model->config.head_dim,
                        .block_size = config.block_size,
                        .type = config.kv_type};
  STATOR_TRY(KvArena cache, KvArena::create(layout, config.kv_blocks));
  std::optional<KvArena> host;
  if (config.host_blocks > 0) {
    STATOR_TRY(host, KvArena::create(layout, config.host_blocks, memory::Sharing::kMemfd),
               "the host tier");
  }
  return std::make_unique<CpuModelRunner>(Private{}, std::move(model), config, std::move(cache),
                                          std::move(host));
}

CpuModelRunner::CpuModelRunner(Private /*key*/, std::shared_ptr<const Model> model,
                               const CpuRunnerConfig& config, KvArena cache,
                               std::optional<KvArena> host)
    : model_(std::move(model)),
      lookup_(config.lookup),
      seed_(config.seed),
      max_model_len_(length_limit(model_->config, config)),
      cache_(std::move(cache)),
      host_(std::move(host)),
      team_(config.threads),
      forward_(
          {.model = *model_, .kernels = kernels_for(config.isa), .team = team_, .cache = cache_}),
      sampler_(model_->config.vocab_size, kernels_for(config.isa)),
      bad_words_(config.encoder) {}

void CpuModelRunner::copy_blocks(std::span<const kv::BlockCopy> copies) {
  for (const auto& [direction, block, slot] : copies) {
    const std::span<std::byte> device = device_block(block);
    const std::span<std::byte> host = host_block(slot);
    const bool to_host = direction == kv::BlockCopy::Direction::kToHost;
    std::ranges::copy(to_host ? device : host, (to_host ? host : device).begin());
  }
}

void CpuModelRunner::run(std::span<const SequenceSlice> slices, std::span<Sampled> sampled) {
  STATOR_ASSERT(slices.size() == sampled.size(), "run: sampled must be parallel to slices");
  guesses_.clear();
  for (size_t index = 0; index < slices.size() && lookup_.tokens > 0; ++index) {
    make_guess(slices[index], index);
  }
  for (size_t index = 0; index < slices.size(); ++index) {
    const SequenceSlice& slice = slices[index];
    const uint32_t end = slice.start + slice.count;
    STATOR_ASSERT(end <= slice.tokens.size() && end <= max_model_len_, "run: slice out of range");
    STATOR_ASSERT(!slice.sample || (slice.count > 0 && end == slice.tokens.size()),
                  "run: only the end of a sequence can be sampled");
    const std::span<const TokenId> tokens = tokens_of(slice, index);
    const auto last = static_cast<uint32_t>(slice.sample ? tokens.size() : end);
    for (uint32_t position = slice.start; position < last; ++position) {
      rows_.push_back({.token = tokens[position],
                       .position = position,
                       .prompt_tokens = slice.prompt_tokens,
                       .blocks = slice.blocks,
                       .adapter = static_cast<const LoraAdapter*>(slice.adapter)});
      const bool scored = slice.score_prompt && position + 1 < slice.prompt_tokens;
      if (scored || (slice.sample && position + 1 >= end)) {
        wanted_.push_back(
            {.row = static_cast<uint32_t>(rows_.size() - 1), .slice = index, .next = position + 1});
      }
      if (rows_.size() == Forward::kRowsMax) {
        flush(slices, sampled);
      }
    }
  }
  flush(slices, sampled);
}

/// What may follow, looked up in the sequence itself.
void CpuModelRunner::make_guess(const SequenceSlice& slice, size_t index) {
  if (!slice.sample || !slice.may_draft ||
      (!slice.allowed.empty() && slice.guess_masks == nullptr)) {
    return;
  }
  // Room: the blocks' and the model's; the last guess needs no KV, but its row writes some.
  const size_t held =
      std::min<size_t>(slice.blocks.size() * cache_.layout().block_size, max_model_len_);
  std::span<const TokenId> guess = look_up(slice.tokens, lookup_);
  guess = guess.first(std::min(guess.size(), held - std::min(held, slice.tokens.size())));
  std::span<const GuessMasks::Mask> masks;
  if (!slice.allowed.empty() && !guess.empty()) {
    masks = slice.guess_masks->behind(guess);
    guess = guess.first(masks.size());
  }
  if (guess.empty()) {
    return;
  }
  Guess& made = guesses_.emplace_back();
  made.slice = index;
  made.masks = masks;
  made.tokens.assign(slice.tokens.begin(), slice.tokens.end());
  made.tokens.insert(made.tokens.end(), guess.begin(), guess.end());
}

/// The slice's sequence, with the guessed tokens behind it if there are some.
std::span<const TokenId> CpuModelRunner::tokens_of(const SequenceSlice& slice, size_t index) const {
  const auto found = std::ranges::lower_bound(guesses_, index, {}, &Guess::slice);
  return found != guesses_.end() && found->slice == index ? std::span<const TokenId>(found->tokens)
                                                          : slice.tokens;
}

void CpuModelRunner::flush(std::span<const SequenceSlice> slices, std::span<Sampled> sampled) {
  if (rows_.empty()) {
    return;
  }
  forward_.run(rows_);
  const auto stride = static_cast<size_t>(forward_.logits_stride());
  for (size_t first = 0; first < wanted_.size(); first += kLogitRowsMax) {
    const auto group =
        std::span(wanted_).subspan(first, std::min(kLogitRowsMax, wanted_.size() - first));
    std::vector<uint32_t> rows;
    for (const Wanted& wanted : group) {
      rows.push_back(wanted.row);
    }
    logits_.resize(std::max(logits_.size(), group.size() * stride));
    forward_.logits(rows, logits_.data());
    for (size_t i = 0; i < group.size(); ++i) {
      const auto logits = std::span(logits_).subspan(i * stride, model_->config.vocab_size);
      const size_t slice = group[i].slice;
      if (observer_) {
        observer_(slice, logits);
      }
      use_logits(slices[slice], group[i], logits, sampled[slice]);
    }
  }
  rows_.clear();
  wanted_.clear();
}

void CpuModelRunner::use_logits(const SequenceSlice& slice, const Wanted& wanted,
                                std::span<float> logits, Sampled& out) {
  if (!sampler_.look(logits)) {
    if (wanted.next > slice.tokens.size()) {
      std::ranges::lower_bound(guesses_, wanted.slice, {}, &Guess::slice)->wrong = true;
      return;  // a token of the sequence's own will tell
    }
    out.error = fmt::format(
        "the model's logits at position {} are no finite numbers: its weights are damaged, or too "
        "large for this engine",
        wanted.next);
    return;
  }
  if (wanted.next < slice.tokens.size()) {
    out.prompt.push_back(
        sampler_.logprobs(logits, slice.tokens[wanted.next], slice.sampling->logprobs.value_or(0)));
    return;
  }
  if (wanted.next == slice.tokens.size()) {
    find_banned(slice, slice.tokens, out);
    SampleResult result =
        sample(slice, slice.tokens, logits, {.allowed = slice.allowed, .may_end = slice.may_end});
    out.token = result.token;
    out.logprobs = std::move(result.logprobs);
    return;
  }
  follow_guess(slice, wanted, logits, out);
}

/// Draws the token at `wanted.next`, if those before it came as they were guessed: then it is what
/// a step of its own would draw.
void CpuModelRunner::follow_guess(const SequenceSlice& slice, const Wanted& wanted,
                                  std::span<float> logits, Sampled& out) {
  Guess& guess = *std::ranges::lower_bound(guesses_, wanted.slice, {}, &Guess::slice);
  const std::span<const TokenId> tokens = std::span<const TokenId>(guess.tokens).first(wanted.next);
  const TokenId before = out.drafted.empty() ? out.token : out.drafted.back();
  guess.wrong = guess.wrong || !out.error.empty() || before != tokens.back();
  if (guess.wrong) {
    return;
  }
  find_banned(slice, tokens, out);
  const size_t behind = wanted.next - slice.tokens.size();  // so many guesses
  const GuessMasks::Mask mask = guess.masks.empty() ? GuessMasks::Mask() : guess.masks[behind - 1];
  out.drafted.push_back(sample(slice, tokens, logits, mask).token);
}

void CpuModelRunner::find_banned(const SequenceSlice& slice, std::span<const TokenId> tokens,
                                 Sampled& out) {
  const Status found = bad_words_.find_banned(slice.sampling->bad_words,
                                              tokens.subspan(slice.prompt_tokens), banned_);
  if (!found) {
    out.error = found.error().message();
  }
}

SampleResult CpuModelRunner::sample(const SequenceSlice& slice, std::span<const TokenId> tokens,
                                    std::span<float> logits, const GuessMasks::Mask& mask) {
  STATOR_ASSERT(slice.sampling != nullptr, "run: a sampled slice needs sampling parameters");
  return sampler_.sample({.logits = logits,
                          .prompt = tokens.first(slice.prompt_tokens),
                          .output = tokens.subspan(slice.prompt_tokens),
                          .params = slice.sampling,
                          .stop = slice.stop,
                          .key = draw_key(*slice.sampling, seed_, slice.sequence),
                          .looked_at = true,
                          .allowed = mask.allowed,
                          .may_end = mask.may_end,
                          .banned = banned_});
}

}  // namespace stator::engine::cpu
