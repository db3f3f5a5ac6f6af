// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/telemetry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/json/value.h"
#include "stator/telemetry/test/facts.h"

namespace stator::telemetry {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Telemetry, KeepsTheNewestRequests) {
  SystemClock clock;
  Metrics metrics;
  const auto telemetry = Telemetry::start({.recent_max = 2}, true, clock, metrics);
  ASSERT_TRUE(telemetry);
  for (const std::string id : {"a", "b", "c"}) {
    RequestFacts facts = moved_request();
    facts.request_id = id;
    (*telemetry)->end(std::move(facts));
  }

  const auto all = json::parse((*telemetry)->render_requests(10));
  ASSERT_TRUE(all);
  ASSERT_EQ(all->size(), 2U);
  EXPECT_EQ(all->elements()[0].text_at({"request_id"}), "c");
  EXPECT_EQ(json::parse((*telemetry)->render_requests(10, "b"))->size(), 1U);
  EXPECT_EQ((*telemetry)->render_requests(10, "a"), "[]");
}

TEST(Telemetry, FollowsTheClientsTrace) {
  SystemClock clock;
  Metrics metrics;
  const auto telemetry = Telemetry::start({}, true, clock, metrics);
  net::HttpRequest request("GET", "/x");
  request.add_header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  request.add_header("tracestate", "a=1");
  RequestFacts facts;
  (*telemetry)->begin(facts, request, TimePoint());

  EXPECT_EQ(to_hex(facts.trace.trace), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(to_hex(facts.parent), "00f067aa0ba902b7");
  EXPECT_NE(facts.trace.span, facts.parent);
  EXPECT_TRUE(facts.trace.sampled);
  EXPECT_EQ(facts.trace_state, "a=1");
}

TEST(Telemetry, NamesASettingThatCannotBe) {
  SystemClock clock;
  Metrics metrics;
  TelemetryConfig config;
  config.log.access_log = "/nowhere/at/all";
  EXPECT_THAT(Telemetry::start(config, false, clock, metrics).error().message(),
              HasSubstr("request_log.access_log"));
  config = {};
  config.trace.endpoint = "collector:4318";
  EXPECT_THAT(Telemetry::start(config, false, clock, metrics).error().message(),
              HasSubstr("--otlp-endpoint"));
}

TEST(RedactBody, LeavesOutMediaAndSecrets) {
  const std::string body =
      R"({"model":"m","messages":[{"content":[{"image_url":{"url":"data:image/png;base64,)" +
      std::string(500, 'A') + R"("}},{"source":{"media_type":"image/png","data":")" +
      std::string(500, 'A') +
      R"("}}]}],"api_key":"sk-1","tools":[{"headers":{"Authorization":"x"}}]})";
  const std::string redacted = redact_body(body);

  EXPECT_THAT(redacted, HasSubstr("bytes left out"));
  EXPECT_THAT(redacted, HasSubstr(R"("api_key":"***")"));
  EXPECT_THAT(redacted, HasSubstr(R"("Authorization":"***")"));
  EXPECT_THAT(redacted, Not(HasSubstr("AAAA")));
  EXPECT_EQ(redact_body("not json"), R"({"bytes":8})");
}

}  // namespace
}  // namespace stator::telemetry
