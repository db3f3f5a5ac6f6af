// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/operator_metrics.h"

#include <gtest/gtest.h>

#include "graphs.h"

namespace stator::op {
namespace {

using namespace std::chrono_literals;

TEST(OperatorMetrics, CountObjectsByWhatTheyAreAt) {
  Metrics metrics;
  OperatorMetrics counts(metrics);
  json::Value graph = from_yaml(kAggregated);
  const kube::ObjectName name = kube::name_of(graph);
  const auto shown = [&](std::string_view status, int number) {
    const std::string line =
        "dynamo_operator_resources_total{resource_type="
        "\"DynamoGraphDeployment\",namespace=\"llm\",status=\"" +
        std::string(status) + "\"} " + std::to_string(number) + "\n";
    return metrics.render().find(line) != std::string::npos;
  };
  counts.on_object("DynamoGraphDeployment", name, &graph);
  EXPECT_TRUE(shown("unknown", 1)) << metrics.render();
  graph["status"]["state"] = "successful";
  counts.on_object("DynamoGraphDeployment", name, &graph);
  counts.on_object("DynamoGraphDeployment", name, &graph);
  EXPECT_TRUE(shown("unknown", 0));
  EXPECT_TRUE(shown("successful", 1));
  counts.on_object("DynamoGraphDeployment", name, nullptr);
  EXPECT_TRUE(shown("successful", 0));
}

TEST(OperatorMetrics, NamespacesAreBounded) {
  Metrics metrics;
  OperatorMetrics counts(metrics);
  for (size_t i = 0; i < OperatorMetrics::kNamespacesMax + 5; ++i) {
    counts.on_reconciled("DynamoGraphDeployment", "space-" + std::to_string(i), {}, 1ms);
  }
  counts.on_reconciled("DynamoGraphDeployment", "last", Error(Code::kPermissionDenied, "no rights"),
                       1ms);
  counts.on_reviewed("DynamoGraphDeployment", "CREATE", false, 1ms);
  const std::string text = metrics.render();
  EXPECT_NE(text.find("namespace=\"other\",result=\"success\"} 5\n"), std::string::npos);
  EXPECT_NE(text.find("namespace=\"other\",error_type=\"forbidden\"} 1\n"), std::string::npos);
  EXPECT_NE(text.find("operation=\"CREATE\",result=\"denied\"} 1\n"), std::string::npos);
}

}  // namespace
}  // namespace stator::op
