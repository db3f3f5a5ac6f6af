// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/page_observer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace stator::scaling {
namespace {

/// A frontend's page after so many requests of 100 + 10 tokens.
MetricsPage page_after(double requests, double late = 0, std::string_view model = "m") {
  const std::string labels = fmt::format("{{model=\"{}\"}}", model);
  std::string text;
  const auto add = [&](std::string_view name, double value) {
    text += fmt::format("dynamo_frontend_{}{} {}\n", name, labels, value);
  };
  add("requests_started_total", requests);
  add("requests_total", requests);
  add("input_sequence_tokens_sum", requests * 100);
  add("input_sequence_tokens_count", requests);
  add("output_sequence_tokens_sum", requests * 10);
  add("output_sequence_tokens_count", requests);
  add("cached_tokens_sum", requests * 25);
  add("time_to_first_token_seconds_sum", requests * 0.2);
  add("time_to_first_token_seconds_count", requests);
  for (const auto& [bound, count] :
       {std::pair("0.25", requests - late), std::pair("0.5", requests - late),
        std::pair("1", requests), std::pair("+Inf", requests)}) {
    text += fmt::format(
        "dynamo_frontend_time_to_first_token_seconds_bucket{{model=\"{}\",le=\"{}\"}} {}\n", model,
        bound, count);
  }
  text += fmt::format(
      "dynamo_frontend_worker_active_decode_blocks{{model=\"{}\",worker_id=\"7\",dp_rank=\"0\","
      "worker_type=\"decode\"}} 3\n"
      "dynamo_component_router_worker_registered{{model=\"{}\"}} 2\n",
      model, model);
  return *MetricsPage::parse(text);
}

Observation look(PageObserver& observer, double now_s, const MetricsPage& a,
                 const MetricsPage* b = nullptr) {
  observer.begin();
  observer.add("a", a);
  if (b != nullptr) {
    observer.add("b", *b);
  }
  return observer.end(now_s);
}

TEST(PageObserver, CountsWhatGrewBetweenTwoLooksAtAllFrontends) {
  PageObserver observer({.block_size = 16, .ttft_ms = 500});
  const MetricsPage a1 = page_after(10), b1 = page_after(5), a2 = page_after(30, 4),
                    b2 = page_after(15);

  const Observation first = look(observer, 100, a1, &b1);
  const Observation second = look(observer, 110, a2, &b2);

  EXPECT_FALSE(first.window);
  EXPECT_TRUE(first.broken.empty()) << first.broken;
  ASSERT_TRUE(second.window);
  EXPECT_EQ(second.window_s, 10);
  EXPECT_EQ(second.window->started, 30);
  EXPECT_EQ(second.window->input_tokens, 3000);
  EXPECT_EQ(second.window->cached_tokens, 750);
  EXPECT_NEAR(second.window->ttft_late, 4, 1e-9);
  ASSERT_EQ(second.loads.size(), 1U);
  EXPECT_EQ(second.loads[0].decode_kv_tokens, 2 * 3 * 16);
  EXPECT_EQ(second.decode_ready, 2U);
}

TEST(PageObserver, OtherModelsDoNotCount) {
  PageObserver observer({.model = "m"});
  look(observer, 1, page_after(1));
  EXPECT_EQ(look(observer, 2, page_after(4)).window->started, 3);
  EXPECT_EQ(look(observer, 3, page_after(9, 0, "other")).broken.empty(), false);  // ours fell to 0
}

TEST(PageObserver, ACounterThatFellGivesNoWindowAndCountsFromThere) {
  PageObserver observer({});
  look(observer, 1, page_after(100));
  const Observation fell = look(observer, 2, page_after(3));
  const Observation next = look(observer, 3, page_after(5));

  EXPECT_NE(fell.broken.find("began again"), std::string::npos) << fell.broken;
  ASSERT_TRUE(next.window);
  EXPECT_TRUE(next.broken.empty()) << next.broken;
  EXPECT_EQ(next.window->started, 2);
}

TEST(PageObserver, ASourceThatDoesNotAnswerIsMadeUpForLater) {
  PageObserver observer({});
  const MetricsPage a = page_after(10), b = page_after(10), later = page_after(20);
  look(observer, 10, a, &b);

  observer.begin();
  observer.add("a", page_after(14));
  observer.fail("b", "connection refused");
  const Observation lost = observer.end(20);
  const Observation next = look(observer, 30, later, &later);

  EXPECT_NE(lost.broken.find("connection refused"), std::string::npos);
  EXPECT_TRUE(next.broken.empty()) << next.broken;
  EXPECT_EQ(next.window_s, 20);
  EXPECT_EQ(next.window->started, 20);
}

TEST(PageObserver, NoNumberAndAClockThatWentBackAreTold) {
  PageObserver observer({});
  look(observer, 10, page_after(10));
  const auto odd = MetricsPage::parse("dynamo_frontend_requests_started_total NaN\n");
  EXPECT_NE(look(observer, 20, *odd).broken.find("no number"), std::string::npos);
  look(observer, 30, page_after(10));
  EXPECT_NE(look(observer, 25, page_after(11)).broken.find("clock"), std::string::npos);
}

TEST(PageObserver, ASourceThatStaysAwayIsForgottenInTheEnd) {
  PageObserver observer({});
  const MetricsPage a = page_after(10), b = page_after(10);
  look(observer, 1, a, &b);
  double now_s = 2;
  int untrusted = 0;
  while (now_s < 100 && !look(observer, now_s, a).broken.empty()) {
    ++now_s;
    ++untrusted;
  }

  EXPECT_EQ(untrusted, 30);
  EXPECT_TRUE(look(observer, now_s + 1, page_after(12)).broken.empty());
}

}  // namespace
}  // namespace stator::scaling
