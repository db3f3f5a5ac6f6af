// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include "stator/lab/simulator/recorder.h"

namespace stator::simulator {
namespace {

using testing::HasSubstr;

TimePoint at(int64_t ms) {
  return TimePoint(std::chrono::milliseconds(ms));
}

RequestRecord make_record(int64_t arrival, int64_t first, int64_t last, uint32_t output) {
  return {.line = 1,
          .request_id = "a\"b",
          .input_tokens = 100,
          .output_tokens = output,
          .admissions = 1,
          .arrival = at(arrival),
          .admitted = at(arrival),
          .first_token = at(first),
          .second_token = at(first + 1),
          .last_token = at(last)};
}

TEST(Recorder, ComputesTheLatenciesOfRequests) {
  Recorder recorder(1, {});
  recorder.on_arrival(at(1000));
  recorder.on_end(make_record(1000, 1010, 1050, 5));
  recorder.on_arrival(at(1500));
  recorder.on_end(make_record(1500, 1530, 2000, 1));

  const Report report = recorder.make_report();

  EXPECT_EQ(report.completed, 2);
  EXPECT_DOUBLE_EQ(report.ttft_ms.mean, 20);
  EXPECT_DOUBLE_EQ(report.e2e_ms.max, 500);
  EXPECT_EQ(report.tpot_ms.count, 1);  // a single token has none
  EXPECT_DOUBLE_EQ(report.tpot_ms.mean, 10);
  EXPECT_DOUBLE_EQ(report.request_rate.mean, 100);
  EXPECT_DOUBLE_EQ(report.duration_ms, 1000);
  EXPECT_DOUBLE_EQ(report.requests_per_s(), 2);
}

TEST(Recorder, FailuresAreCountedAndNotGood) {
  Recorder recorder(1, {.ttft_ms = 15, .tpot_ms = 10});
  recorder.on_arrival(at(0));
  recorder.on_end(make_record(0, 10, 50, 5));
  recorder.on_arrival(at(0));
  recorder.on_end(make_record(0, 16, 20, 5));
  recorder.on_arrival(at(0));
  RequestRecord rejected = make_record(0, 0, 0, 5);
  rejected.status = RequestStatus::kRejected;
  recorder.on_end(rejected);

  const Report report = recorder.make_report();

  EXPECT_EQ(report.good, 1);
  EXPECT_EQ(report.good_output_tokens, 5);
  EXPECT_EQ(report.rejected, 1);
  EXPECT_EQ(report.requests, 3);
}

TEST(Report, IsJsonWithDynamosFieldNames) {
  Recorder recorder(2, {});
  recorder.on_arrival(at(0));
  recorder.on_end(make_record(0, 10, 50, 5));
  Report report = recorder.make_report();
  report.router = "kv";

  simdjson::dom::parser parser;
  simdjson::dom::element json;
  const std::string text = render_json(report);
  ASSERT_EQ(parser.parse(text).get(json), simdjson::SUCCESS) << text;

  EXPECT_EQ(uint64_t(json["num_requests"]), 1);
  EXPECT_EQ(std::string_view(json["router_mode"]), "kv");
  for (const char* name :
       {"completed_requests", "total_input_tokens", "duration_ms", "wall_time_ms",
        "request_throughput_rps", "output_throughput_tok_s", "gpu_hours",
        "prefix_cache_reused_ratio", "mean_ttft_ms", "p99_ttst_ms", "std_tpot_ms", "median_itl_ms",
        "max_itl_ms", "p75_e2e_latency_ms", "mean_output_token_throughput_per_user"}) {
    EXPECT_EQ(json[name].error(), simdjson::SUCCESS) << name;
  }
  EXPECT_EQ(simdjson::dom::array(json["workers"]).size(), 2);
}

TEST(Report, TableShowsFailures) {
  Report report{.requests = 3, .completed = 2, .rejected = 1};

  EXPECT_THAT(render_table(report), HasSubstr("2 / 1"));
}

TEST(RequestRecord, IsOneLineOfJson) {
  const std::string text = render_json(make_record(0, 10, 50, 5));

  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_EQ(parser.parse(text).get(json), simdjson::SUCCESS) << text;
  EXPECT_EQ(std::string_view(json["request_id"]), "a\"b");
  EXPECT_DOUBLE_EQ(double(json["ttft_ms"]), 10);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
}

}  // namespace
}  // namespace stator::simulator
