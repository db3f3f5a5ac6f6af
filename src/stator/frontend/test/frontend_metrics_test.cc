// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/frontend_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::frontend {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(FrontendMetrics, RequestsAreCountedByModelEndpointTypeAndOutcome) {
  Metrics metrics;
  FrontendMetrics frontend(metrics, "prefix");
  frontend.finished("demo", Endpoint::kChat, true, "");
  frontend.finished("demo", Endpoint::kChat, true, "");
  frontend.finished("demo", Endpoint::kCompletions, false, "validation");
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr("prefix_requests_total{model=\"demo\",endpoint=\"chat_completions\","
                              "request_type=\"stream\",status=\"success\",error_type=\"\"} 2"));
  EXPECT_THAT(text, HasSubstr("endpoint=\"completions\",request_type=\"unary\",status=\"error\","
                              "error_type=\"validation\"} 1"));
}

TEST(FrontendMetrics, SeriesOfOneModelAreMadeOnceAndShared) {
  Metrics metrics;
  FrontendMetrics one(metrics, "prefix");
  FrontendMetrics two(metrics, "prefix");
  one.series("demo", Endpoint::kChat, true).inflight.add(1);
  two.series("demo", Endpoint::kChat, false).inflight.add(1);
  EXPECT_THAT(metrics.render(), HasSubstr("prefix_inflight_requests{model=\"demo\"} 2"));
  one.series("other", Endpoint::kChat, true).started.add();
  EXPECT_THAT(metrics.render(), HasSubstr("prefix_requests_started_total{model=\"other\","));
}

TEST(FrontendMetrics, SurvivedOutputIsCountedByParserAndKind) {
  Metrics metrics;
  FrontendMetrics frontend(metrics, "prefix");
  frontend.recovered("hermes", "malformed_body", 2);
  frontend.recovered("hermes", "malformed_body", 1);
  frontend.recovered("hermes", "not_a_call", 1);
  const std::string text = metrics.render();
  EXPECT_THAT(text, HasSubstr("stator_frontend_parser_recoveries_total{parser=\"hermes\","
                              "kind=\"malformed_body\"} 3"));
  EXPECT_THAT(text, HasSubstr("kind=\"not_a_call\"} 1"));
}

TEST(FrontendMetrics, EveryErrorCodeHasALabelOfDashboards) {
  for (int code = 0; code < kCodeCount; ++code) {
    EXPECT_THAT(FrontendMetrics::error_type(static_cast<Code>(code)), Not(IsEmpty())) << code;
  }
  EXPECT_EQ(FrontendMetrics::error_type(Code::kNotFound), "not_found");
  EXPECT_EQ(FrontendMetrics::error_type(Code::kOverloaded), "overload");
  EXPECT_EQ(FrontendMetrics::error_type(Code::kCancelled), "cancelled");
}

}  // namespace
}  // namespace stator::frontend
