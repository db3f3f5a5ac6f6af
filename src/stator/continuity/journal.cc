// SPDX-License-Identifier: Apache-2.0
#include "stator/continuity/journal.h"

#include <algorithm>
#include <chrono>

namespace stator::continuity {
namespace {

constexpr Duration kBackoffStep = std::chrono::milliseconds(25);
constexpr Duration kBackoffMax = std::chrono::seconds(1);
constexpr uint32_t kBackoffDoublings = 6;  // 25 ms · 2⁶ exceeds the maximum

bool contains(std::span<const TokenId> tokens, TokenId token) {
  return std::ranges::find(tokens, token) != tokens.end();
}

}  // namespace

Journal::Taken Journal::take(Attempt attempt, uint32_t offset, std::span<const TokenId> tokens) {
  if (ended_ || attempt != attempt_) {
    return {};
  }
  if (offset > generated()) {
    return {.verdict = Verdict::kBroken};
  }
  const size_t known = generated() - offset;
  const size_t overlap = std::min(known, tokens.size());
  if (!std::ranges::equal(tokens.first(overlap), std::span(output_).subspan(offset, overlap))) {
    return {.verdict = Verdict::kBroken};
  }
  if (known > 0 && overlap == tokens.size()) {
    return {};
  }
  output_.insert(output_.end(), tokens.begin() + static_cast<ptrdiff_t>(overlap), tokens.end());
  return {.verdict = Verdict::kAccepted, .skip = static_cast<uint32_t>(overlap)};
}

bool Journal::too_long() const {
  return spec_.limits.tokens_max > 0 && spec_.prompt_tokens + generated() > spec_.limits.tokens_max;
}

bool Journal::replayable() const {
  if (spec_.replay == Replay::kNever || too_long()) {
    return false;
  }
  return spec_.replay == Replay::kAlways || generated() == 0;
}

Journal::Step Journal::finished_here() const {
  if (output_.empty() || spec_.stop == nullptr) {
    return Step::kResubmit;
  }
  const inference::StopConditions& stop = *spec_.stop;
  const TokenId last = output_.back();
  const bool ends = (!stop.ignore_eos && contains(stop.eos_token_ids, last)) ||
                    contains(stop.stop_token_ids, last);
  if (ends && generated() >= stop.min_tokens) {
    return Step::kFinishStop;
  }
  return generated() >= stop.max_tokens ? Step::kFinishLength : Step::kResubmit;
}

Journal::Step Journal::give_up(bool exhausted) {
  ended_ = true;
  exhausted_ = exhausted;
  return Step::kGiveUp;
}

void Journal::note_killed(WorkerKey worker) {
  if (std::ranges::find(killed_, worker) == killed_.end()) {
    killed_.push_back(worker);
  }
}

Journal::Step Journal::lose(Loss loss, WorkerKey worker) {
  if (ended_) {
    return Step::kGiveUp;
  }
  if (loss == Loss::kVanished) {
    note_killed(worker);
  }
  if (const Step step = finished_here(); step != Step::kResubmit) {
    ended_ = true;
    return step;
  }
  if (!replayable()) {
    return give_up(false);
  }
  const bool nobodys_fault = loss == Loss::kRefused || loss == Loss::kHandedOff;
  uint32_t& spent = nobodys_fault ? refusals_ : migrations_;
  if (spent >= (nobodys_fault ? spec_.limits.refusals_max : spec_.limits.migrations_max)) {
    return give_up(true);
  }
  ++spent;
  avoid(worker);
  attempt_ = Attempt(static_cast<uint16_t>(attempt_.value() + 1));
  attempt_begin_ = generated();
  return Step::kResubmit;
}

Journal::Step Journal::interject(std::span<const TokenId> tokens) {
  if (ended_ || spec_.replay != Replay::kAlways) {
    return give_up(false);
  }
  output_.insert(output_.end(), tokens.begin(), tokens.end());
  if (spec_.stop != nullptr && generated() >= spec_.stop->max_tokens) {
    ended_ = true;
    return Step::kFinishLength;
  }
  attempt_ = Attempt(static_cast<uint16_t>(attempt_.value() + 1));
  attempt_begin_ = generated();
  return Step::kResubmit;
}

Duration migration_backoff(uint32_t nth, Random& random) {
  if (nth <= 1) {
    return Duration::zero();
  }
  const Duration most =
      std::min(kBackoffMax, kBackoffStep * (int64_t{1} << std::min(nth, kBackoffDoublings)));
  return Duration(static_cast<int64_t>(random.below(static_cast<uint64_t>(most.count()) + 1)));
}

}  // namespace stator::continuity
