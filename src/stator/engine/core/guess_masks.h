// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stator/engine/api/model_runner.h"
#include "stator/guided/grammar.h"

namespace stator::engine {

/// The masks of one sequence's guide.
class SequenceMasks final : public GuessMasks {
 public:
  /// For the step that is being planned; `tokens_left` as in Guide::mask().
  void begin(guided::Guide& guide, uint32_t tokens_left) {
    guide_ = &guide;
    tokens_left_ = tokens_left;
  }
  std::span<const Mask> behind(std::span<const TokenId> guesses) override {
    ahead_ = guide_->look_ahead(guesses, tokens_left_);
    masks_.clear();
    for (const guided::Guide::Ahead& ahead : ahead_) {
      masks_.push_back({.allowed = ahead.tokens().words(), .may_end = ahead.may_end});
    }
    return masks_;
  }

 private:
  guided::Guide* guide_ = nullptr;  // the sequence's
  uint32_t tokens_left_ = 0;
  std::vector<guided::Guide::Ahead> ahead_;
  std::vector<Mask> masks_;
};

}  // namespace stator::engine
