// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/sglang_rules.h"

#include <algorithm>

namespace stator::engine {
namespace {

// SGLang's defaults (SGLANG_INIT_NEW_TOKEN_RATIO and its neighbours).
constexpr double kInitialRatio = 0.7;
constexpr double kMinimumFactor = 0.14;
constexpr double kDecaySteps = 600;
constexpr uint32_t kRetractDecodeSteps = 20;

}  // namespace

NewTokenRatio::NewTokenRatio(const SglangConfig& config)
    : initial_(std::min(1.0, kInitialRatio * config.schedule_conservativeness)),
      minimum_(std::min(1.0, initial_ * kMinimumFactor)),
      decay_((initial_ - minimum_) / kDecaySteps),
      value_(initial_) {}

void NewTokenRatio::on_decode() {
  value_ = std::max(minimum_, value_ - decay_);
}

void NewTokenRatio::on_retraction(uint64_t generated, uint64_t allowed, uint32_t requests) {
  const double ahead = static_cast<double>(kRetractDecodeSteps) * requests;
  value_ =
      std::min(1.0, (static_cast<double>(generated) + ahead) / static_cast<double>(allowed + 1));
}

PrefillAdmission::PrefillAdmission(const SglangConfig& config, const Limits& limits)
    : clip_tokens_(config.clip_max_new_tokens),
      page_tokens_(limits.page_tokens),
      room_(static_cast<double>(limits.room_tokens) - limits.promised_tokens),
      input_tokens_(config.max_prefill_tokens),
      chunk_tokens_(limits.chunk_tokens) {}

uint32_t PrefillAdmission::clipped(uint32_t answer) const {
  return std::min(answer, clip_tokens_);
}

void PrefillAdmission::take(uint32_t prompt, uint32_t answer) {
  empty_ = false;
  room_ -= static_cast<double>(prompt) + answer;
  input_tokens_ -= prompt;
  chunk_tokens_ -= prompt;
}

uint32_t PrefillAdmission::resume(uint32_t prompt, uint32_t answer) {
  const auto tokens = static_cast<uint32_t>(std::min<int64_t>(prompt, chunk_tokens_));
  take(tokens, tokens == prompt ? clipped(answer) : 0);
  return tokens;
}

uint32_t PrefillAdmission::offer(uint32_t prompt, uint32_t answer) {
  const uint32_t whole = (prompt + page_tokens_ - 1) / page_tokens_ * page_tokens_;
  if (static_cast<double>(prompt) + clipped(answer) >= room_ ||
      (whole >= input_tokens_ && !empty_)) {
    return 0;
  }
  if (whole <= chunk_tokens_) {
    take(prompt, clipped(answer));
    return prompt;
  }
  const auto part =
      static_cast<uint32_t>(std::max<int64_t>(chunk_tokens_, 0)) / page_tokens_ * page_tokens_;
  if (part == 0) {
    return 0;
  }
  // A page-aligned part of a prompt that would have fit all but for its last page is all of it.
  const uint32_t tokens = std::min(part, prompt);
  take(tokens, 0);
  return tokens;
}

bool PrefillAdmission::closed() const {
  return room_ <= 0 || input_tokens_ <= 0 || chunk_tokens_ <= 0;
}

}  // namespace stator::engine
