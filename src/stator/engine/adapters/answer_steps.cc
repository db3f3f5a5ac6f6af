// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/answer_steps.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "stator/engine/adapters/lower.h"

namespace stator::engine::adapters {
namespace {

void add_delta(inference::StepOutput& step, Live& live, Raised& raised, size_t tokens,
               inference::FinishReason finish) {
  const auto begin = static_cast<uint32_t>(step.tokens.size());
  const auto count = static_cast<uint32_t>(tokens);
  step.deltas.push_back({.key = live.key,
                         .offset = live.offset,
                         .token_begin = begin,
                         .token_count = count,
                         .cached_tokens = raised.cached_tokens,
                         .finish = finish,
                         .stopped_by_token = count > 0 &&
                                             finish == inference::FinishReason::kStop &&
                                             is_client_stop(live.stop, raised.tokens.back())});
  if (count == 0) {
    return;
  }
  live.offset += count;
  step.tokens.insert(step.tokens.end(), raised.tokens.begin(), raised.tokens.end());
  // Log-probabilities are parallel to the tokens or absent: some may need empty ones.
  if (!raised.logprobs.empty() || !step.logprobs.empty()) {
    step.logprobs.resize(begin);
    raised.logprobs.resize(count);
    std::ranges::move(raised.logprobs, std::back_inserter(step.logprobs));
  }
}

}  // namespace

/// Hands on what was raised: all tokens with the finish, or, when the last token is text, the
/// finish behind them, because a frontend does not show the last token of a stopped answer.
std::optional<Duration> AnswerSteps::add(Live& live, Raised& raised) {
  if (raised.tokens.empty() && !raised.finished() && !raised.pooled) {
    return std::nullopt;
  }
  live.spoke = true;
  if (live.forsaken) {
    return std::nullopt;
  }
  if (raised.pooled) {
    steps_[live.session].pooled.push_back({live.key, std::move(*raised.pooled)});
    metrics_.finished.add();
    return std::nullopt;
  }
  inference::StepOutput& step = steps_[live.session];
  if (!raised.prompt_logprobs.empty()) {
    step.prompts.push_back({live.key, std::move(raised.prompt_logprobs)});
  }
  const bool apart = raised.finish == inference::FinishReason::kStop && !raised.last_is_stop;
  if (!raised.tokens.empty()) {
    add_delta(step, live, raised, raised.tokens.size(),
              apart ? inference::FinishReason::kNone : raised.finish);
  }
  if (raised.finished() && (apart || raised.tokens.empty())) {
    add_delta(step, live, raised, 0, raised.finish);
  }
  metrics_.generated_tokens.add(raised.tokens.size());
  if (!raised.finished()) {
    return std::nullopt;
  }
  metrics_.finished.add();
  return add_offer(step, live, raised);
}

/// Of a prompt whose answer would go on. One that is over after a token is given to nobody.
std::optional<Duration> AnswerSteps::add_offer(inference::StepOutput& step, const Live& live,
                                               Raised& raised) {
  if (live.phase != inference::Phase::kPrefill ||
      raised.finish != inference::FinishReason::kLength) {
    return std::nullopt;
  }
  const std::optional<Duration> lease = dialect_.lease(facts_, lease_);
  const bool told = !raised.handoff.empty() && raised.handoff.size() <= inference::kHandoffBytesMax;
  if (lease && !told) {
    return std::nullopt;  // the frontend sees an answer without an offer
  }
  const auto milliseconds = [](Duration duration) {
    return static_cast<uint32_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
  };
  step.offers.push_back({.key = live.key,
                         .handoff = {.id = live.handoff_id,
                                     .kind = facts_.handoff.kind,
                                     .payload = std::move(raised.handoff),
                                     .lease_ms = milliseconds(lease.value_or(Duration::zero())),
                                     .computed_ms = milliseconds(live.unanswered)}});
  return lease.value_or(Duration::zero());
}

void AnswerSteps::fail(const Live& live, Error error) {
  if (live.forsaken) {
    return;
  }
  if (live.phase == inference::Phase::kDecode && !live.spoke) {
    // Whatever the server says of it, the request without the hand-off may well be all right.
    error = std::move(error).with_code(Code::kUnavailable).with_context("taking a prompt over");
  }
  fail(live.session, live.key, std::move(error));
}

void AnswerSteps::fail(SessionId session, inference::RequestKey key, Error error) {
  metrics_.count_failure(error.code());
  steps_[session].failures.push_back({.key = key, .error = std::move(error)});
}

}  // namespace stator::engine::adapters
