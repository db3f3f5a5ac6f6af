// SPDX-License-Identifier: Apache-2.0
#include "stator/cli/dynamo.h"

#include <gtest/gtest.h>

#include "stator/cli/settings.h"

namespace stator::cli {
namespace {

DynamoFinding assess(const std::string& name) {
  Settings settings;
  ConfigSchema schema;
  describe(schema, settings);
  return assess_dynamo(schema, std::vector<std::string>{name}).at(0);
}

TEST(Dynamo, NamesTheSettingOfAVariable) {
  const DynamoFinding port = assess("DYN_HTTP_PORT");
  EXPECT_EQ(port.kind, DynamoFinding::Kind::kMapped);
  EXPECT_EQ(port.advice, "http.port (STATOR_HTTP_PORT)");
  for (const char* name :
       {"DYN_ROUTER_MODE", "DYN_DISABLE_FRONTEND_NVEXT", "DYN_NAMESPACE", "DYN_STORE_KV",
        "DYN_USE_KV_EVENTS", "DYN_LOGGING_JSONL", "DYN_ENABLE_FORCE_INCLUDE_USAGE"}) {
    EXPECT_EQ(assess(name).kind, DynamoFinding::Kind::kMapped) << name;
  }
}

TEST(Dynamo, SaysWhatToUseInsteadOfOthers) {
  EXPECT_EQ(assess("DYN_HTTP_PRE_COMMIT_ERROR_PEEK_MS").kind, DynamoFinding::Kind::kIgnored);
  EXPECT_EQ(assess("DYN_ROUTER_EVENT_THREADS").kind, DynamoFinding::Kind::kIgnored);
  EXPECT_EQ(assess("DYN_METRICS_TTFT_MIN").kind, DynamoFinding::Kind::kIgnored);
  EXPECT_EQ(assess("DYN_NO_SUCH_THING").kind, DynamoFinding::Kind::kUnknown);
}

TEST(Dynamo, FindsNamesInAManifest) {
  EXPECT_EQ(
      find_dynamo_names("env:\n- name: DYN_HTTP_PORT\n  value: $DYN_X_Y\n# DYN_HTTP_PORT MY_DYN_A "
                        "DYN_"),
      (std::vector<std::string>{"DYN_HTTP_PORT", "DYN_X_Y"}));
}

}  // namespace
}  // namespace stator::cli
