// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/cpu_model_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "stator/core/assert.h"

namespace stator::engine::cpu {
namespace {

constexpr uint32_t kBlockSizeMax = 1024;

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

Result<std::unique_ptr<CpuModelRunner>> CpuModelRunner::create(std::shared_ptr<const Model> model,
                                                               const CpuRunnerConfig& config) {
  STATOR_CHECK(check("block_size", config.block_size, kBlockSizeMax));
  STATOR_CHECK(check("kv_blocks", config.kv_blocks, UINT32_MAX));
  STATOR_CHECK(check("threads", config.threads, ThreadTeam::kSizeMax));
  if (!supports(config.isa)) {
    return Error(Code::kUnsupported,
                 fmt::format("CPU engine: this machine cannot run {} code", to_string(config.isa)));
  }
  const KvLayout layout{.layers = model->config.layers,
                        .kv_heads = model->config.kv_heads,
                        .head_dim = model->config.head_dim,
                        .block_size = config.block_size};
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
      seed_(config.seed),
      max_model_len_(length_limit(model_->config, config)),
      cache_(std::move(cache)),
      host_(std::move(host)),
      team_(config.threads),
      forward_(
          {.model = *model_, .kernels = kernels_for(config.isa), .team = team_, .cache = cache_}),
      sampler_(model_->config.vocab_size) {}

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
  for (size_t index = 0; index < slices.size(); ++index) {
    const SequenceSlice& slice = slices[index];
    const uint32_t end = slice.start + slice.count;
    STATOR_ASSERT(end <= slice.tokens.size() && end <= max_model_len_, "run: slice out of range");
    STATOR_ASSERT(!slice.sample || (slice.count > 0 && end == slice.tokens.size()),
                  "run: only the end of a sequence can be sampled");
    for (uint32_t position = slice.start; position < end; ++position) {
      rows_.push_back(
          {.token = slice.tokens[position], .position = position, .blocks = slice.blocks});
      const bool scored = slice.score_prompt && position + 1 < slice.prompt_tokens;
      if (scored || (slice.sample && position + 1 == end)) {
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
  if (std::ranges::any_of(logits, [](float logit) { return !std::isfinite(logit); })) {
    out.error = fmt::format(
        "the model's logits at position {} are no finite numbers: its weights are damaged, or too "
        "large for this engine",
        wanted.next);
    return;
  }
  if (wanted.next < slice.tokens.size()) {
    out.prompt.push_back(
        compute_logprobs(logits, slice.tokens[wanted.next], slice.sampling->logprobs.value_or(0)));
  } else {
    sample(slice, logits, out);
  }
}

void CpuModelRunner::sample(const SequenceSlice& slice, std::span<float> logits, Sampled& out) {
  STATOR_ASSERT(slice.sampling != nullptr, "run: a sampled slice needs sampling parameters");
  SampleResult result = sampler_.sample({.logits = logits,
                                         .prompt = slice.tokens.first(slice.prompt_tokens),
                                         .output = slice.tokens.subspan(slice.prompt_tokens),
                                         .params = slice.sampling,
                                         .stop = slice.stop,
                                         .key = draw_key(*slice.sampling, seed_, slice.sequence),
                                         .allowed = slice.allowed,
                                         .may_end = slice.may_end});
  out.token = result.token;
  out.logprobs = std::move(result.logprobs);
}

}  // namespace stator::engine::cpu
