// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/report.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <simdjson.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cstring>

#include "stator/lab/loadgen/bench_config.h"
#include "stator/lab/loadgen/dashboard.h"
#include "stator/lab/loadgen/target.h"

namespace stator::loadgen {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMs = 1'000'000;

RunResult run_with(int64_t ttft_ms, double offered = 0) {
  RecordLog log;
  for (int i = 0; i < 50; ++i) {
    Record record;
    record.due = record.sendable = record.sent = (1 + 20 * i) * kMs;
    record.first = record.sent + (ttft_ms + i % 5) * kMs;
    record.second = record.first + 5 * kMs;
    record.last = record.first + 45 * kMs;
    record.output_tokens = 10;
    record.streamed = true;
    record.counted_by_server = true;
    log.add(record);
  }
  HistogramSeries gaps(ThreadResult::kFirstPieceNanoseconds);
  gaps.add(0, 5 * kMs, 450);
  RunResult run;
  run.figures = measure(log, gaps, {.from_schedule = offered > 0});
  run.client = {.threads = 1, .busy_share = 0.1};
  run.offered_per_s = offered;
  return run;
}

Report report_of(std::vector<RunResult> runs) {
  Report report;
  report.settings = {{"url", "http://h"}, {"model", "<m>"}};
  report.runs = std::move(runs);
  return report;
}

Report one_run() {
  std::vector<RunResult> runs;
  runs.push_back(run_with(100));
  return report_of(std::move(runs));
}

TEST(ReportJson, HasAiperfsNamesAndStatistics) {
  const std::string text = to_json(one_run());
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  ASSERT_EQ(parser.parse(text).get(json), simdjson::SUCCESS) << text;

  for (const std::string_view tag :
       {"time_to_first_token", "time_to_second_token", "inter_token_latency", "request_latency",
        "inter_chunk_latency", "output_sequence_length", "output_token_throughput_per_user"}) {
    for (const std::string_view statistic : {"avg", "min", "max", "p1", "p5", "p10", "p25", "p50",
                                             "p75", "p90", "p95", "p99", "std"}) {
      EXPECT_TRUE(json[tag][statistic].is_double()) << tag << " " << statistic;
    }
    EXPECT_TRUE(json[tag]["unit"].is_string());
  }
  for (const std::string_view tag :
       {"output_token_throughput", "request_throughput", "request_count", "benchmark_duration"}) {
    EXPECT_TRUE(json[tag]["avg"].is_double()) << tag;
    EXPECT_EQ(json[tag]["p99"].error(), simdjson::NO_SUCH_FIELD) << tag;
  }
  EXPECT_NEAR(json["time_to_first_token"]["avg"].get_double(), 102, 1e-6);
  EXPECT_EQ(json["time_to_first_token"]["unit"].get_string().value(), "ms");
  EXPECT_EQ(json["stator"]["valid"].get_bool().value(), true);
}

TEST(ReportCsv, HasDistributionsThenSingleValues) {
  const std::string csv = to_csv(one_run());

  EXPECT_THAT(csv,
              testing::StartsWith("Metric,avg,min,max,p1,p5,p10,p25,p50,p75,p90,p95,p99,std\n"));
  EXPECT_THAT(csv, HasSubstr("\nTime to First Token (ms),102.00,100.00,104.00,"));
  EXPECT_THAT(csv, HasSubstr("\n\nMetric,Value\n"));
  EXPECT_THAT(csv, HasSubstr("\nRequest Count,50.00\n"));
}

TEST(ReportHtml, IsOnePageWithPlotsThatLoadsNothing) {
  const std::string html = to_html(one_run());

  EXPECT_THAT(html, testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(html, HasSubstr("<svg"));
  EXPECT_THAT(html, HasSubstr("Time to first token"));
  EXPECT_THAT(html, HasSubstr("&lt;m&gt;"));
  EXPECT_THAT(html, Not(HasSubstr("<m>")));
  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, Not(HasSubstr("href=")));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

TEST(Report, SaysWhatIsInNoFigure) {
  Report report = one_run();
  report.asked_for_streams = true;
  EXPECT_THAT(notes_of(report), testing::IsEmpty());
  report.runs[0].figures.outcomes["unfinished"] = 7;
  report.runs[0].figures.whole = 3;
  report.runs[0].client.reconnects = 2;

  for (const std::string& text : {to_text(report), to_html(report)}) {
    EXPECT_THAT(text, HasSubstr("unfinished: 7 requests were cut off"));
    EXPECT_THAT(text, HasSubstr("3 of 53 answers came whole"));
    EXPECT_THAT(text, HasSubstr("2 requests were sent again"));
  }
}

TEST(Report, RepeatedRunsHaveConfidenceIntervals) {
  std::vector<RunResult> runs;
  for (const int64_t ttft : {100, 110, 120}) {
    runs.push_back(run_with(ttft));
  }

  const auto metrics = repeat_metrics(runs);
  const auto ttft = std::ranges::find(metrics, "time_to_first_token", &RepeatedMetric::tag);

  ASSERT_NE(ttft, metrics.end());
  EXPECT_NEAR(ttft->confidence.mean, 112, 1e-6);
  EXPECT_NEAR(ttft->confidence.high - 112, 4.3027 * 10 / std::sqrt(3.0), 1e-2);
  EXPECT_THAT(to_text(report_of(std::move(runs))), HasSubstr("3 runs, mean and 95 %"));
}

TEST(Report, IsRefusedWhenAnyRunWasClientBound) {
  std::vector<RunResult> runs;
  runs.push_back(run_with(100));
  runs.push_back(run_with(100));
  runs[0].client_bound = {"too busy"};
  const Report report = report_of(std::move(runs));

  EXPECT_THAT(reasons_not_to_publish(report), testing::ElementsAre("run 1: too busy"));
  EXPECT_THAT(to_text(report), HasSubstr("NOT VALID"));
  EXPECT_THAT(to_html(report), HasSubstr("Not valid"));
  EXPECT_THAT(to_json(report), HasSubstr("\"valid\":false"));
}

TEST(Report, OfASweepShowsTheHighestSustainedStep) {
  std::vector<RunResult> runs;
  runs.push_back(run_with(100, 10));
  runs.push_back(run_with(200, 40));
  runs.push_back(run_with(150, 20));
  runs[1].keep_up = 0.7;
  Report report = report_of(std::move(runs));
  report.is_sweep = true;
  report.saturation_per_s = 20;

  EXPECT_TRUE(is_sustained(report.runs[0]));
  EXPECT_FALSE(is_sustained(report.runs[1]));
  EXPECT_EQ(main_run(report).offered_per_s, 20);
  EXPECT_THAT(to_text(report), HasSubstr("highest sustained rate: 20.00 requests/s"));
  EXPECT_THAT(to_html(report), HasSubstr("Answered against offered"));
}

TEST(Report, OfASweepIsRefusedForTheStepsThatDecide) {
  std::vector<RunResult> runs;
  for (const double rate : {10.0, 20.0, 40.0}) {
    runs.push_back(run_with(100, rate));
    runs.back().keep_up = rate < 20 ? 1 : 0.5;
  }
  runs[2].client_bound = {"too busy"};
  Report report = report_of(std::move(runs));
  report.is_sweep = true;

  EXPECT_THAT(reasons_not_to_publish(report), testing::IsEmpty());
  report.runs[1].client_bound = {"too busy"};
  EXPECT_THAT(reasons_not_to_publish(report), testing::ElementsAre("run 2: too busy"));
}

TEST(Dashboard, ShowsRatesSinceTheLastLook) {
  Dashboard dashboard;
  const BenchProgress progress{.run = 1, .runs = 1};
  LiveView view{.elapsed_s = 1, .sent = 10, .answered = 10, .chunks = 100};
  dashboard.draw_line(progress, view);
  view.elapsed_s = 2;
  view.answered = 30;
  view.chunks = 400;

  const std::string line = dashboard.draw_line(progress, view);

  EXPECT_THAT(line, HasSubstr("20.0 requests/s, 300 chunks/s"));
  EXPECT_EQ(std::ranges::count(dashboard.draw_frame(progress, view), '\n'), Dashboard::kLines);
}

TEST(Target, ReadsUrls) {
  const auto plain = parse_target("http://example:8000/");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->host, "example");
  EXPECT_EQ(plain->port, 8000);
  EXPECT_EQ(request_path(*plain, "/v1/completions"), "/v1/completions");

  const auto tls = parse_target("https://[::1]:8443/api/v1");
  ASSERT_TRUE(tls);
  EXPECT_TRUE(tls->tls);
  EXPECT_EQ(tls->host, "::1");
  EXPECT_EQ(tls->host_header, "[::1]:8443");
  EXPECT_EQ(request_path(*tls, "/v1/completions"), "/api/v1/completions");

  for (const std::string_view url : {"example:8000", "http://", "http://h:0", "http://h:x",
                                     "http://u@h", "ftp://h", "http://h/a?b"}) {
    EXPECT_FALSE(parse_target(url)) << url;
  }
}

TEST(Target, OfSeveralAddressesTheOneThatTakesConnectionsIsUsed) {
  const auto address = [](const char* ip, uint16_t port) {
    sockaddr_in in = {};
    in.sin_family = AF_INET;
    in.sin_port = htons(port);
    ::inet_pton(AF_INET, ip, &in.sin_addr);
    Address out;
    std::memcpy(&out.storage, &in, sizeof(in));
    out.length = sizeof(in);
    return out;
  };
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Address bound = address("127.0.0.1", 0);
  ASSERT_EQ(::bind(listener, std::bit_cast<const sockaddr*>(&bound.storage), bound.length), 0);
  ASSERT_EQ(::listen(listener, 8), 0);
  ASSERT_EQ(::getsockname(listener, std::bit_cast<sockaddr*>(&bound.storage), &bound.length), 0);
  sockaddr_in in = {};
  std::memcpy(&in, &bound.storage, sizeof(in));
  const uint16_t port = ntohs(in.sin_port);
  const auto chosen = [](const std::vector<Address>& all) {
    const Address one = choose_address(all);
    sockaddr_in out = {};
    std::memcpy(&out, &one.storage, sizeof(out));
    return ntohl(out.sin_addr.s_addr) & 0xff;
  };

  EXPECT_EQ(chosen({address("127.0.0.2", port), address("127.0.0.1", port)}), 1U);
  EXPECT_EQ(chosen({address("127.0.0.3", port), address("127.0.0.2", port)}), 3U);
  EXPECT_EQ(chosen({address("127.0.0.2", port)}), 2U);
  ::close(listener);
}

TEST(BenchConfig, RefusesCombinationsThatMakeNoSense) {
  const auto refused = [](const std::function<void(BenchConfig&)>& change) {
    BenchConfig config;
    change(config);
    const auto plan = make_plan(config);
    return plan ? "" : plan.error().message();
  };

  EXPECT_THAT(refused([](auto& c) { c.concurrency = 2, c.rate = 3; }), HasSubstr("exclude"));
  EXPECT_THAT(refused([](auto& c) { c.trace = "t", c.rate = 3; }), HasSubstr("--trace-speed"));
  EXPECT_THAT(refused([](auto& c) { c.sweep = "search"; }), HasSubstr("--duration"));
  EXPECT_THAT(refused([](auto& c) { c.sweep = "1,x", c.duration = std::chrono::seconds(1); }),
              HasSubstr("'x'"));
  EXPECT_THAT(refused([](auto& c) { c.cancel_percent = 5; }), HasSubstr("--cancel-after"));
  EXPECT_THAT(refused([](auto& c) { c.warmup = "soon"; }), HasSubstr("--warmup"));
  EXPECT_THAT(refused([](auto& c) { c.threads = 4; }), HasSubstr("--threads"));
  EXPECT_THAT(refused([](auto& c) { c.duration = std::chrono::seconds(2), c.warmup = "3s"; }),
              HasSubstr("nothing would be measured"));
  EXPECT_EQ(refused([](auto&) {}), "");
}

TEST(Descriptors, AreCheckedBeforeARun) {
  const Status status = check_descriptors(900'000'000);

  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message(), HasSubstr("ulimit"));
  EXPECT_TRUE(check_descriptors(1));
}

}  // namespace
}  // namespace stator::loadgen
