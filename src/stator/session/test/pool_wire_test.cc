// SPDX-License-Identifier: Apache-2.0
// Pooling requests and answers on the wire and in what waits for it.
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "stator/discovery/instance_record.h"
#include "stator/proto/worker/v1/worker.pb.h"
#include "stator/session/detail/output_queue.h"
#include "stator/session/wire.h"

namespace stator::session {
namespace {

namespace pb = worker::v1;

constexpr inference::RequestKey kKey{RequestId(7), Attempt(1)};

inference::EngineRequest request() {
  inference::EngineRequest made{.key = kKey, .tokens = {1, 2, 3, 4, 5}};
  made.pool = inference::PoolRequest{.task = inference::PoolTask::kScore,
                                     .lengths = {2, 3},
                                     .first_lengths = {1, 2},
                                     .texts = {"a", "b", "c", "d"},
                                     .activate = false};
  return made;
}

inference::StepOutput answered() {
  inference::StepOutput step;
  step.pooled.push_back(
      {kKey, {.width = 2, .rows = {2, 1}, .values = {1, 2, 3, 4, 5, 6}, .prompt_tokens = 9}});
  return step;
}

TEST(PoolWire, RequestsSurviveTheRoundTrip) {
  pb::Submit message;
  wire::encode(request(), message);
  const auto again = wire::decode(message);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(again->pool, request().pool);
  EXPECT_EQ(again->tokens, request().tokens);
}

TEST(PoolWire, AnswersSurviveTheRoundTrip) {
  pb::StepOutput message;
  wire::encode(answered(), message);
  const auto again = wire::decode(message);
  ASSERT_TRUE(again.has_value()) << again.error().message();
  ASSERT_EQ(again->pooled.size(), 1U);
  EXPECT_EQ(again->pooled[0].key, kKey);
  EXPECT_EQ(again->pooled[0].answer, answered().pooled[0].answer);
}

TEST(PoolWire, RequestsThatContradictThemselvesAreRefused) {
  const std::function<void(pb::Pool&)> wrongs[] = {
      [](pb::Pool& pool) { pool.set_task(pb::POOL_TASK_UNSPECIFIED); },
      [](pb::Pool& pool) { pool.set_task(static_cast<pb::PoolTask>(99)); },
      [](pb::Pool& pool) { pool.set_lengths(0, 1); },
      [](pb::Pool& pool) { pool.set_lengths(0, 0); },
      [](pb::Pool& pool) { pool.clear_lengths(); },
      [](pb::Pool& pool) { pool.add_first_lengths(1); },
      [](pb::Pool& pool) { pool.set_first_lengths(0, 3); },
      [](pb::Pool& pool) { pool.add_texts("e"); },
  };
  for (const auto& spoil : wrongs) {
    pb::Submit message;
    wire::encode(request(), message);
    spoil(*message.mutable_pool());
    EXPECT_FALSE(wire::decode(message).has_value()) << message.pool().SerializeAsString();
  }
}

TEST(PoolWire, AnswersThatContradictThemselvesAreRefused) {
  const std::function<void(pb::Pooled&)> wrongs[] = {
      [](pb::Pooled& pooled) { pooled.set_width(0); },
      [](pb::Pooled& pooled) { pooled.set_width(4); },
      [](pb::Pooled& pooled) { pooled.add_rows(1); },
      [](pb::Pooled& pooled) { pooled.set_values(3, std::numeric_limits<float>::quiet_NaN()); },
      [](pb::Pooled& pooled) { pooled.set_values(3, std::numeric_limits<float>::infinity()); },
  };
  for (const auto& spoil : wrongs) {
    pb::StepOutput message;
    wire::encode(answered(), message);
    spoil(*message.mutable_pooled(0));
    EXPECT_FALSE(wire::decode(message).has_value()) << message.SerializeAsString();
  }
}

TEST(PoolWire, AnAnswerIsTheLastWordOnItsKey) {
  detail::OutputQueue queue(size_t{1} << 20);
  ASSERT_TRUE(queue.begin(kKey, std::nullopt));

  EXPECT_TRUE(queue.push(answered()).empty());
  EXPECT_EQ(queue.in_flight(), 0U);
  EXPECT_TRUE(queue.push(answered()).empty());  // nobody asked for a second one

  const auto message = queue.pop();
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(std::get<inference::StepOutput>(*message).pooled.size(), 1U);
  EXPECT_FALSE(queue.pop().has_value());
}

TEST(PoolWire, AnswersNobodyReadsFail) {
  detail::OutputQueue queue(64);
  ASSERT_TRUE(queue.begin(kKey, std::nullopt));

  queue.push(answered());

  const auto message = queue.pop();
  ASSERT_TRUE(message.has_value());
  const auto& step = std::get<inference::StepOutput>(*message);
  ASSERT_EQ(step.failures.size(), 1U);
  EXPECT_EQ(step.failures[0].error.code(), Code::kOverloaded);
  EXPECT_TRUE(step.pooled.empty());
}

TEST(PoolRecord, TasksSurviveAndOldRecordsGenerate) {
  discovery::InstanceRecord record;
  record.key.worker = WorkerId(1);
  record.address = "local";
  record.model.pool = {.generates = false,
                       .tasks = {inference::PoolTask::kEmbed, inference::PoolTask::kClassify},
                       .width = 384,
                       .labels = {"a", "b"},
                       .wants_text = true};
  const auto again = discovery::parse_instance_record(to_json(record));
  ASSERT_TRUE(again.has_value()) << again.error().message();
  EXPECT_EQ(again->model.pool, record.model.pool);

  const auto old =
      discovery::parse_instance_record(R"({"instance_id":1,"address":"local","model":{}})");
  ASSERT_TRUE(old.has_value()) << old.error().message();
  EXPECT_TRUE(old->model.pool.generates);
  EXPECT_FALSE(old->model.pool.tasks.any());
}

}  // namespace
}  // namespace stator::session
