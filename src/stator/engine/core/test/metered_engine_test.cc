// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/metered_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "stator/kv/event_log.h"

namespace stator::engine {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// Says what it is told to.
class PuppetEngine final : public Engine {
 public:
  const EngineInfo& info() const override { return info_; }
  Status start() override { return {}; }
  void stop() override {}
  SessionId open_session(EngineSink& sink) override {
    sink_ = &sink;
    return SessionId(1);
  }
  void close_session(SessionId) override {}
  Status submit(SessionId, inference::EngineRequest) override {
    return refusal ? Status(Error(*refusal, "no")) : Status();
  }
  void cancel(SessionId, inference::RequestKey) override {}
  LoadReport load() const override { return {.kv_used_blocks = 1, .kv_total_blocks = 4}; }
  kv::EventLog& events() override { return events_; }
  void reset_prefix_cache() override {}

  void say(inference::StepOutput output) { sink_->on_step(std::move(output)); }
  std::optional<Code> refusal;

 private:
  EngineInfo info_{.kind = "puppet", .max_num_seqs = 8};
  EngineSink* sink_ = nullptr;
  kv::EventLog events_{0};
};

class NullSink final : public EngineSink {
 public:
  void on_step(inference::StepOutput) noexcept override {}
};

class MeteredEngineTest : public testing::Test {
 protected:
  MeteredEngineTest() {
    auto puppet = std::make_unique<PuppetEngine>();
    puppet_ = puppet.get();
    engine_ = make_metered_engine(
        std::move(puppet),
        {.model = "m",
         .place = {{"dynamo_component", "backend"}},
         .on_served = [this](ServedRequest served) { served_.push_back(std::move(served)); }},
        clock_, metrics_);
    session_ = engine_->open_session(sink_);
  }
  inference::RequestKey submit(uint64_t id) {
    inference::EngineRequest request;
    request.key = {RequestId(id), Attempt(0)};
    request.tokens = {1, 2, 3};
    request.context =
        std::make_shared<inference::RequestContext>(inference::RequestContext{.traceparent = "t"});
    submitted_ = engine_->submit(session_, request);
    return request.key;
  }
  double value(const std::string& name, const std::string& more = "") {
    const std::string text = metrics_.render();
    const std::string head = name + "{dynamo_component=\"backend\",model=\"m\"" + more + "} ";
    const size_t at = text.find(head);
    return at == std::string::npos ? -1 : std::stod(text.substr(at + head.size()));
  }

  SimClock clock_;
  Metrics metrics_;
  NullSink sink_;
  std::vector<ServedRequest> served_;
  PuppetEngine* puppet_ = nullptr;
  std::unique_ptr<Engine> engine_;
  SessionId session_;
  Status submitted_;
};

TEST_F(MeteredEngineTest, CountsARequestFromItsArrivalToItsLastWord) {
  const inference::RequestKey key = submit(1);
  EXPECT_EQ(value("dynamo_component_inflight_requests"), 1);
  EXPECT_EQ(value("dynamo_component_request_bytes_total"), 12);

  clock_.advance(1s);
  puppet_->say(
      {.deltas = {{.key = key, .token_count = 1, .cached_tokens = 2, .queued_us = 400'000}},
       .tokens = {7}});
  clock_.advance(1s);
  puppet_->say(
      {.deltas =
           {{.key = key, .offset = 1, .token_count = 1, .finish = inference::FinishReason::kStop}},
       .tokens = {8}});

  EXPECT_EQ(value("dynamo_component_inflight_requests"), 0);
  EXPECT_EQ(value("dynamo_component_response_bytes_total"), 8);
  EXPECT_EQ(value("dynamo_component_request_duration_seconds_sum"), 2);
  EXPECT_EQ(value("dynamo_work_handler_time_to_first_response_seconds_sum"), 1);
  EXPECT_EQ(value("dynamo_work_handler_permit_wait_seconds_sum"), 0.4);
  ASSERT_EQ(served_.size(), 1U);
  EXPECT_EQ(served_[0].finish, "stop");
  EXPECT_EQ(served_[0].output_tokens, 2U);
  EXPECT_EQ(served_[0].cached_tokens, 2U);
  EXPECT_EQ(served_[0].queued, 400ms);
}

TEST_F(MeteredEngineTest, EndsARequestOnce) {
  const inference::RequestKey key = submit(1);
  engine_->cancel(session_, key);
  engine_->cancel(session_, key);
  puppet_->say({.deltas = {{.key = key, .finish = inference::FinishReason::kCancelled}}});
  submit(2);
  engine_->close_session(session_);

  EXPECT_EQ(value("dynamo_component_inflight_requests"), 0);
  EXPECT_EQ(value("dynamo_component_cancellation_total"), 2);
  EXPECT_EQ(served_.size(), 2U);
}

TEST_F(MeteredEngineTest, TellsRefusalsFromFailures) {
  puppet_->refusal = Code::kOverloaded;
  submit(1);
  EXPECT_FALSE(submitted_);
  puppet_->refusal.reset();
  const inference::RequestKey key = submit(2);
  inference::StepOutput output;
  output.failures.push_back({key, Error(Code::kInternal, "broken")});
  puppet_->say(std::move(output));

  EXPECT_EQ(value("dynamo_work_handler_enqueue_rejected_total"), 1);
  EXPECT_EQ(value("dynamo_component_errors_total", ",error_type=\"generate\""), 1);
  EXPECT_EQ(value("dynamo_component_inflight_requests"), 0);
}

TEST_F(MeteredEngineTest, ShowsTheLoadAndNothingOfAnEngineThatIsGone) {
  EXPECT_EQ(value("dynamo_component_gpu_cache_usage_percent", ",dp_rank=\"0\""), 0.25);
  EXPECT_EQ(value("dynamo_work_handler_pool_capacity"), 8);
  engine_.reset();
  EXPECT_EQ(value("dynamo_component_gpu_cache_usage_percent", ",dp_rank=\"0\""), 0);
}

}  // namespace
}  // namespace stator::engine
