// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/measure.h"

#include <gmock/gmock.h>

#include "stator/lab/loadgen/verdict.h"

namespace stator::loadgen {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr int64_t kMs = 1'000'000;

/// A stream sent at `sent_ms`: first token after 100 ms, then 9 more every 10 ms.
Record stream_at(int64_t sent_ms) {
  Record record;
  record.due = record.sendable = record.sent = sent_ms * kMs;
  record.first = record.sent + 100 * kMs;
  record.second = record.first + 10 * kMs;
  record.last = record.first + 90 * kMs;
  record.output_tokens = 10;
  record.input_tokens = 50;
  record.chunks = 10;
  record.status = 200;
  record.streamed = true;
  record.counted_by_server = true;
  return record;
}

HistogramSeries no_gaps() {
  return HistogramSeries(ThreadResult::kFirstPieceNanoseconds);
}

TEST(Measure, FollowsAiperfsDefinitions) {
  RecordLog log;
  log.add(stream_at(1000));
  log.add(stream_at(1500));

  const Figures figures = measure(log, no_gaps(), {});

  EXPECT_NEAR(figures.value("time_to_first_token"), 100, 1e-9);
  EXPECT_NEAR(figures.value("time_to_second_token"), 10, 1e-9);
  EXPECT_NEAR(figures.value("request_latency"), 190, 1e-9);
  EXPECT_NEAR(figures.value("inter_token_latency"), 10, 1e-9);
  EXPECT_NEAR(figures.value("output_token_throughput_per_user"), 100, 1e-9);
  EXPECT_NEAR(figures.value("output_sequence_length"), 10, 1e-9);
  EXPECT_NEAR(figures.value("input_sequence_length"), 50, 1e-9);
  // From the first start (1.0 s) to the last answer (1.69 s).
  EXPECT_NEAR(figures.value("benchmark_duration"), 0.69, 1e-9);
  EXPECT_NEAR(figures.value("request_throughput"), 2 / 0.69, 1e-9);
  EXPECT_NEAR(figures.value("output_token_throughput"), 20 / 0.69, 1e-9);
  EXPECT_NEAR(figures.value("total_token_throughput"), 120 / 0.69, 1e-9);
  EXPECT_NEAR(figures.value("effective_concurrency"), 0.38 / 0.69, 1e-9);
}

TEST(Measure, FromTheScheduleCountsTheTimeARequestWasNotSent) {
  Record late = stream_at(1000);
  late.due -= 400 * kMs;
  late.sendable = late.due;
  RecordLog log;
  log.add(late);

  const Figures figures = measure(log, no_gaps(), {.from_schedule = true});

  EXPECT_NEAR(figures.value("time_to_first_token"), 100, 1e-9);
  EXPECT_NEAR(figures.value("time_to_first_token_from_schedule"), 500, 1e-9);
  EXPECT_NEAR(figures.value("request_latency_from_schedule"), 590, 1e-9);
  EXPECT_NEAR(figures.value("send_delay"), 400, 1e-9);
}

TEST(Measure, FailuresAreCountedAndHaveNoLatency) {
  RecordLog log;
  log.add(stream_at(0 + 1));
  Record failed = stream_at(10);
  failed.outcome = Outcome::kHttpError;
  log.add(failed);
  Record dropped;
  dropped.due = 20 * kMs;
  dropped.outcome = Outcome::kDropped;
  log.add(dropped);
  Record cancelled = stream_at(30);
  cancelled.outcome = Outcome::kCancelled;
  log.add(cancelled);

  const Figures figures = measure(log, no_gaps(), {});

  EXPECT_EQ(figures.value("request_count"), 1);
  EXPECT_EQ(figures.value("error_request_count"), 2);
  EXPECT_NEAR(figures.value("request_error_rate"), 200.0 / 3, 1e-9);
  EXPECT_EQ(figures.find("request_latency")->values.count, 1U);
  EXPECT_EQ(figures.outcomes.at("cancelled"), 1U);
  EXPECT_EQ(figures.outcomes.at("dropped"), 1U);
}

TEST(Measure, GoodRequestsKeepEveryGoal) {
  RecordLog log;
  log.add(stream_at(1));
  Record slow_start = stream_at(2);
  slow_start.first += 50 * kMs;
  slow_start.last += 50 * kMs;
  log.add(slow_start);
  Record slow_tokens = stream_at(3);
  slow_tokens.last += 90 * kMs;
  log.add(slow_tokens);
  const auto goals = parse_goals("ttft:120 inter_token_latency:15");
  ASSERT_TRUE(goals);

  const Figures figures = measure(log, no_gaps(), {.goals = *goals});

  EXPECT_EQ(figures.value("good_request_count"), 1);
  EXPECT_NEAR(figures.value("good_request_fraction"), 1.0 / 3, 1e-9);
  EXPECT_NEAR(figures.value("goodput"), 1 / figures.duration_s, 1e-9);
}

TEST(Measure, AMissingMetricIsNotGood) {
  Record whole = stream_at(1);  // not streamed: there is no first token
  whole.streamed = false;
  whole.first = 0;
  RecordLog log;
  log.add(whole);

  EXPECT_EQ(
      measure(log, no_gaps(), {.goals = *parse_goals("ttft:500")}).value("good_request_count"), 0);
  EXPECT_EQ(measure(log, no_gaps(), {.goals = *parse_goals("e2e:500")}).value("good_request_count"),
            1);
}

TEST(Measure, GoalsThatDoNotParseSayWhatTo) {
  for (const std::string_view text : {"ttft", "ttft:", "ttft:x", "latency:5", "itl:-1"}) {
    const auto goals = parse_goals(text);
    ASSERT_FALSE(goals) << text;
    EXPECT_THAT(goals.error().message(), HasSubstr("--goodput"));
  }
  EXPECT_TRUE(parse_goals("")->any() == false);
}

TEST(Measure, LeavesOutTheWarmUp) {
  RecordLog log;
  HistogramSeries gaps = no_gaps();
  for (int i = 0; i < 10; ++i) {
    Record record = stream_at(1 + 100 * i);
    if (i < 3) {
      record.last += 1000 * kMs;
    }
    log.add(record);
    gaps.add(record.sent, i < 3 ? 100 * kMs : 10 * kMs, 9);
  }

  const Figures by_time =
      measure(log, gaps, {.warm_up = {.duration = std::chrono::milliseconds(300)}});
  const Figures by_count = measure(log, gaps, {.warm_up = {.requests = 3}});

  for (const Figures& figures : {by_time, by_count}) {
    EXPECT_EQ(figures.warm_up_requests, 3U);
    EXPECT_EQ(figures.value("request_count"), 7);
    EXPECT_NEAR(figures.find("request_latency")->values.max, 190, 1e-6);
  }
  EXPECT_NEAR(by_time.value("inter_chunk_latency"), 10, 1e-6);
}

TEST(Measure, FindsTheWarmUpByItself) {
  RecordLog log;
  for (int i = 0; i < 400; ++i) {
    Record record = stream_at(1 + 10 * i);
    const int64_t slower_ms = i < 100 ? 100 - i : 0;
    record.first += 5 * slower_ms * kMs;
    record.last += (5 * slower_ms + (i % 7)) * kMs;
    log.add(record);
  }

  const Figures figures = measure(log, no_gaps(), {.warm_up = {.automatic = true}});

  EXPECT_TRUE(figures.steady);
  EXPECT_GE(figures.warm_up_s, 0.85);
  EXPECT_LE(figures.warm_up_s, 1.4);
}

TEST(Measure, SaysWhenARunNeverGotSteady) {
  RecordLog log;
  for (int i = 0; i < 400; ++i) {
    Record record = stream_at(1 + 10 * i);
    record.last += static_cast<int64_t>(i) * 10 * kMs;
    log.add(record);
  }

  EXPECT_FALSE(measure(log, no_gaps(), {.warm_up = {.automatic = true}}).steady);
}

TEST(Measure, TheTimelineAddsUp) {
  RecordLog log;
  for (int i = 0; i < 200; ++i) {
    log.add(stream_at(1 + 17 * i));
  }

  const Figures figures = measure(log, no_gaps(), {});

  ASSERT_GE(figures.timeline.size(), 2U);
  const double width = figures.timeline[1].at_s - figures.timeline[0].at_s;
  double answered = 0;
  double tokens = 0;
  double open_s = 0;
  for (const TimePiece& piece : figures.timeline) {
    answered += piece.requests_per_s * width;
    tokens += piece.output_tokens_per_s * width;
    open_s += piece.in_flight * width;
  }
  EXPECT_NEAR(answered, 200, 1e-6);
  EXPECT_NEAR(tokens, 2000, 1e-6);
  EXPECT_NEAR(open_s, 200 * 0.19, 1e-6);
}

TEST(Measure, OfNothingIsEmpty) {
  const Figures figures = measure(RecordLog(), no_gaps(), {.warm_up = {.requests = 5}});

  EXPECT_EQ(figures.value("request_count"), 0);
  EXPECT_EQ(figures.find("request_latency"), nullptr);
  EXPECT_TRUE(figures.timeline.empty());
}

Figures with_latency(double ms) {
  Record record = stream_at(1);
  record.first = record.sent + static_cast<int64_t>(ms * kMs);
  record.last = record.first + 90 * kMs;
  RecordLog log;
  log.add(record);
  return measure(log, no_gaps(), {});
}

TEST(Verdict, AnIdleGeneratorMayPublish) {
  EXPECT_THAT(judge_client({.busy_share = 0.5, .send_delay_p99_ms = 0.2}, with_latency(20)),
              SizeIs(0));
}

TEST(Verdict, ABusyOrStarvedGeneratorMayNot) {
  EXPECT_THAT(judge_client({.busy_share = 0.9}, with_latency(20)), SizeIs(1));
  EXPECT_THAT(judge_client({.busy_share = 0.5, .starved_share = 0.4}, with_latency(20)), SizeIs(1));
  EXPECT_THAT(judge_client({.busy_share = 0.01, .starved_share = 0.6}, with_latency(20)),
              SizeIs(1));
}

TEST(Verdict, WaitingForACoreCountsAgainstTheMedian) {
  EXPECT_THAT(judge_client({.wake_delay_ms = 1.5}, with_latency(20)), SizeIs(1));
  EXPECT_THAT(judge_client({.wake_delay_ms = 1.5}, with_latency(40)), SizeIs(0));
  EXPECT_THAT(judge_client({.wake_delay_ms = 0.4}, with_latency(1)), SizeIs(0));
}

TEST(Verdict, DelaysCountAgainstTheLatenciesTheyAreIn) {
  const ClientFigures late{.send_delay_p99_ms = 3};

  EXPECT_THAT(judge_client(late, with_latency(20)), SizeIs(1));
  EXPECT_THAT(judge_client(late, with_latency(500)), SizeIs(0));
  EXPECT_THAT(judge_client({.turn_p99_ms = 80}, with_latency(500)), SizeIs(1));
}

}  // namespace
}  // namespace stator::loadgen
