// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/prometheus_query.h"

#include <gtest/gtest.h>

#include <cmath>

namespace stator::scaling {
namespace {

TEST(PrometheusQuery, AnswersBecomePagesPerInstance) {
  const auto pages = parse_vector(
      R"({"status":"success","data":{"resultType":"vector","result":[
{"metric":{"__name__":"x_total","instance":"a:1","model":"m"},"value":[1700000000.1,"12"]},
{"metric":{"__name__":"x_total","instance":"b:1","model":"m"},"value":[1700000000.1,"NaN"]}]}})");

  ASSERT_TRUE(pages) << pages.error().message();
  ASSERT_EQ(pages->size(), 2U);
  EXPECT_EQ(pages->at("a:1").sum("x_total"), 12);
  EXPECT_TRUE(std::isnan(*pages->at("b:1").sum("x_total")));
}

TEST(PrometheusQuery, ErrorsAreTold) {
  const auto refused =
      parse_vector(R"({"status":"error","errorType":"bad_data","error":"parse error"})");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("parse error"), std::string::npos);
  for (const char* text :
       {"", "<html>", "{}", R"({"status":"success"})",
        R"({"status":"success","data":{"resultType":"matrix","result":[]}})",
        R"({"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}})"}) {
    EXPECT_FALSE(parse_vector(text)) << text;
  }
}

TEST(PrometheusQuery, NamesAreQuoted) {
  const std::string query = make_query({.prefix = "dynamo_frontend", .model = "a\"b"});
  EXPECT_NE(query.find("dynamo_frontend_.+"), std::string::npos);
  EXPECT_NE(query.find("model=~\"a\\\"b|\""), std::string::npos) << query;
}

}  // namespace
}  // namespace stator::scaling
