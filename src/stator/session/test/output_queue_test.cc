// SPDX-License-Identifier: Apache-2.0
#include "stator/session/detail/output_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <variant>

#include "stator/session/test/session_recorder.h"

namespace stator::session {
namespace {

using test::key;

constexpr size_t kBytes = size_t{64} * 1024;

inference::StepOutput step(uint64_t request, uint32_t offset, uint32_t tokens,
                           inference::FinishReason finish = inference::FinishReason::kNone) {
  inference::StepOutput output;
  output.deltas.push_back(
      {.key = key(request), .offset = offset, .token_count = tokens, .finish = finish});
  output.tokens.assign(tokens, offset);
  return output;
}

inference::StepOutput pop_step(detail::OutputQueue& queue) {
  auto message = queue.pop();
  EXPECT_TRUE(message.has_value());
  return std::get<inference::StepOutput>(std::move(*message));
}

TEST(OutputQueue, WaitingStepsMergeIntoOneMessageInOrder) {
  detail::OutputQueue queue(kBytes);
  queue.begin(key(1), {});
  queue.begin(key(2), {});
  queue.push(step(1, 0, 2));
  queue.push(step(2, 0, 1));
  queue.push(step(1, 2, 1, inference::FinishReason::kStop));

  const inference::StepOutput merged = pop_step(queue);

  ASSERT_EQ(merged.deltas.size(), 3U);
  EXPECT_EQ(merged.tokens, (std::vector<TokenId>{0, 0, 0, 2}));
  EXPECT_EQ(merged.tokens_of(merged.deltas[2])[0], 2U);
  EXPECT_FALSE(queue.pop().has_value());
  EXPECT_EQ(queue.step_bytes(), 0U);
  EXPECT_EQ(queue.in_flight(), 1U);
}

TEST(OutputQueue, AnOfferGoesWithItsLastWordOrNotAtAll) {
  detail::OutputQueue queue(kBytes);
  queue.begin(key(1), {});
  queue.push(step(9, 0, 1));  // nobody's
  inference::StepOutput last = step(1, 0, 1, inference::FinishReason::kLength);
  last.offers.push_back({key(1), {.id = 5}});
  last.offers.push_back({key(2), {.id = 6}});  // cancelled meanwhile
  last.prompts = {{key(1), {{}}}, {key(2), {{}}}};
  queue.push(std::move(last));

  const inference::StepOutput sent = pop_step(queue);

  ASSERT_EQ(sent.offers.size(), 1U);
  EXPECT_EQ(sent.offers[0].handoff.id, 5U);
  ASSERT_EQ(sent.prompts.size(), 1U);
  EXPECT_EQ(sent.prompts[0].key, key(1));
}

TEST(OutputQueue, MergingKeepsLogprobsParallelToTokens) {
  detail::OutputQueue queue(kBytes);
  queue.begin(key(1), {});
  queue.push(step(1, 0, 2));
  inference::StepOutput with = step(1, 2, 1);
  with.logprobs.resize(1);
  with.logprobs[0].sampled.token = 77;
  queue.push(std::move(with));

  const inference::StepOutput merged = pop_step(queue);

  ASSERT_EQ(merged.logprobs.size(), 3U);
  EXPECT_EQ(merged.logprobs[2].sampled.token, 77U);
}

TEST(OutputQueue, ControlGoesBeforeLoadBeforeSteps) {
  detail::OutputQueue queue(kBytes);
  queue.begin(key(1), {});
  queue.push(step(1, 0, 1));
  queue.push(engine::LoadReport{.kv_used_blocks = 1});
  queue.push(engine::LoadReport{.kv_used_blocks = 2});
  queue.push(detail::OutputQueue::Accepted{key(1)});

  EXPECT_TRUE(std::holds_alternative<detail::OutputQueue::Accepted>(*queue.pop()));
  EXPECT_EQ(std::get<engine::LoadReport>(*queue.pop()).kv_used_blocks, 2U);
  EXPECT_TRUE(std::holds_alternative<inference::StepOutput>(*queue.pop()));
}

TEST(OutputQueue, DropsOutputOfUnknownAndEndedRequests) {
  detail::OutputQueue queue(kBytes);
  queue.push(step(9, 0, 1));
  EXPECT_FALSE(queue.pop().has_value());

  queue.begin(key(1), {});
  queue.push(step(1, 0, 1, inference::FinishReason::kStop));
  queue.push(step(1, 1, 1));
  EXPECT_EQ(pop_step(queue).deltas.size(), 1U);
}

TEST(OutputQueue, BeyondItsBytesEveryRequestWithoutALastWordFails) {
  detail::OutputQueue queue(kBytes);
  queue.begin(key(1), {});
  queue.begin(key(2), {});
  queue.begin(key(3), {});
  EXPECT_TRUE(queue.push(step(2, 0, 1, inference::FinishReason::kStop)).empty());

  const auto cancelled = queue.push(step(1, 0, 100'000));

  EXPECT_EQ(cancelled.size(), 2U) << "1 and 3; 2 had ended";
  const inference::StepOutput failed = pop_step(queue);
  EXPECT_TRUE(failed.deltas.empty());
  ASSERT_EQ(failed.failures.size(), 3U) << "2 was never told its end";
  for (const inference::Failure& failure : failed.failures) {
    EXPECT_EQ(failure.error.code(), Code::kOverloaded);
  }
  EXPECT_EQ(queue.in_flight(), 0U);
  queue.push(step(1, 100'000, 1));
  EXPECT_FALSE(queue.pop().has_value());
}

TEST(OutputQueue, FailsRequestsPastTheirDeadline) {
  detail::OutputQueue queue(kBytes);
  const TimePoint start{};
  queue.begin(key(1), start + std::chrono::seconds(1));
  queue.begin(key(2), std::nullopt);
  EXPECT_TRUE(queue.expire(start).empty());

  const auto late = queue.expire(start + std::chrono::seconds(1));

  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0], key(1));
  EXPECT_EQ(pop_step(queue).failures.at(0).error.code(), Code::kDeadline);
  EXPECT_EQ(queue.in_flight(), 1U);
}

TEST(OutputQueue, RefusesAKeyTwice) {
  detail::OutputQueue queue(kBytes);
  EXPECT_TRUE(queue.begin(key(1), {}));
  EXPECT_FALSE(queue.begin(key(1), {}));
  EXPECT_TRUE(queue.forget(key(1)));
  EXPECT_FALSE(queue.forget(key(1)));
}

}  // namespace
}  // namespace stator::session
