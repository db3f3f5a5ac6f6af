// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "stator/core/random.h"
#include "stator/lab/loadgen/workload.h"

namespace stator::loadgen {
namespace {

// What a draw is for: keeps the draws of one session apart.
enum class Purpose : uint64_t { kInput = 1, kOutput, kTurns, kGroup, kText, kPrefix };

class SyntheticWorkload final : public Workload {
 public:
  SyntheticWorkload(const SyntheticOptions& options, PromptText text)
      : options_(options), text_(std::move(text)) {}

  uint64_t sessions() const override { return 0; }

  uint32_t turns(uint64_t session) const override {
    return draw_normal(options_.turns, options_.turns_std, key(Purpose::kTurns, session, 0));
  }

  Turn turn(uint64_t session, uint32_t turn) const override {
    const uint32_t own = input_tokens(session, turn);
    return {.input_tokens = own + (turn == 0 ? options_.prefix_tokens : 0),
            .output_tokens = options_.output_tokens == 0
                                 ? 0
                                 : draw_normal(options_.output_tokens, options_.output_tokens_std,
                                               key(Purpose::kOutput, session, turn)),
            .delay = turn == 0 ? Duration{} : options_.turn_delay};
  }

  void append_text(uint64_t session, uint32_t turn, std::string& out) const override {
    if (turn == 0 && options_.prefix_tokens > 0) {
      const uint64_t group = key(Purpose::kGroup, session, 0) % options_.prefix_groups;
      text_.append(fixed_key(Purpose::kPrefix, group, 0), options_.prefix_tokens, out);
    }
    text_.append(key(Purpose::kText, session, turn), input_tokens(session, turn), out);
  }

  bool keeps_history() const override { return true; }

 private:
  uint32_t input_tokens(uint64_t session, uint32_t turn) const {
    return draw_normal(options_.input_tokens, options_.input_tokens_std,
                       key(Purpose::kInput, session, turn));
  }

  uint64_t fixed_key(Purpose purpose, uint64_t a, uint64_t b) const {
    return mix64(mix64(mix64(options_.seed + static_cast<uint64_t>(purpose)) + a) + b);
  }

  uint64_t key(Purpose purpose, uint64_t session, uint32_t turn) const {
    return fixed_key(purpose, options_.distinct > 0 ? session % options_.distinct : session, turn);
  }

  static uint32_t draw_normal(double mean, double deviation, uint64_t key) {
    if (deviation <= 0) {
      return static_cast<uint32_t>(mean);
    }
    const double u = (static_cast<double>(key >> 11) + 1) * 0x1p-53;
    const double v = static_cast<double>(mix64(key) >> 11) * 0x1p-53;
    const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
    return static_cast<uint32_t>(
        std::clamp(std::round(mean + deviation * normal), 1.0, mean + 10 * deviation));
  }

  SyntheticOptions options_;
  PromptText text_;
};

}  // namespace

std::unique_ptr<Workload> make_synthetic_workload(const SyntheticOptions& options,
                                                  PromptText text) {
  return std::make_unique<SyntheticWorkload>(options, std::move(text));
}

}  // namespace stator::loadgen
