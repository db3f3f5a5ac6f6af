// SPDX-License-Identifier: Apache-2.0
#include "stator/app/dynamo_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "stator/app/settings.h"

namespace stator::app {
namespace {

using Kind = DynamoFinding::Kind;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<DynamoFinding> assess(std::string_view text) {
  Settings settings;
  ConfigSchema schema;
  describe(schema, settings);
  return assess_source(schema, read_dynamo_source(text));
}

/// What is said of `name`; a kind that nothing has for a name that is not there.
DynamoFinding said_of(std::string_view text, std::string_view name) {
  for (DynamoFinding& finding : assess(text)) {
    if (finding.name == name) {
      return finding;
    }
  }
  return {std::string(name), static_cast<Kind>(99), "not mentioned"};
}

TEST(DynamoSource, FindsVariablesInEverySpelling) {
  const auto source = read_dynamo_source(
      "export DYN_A=1\nDYN_B=\"two words\" run\nenv:\n- name: DYN_C\n  value: \"3\"\n"
      "environment:\n  DYN_D: four\n  - DYN_E=5\n{\"DYN_F\": \"six\"}\n"
      "- name: DYN_G\n  valueFrom: {}\n- name: DYN_H\n  value: $DYN_X_Y\n# MY_DYN_A DYN_\n");
  std::string all;
  for (const auto& [name, value] : source.variables) {
    all += name + "=" + value.value_or("?") + " ";
  }
  EXPECT_EQ(all,
            "DYN_A=1 DYN_B=two words DYN_C=3 DYN_D=four DYN_E=5 DYN_F=six DYN_G=? "
            "DYN_H=$DYN_X_Y DYN_X_Y=? ");
}

TEST(DynamoSource, FindsCommandLinesInEverySpelling) {
  for (const char* text : {
           "python3 -m dynamo.frontend --http-port 8000 \\\n  --router-mode kv &\necho --no",
           "command: [\"python3\", \"-m\", \"dynamo.frontend\", \"--http-port\", \"8000\", "
           "'--router-mode', 'kv']\nenv: --no",
           "command:\n  - python3\n  - -m\n  - dynamo.frontend\nargs:\n  - --http-port\n"
           "  - \"8000\"\n  - --router-mode=kv\nresources:\n  - --no",
           "args:\n- |\n  exec python -m dynamo.frontend --http-port 8000 --router-mode kv;\n"
           "  x --no",
       }) {
    std::string all;
    for (const auto& flag : read_dynamo_source(text).flags) {
      all += flag.module + " " + flag.flag + "=" + flag.value + " ";
    }
    EXPECT_EQ(all, "frontend --http-port=8000 frontend --router-mode=kv ") << text;
  }
  EXPECT_THAT(read_dynamo_source("--endpoint dyn://dynamo.backend.generate --x").flags, IsEmpty());
}

TEST(DynamoReport, SaysWhatFlagsMean) {
  constexpr std::string_view kText =
      "python -m dynamo.frontend --http-port 8000 --request-plane tcp --no-such-flag x\n"
      "python -m dynamo.vllm --model Qwen/Qwen3-0.6B --gpu-memory-utilization 0.8\n";
  EXPECT_EQ(said_of(kText, "--http-port").advice, "http.port (--port)");
  EXPECT_EQ(said_of(kText, "--request-plane").kind, Kind::kIgnored);
  EXPECT_EQ(said_of(kText, "--no-such-flag").kind, Kind::kUnknown);
  EXPECT_EQ(said_of(kText, "--model").advice, "the argument MODEL");
  EXPECT_THAT(said_of(kText, "--gpu-memory-utilization").advice, HasSubstr("vllm server itself"));
}

TEST(DynamoReport, TriesValues) {
  EXPECT_EQ(said_of("DYN_ROUTER_MODE=bogus", "DYN_ROUTER_MODE").kind, Kind::kInvalid);
  EXPECT_EQ(said_of("DYN_ROUTER_MODE=round-robin", "DYN_ROUTER_MODE").kind, Kind::kMapped);
  EXPECT_EQ(said_of("DYN_HTTP_BODY_LIMIT_MB=45", "DYN_HTTP_BODY_LIMIT_MB").kind, Kind::kMapped);
  EXPECT_EQ(said_of("DYN_LOGGING_CONSOLE_FORMAT=jsonl", "DYN_LOGGING_CONSOLE_FORMAT").kind,
            Kind::kMapped);
  EXPECT_EQ(said_of("DYN_HTTP_PORT=$PORT", "DYN_HTTP_PORT").kind, Kind::kMapped);
  const auto flag = said_of("python -m dynamo.frontend --http-port eighty", "--http-port");
  EXPECT_EQ(flag.kind, Kind::kInvalid);
  EXPECT_THAT(flag.advice, HasSubstr("eighty"));
}

TEST(DynamoReport, NamesDefaultsThatDiffer) {
  EXPECT_EQ(said_of("", "router.mode").kind, Kind::kDiffers);
  EXPECT_EQ(said_of("DYN_ROUTER_MODE=kv", "router.mode").advice, "not mentioned");
  EXPECT_EQ(said_of("python -m dynamo.vllm --migration-limit 2", "frontend.migration_limit").advice,
            "not mentioned");
}

}  // namespace
}  // namespace stator::app
