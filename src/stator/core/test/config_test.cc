// SPDX-License-Identifier: Apache-2.0
#include "stator/core/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace stator {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

struct Settings {
  uint16_t port = 8000;
  Duration timeout = 5s;
  uint64_t body_bytes = 192ULL << 20;
  std::string mode = "kv";
  bool verbose = false;
  double temperature = 0.0;
  std::string name;
};

ConfigSchema make_schema(Settings& settings) {
  ConfigSchema schema;
  schema.integer("http.port", settings.port, 0, 65535, "port",
                 {.flag = "port", .env_peer = "DYN_HTTP_PORT"});
  schema.duration("http.timeout", settings.timeout, "timeout");
  schema.bytes("http.body_bytes_max", settings.body_bytes, "largest body",
               {.env_peer = "DYN_HTTP_BODY_LIMIT_MB"});
  schema.choice("router.mode", settings.mode, {"kv", "random"}, "mode", {.flag = "router"});
  schema.boolean("log.verbose", settings.verbose, "more");
  schema.number("router.temperature", settings.temperature, 0, 10, "softmax temperature");
  schema.text("name", settings.name, "served name");
  return schema;
}

ConfigSchema::Sources with_env(std::map<std::string, std::string> env) {
  ConfigSchema::Sources sources;
  sources.env = [env = std::move(env)](const std::string& key) -> std::optional<std::string> {
    const auto it = env.find(key);
    return it == env.end() ? std::nullopt : std::optional(it->second);
  };
  return sources;
}

std::string error_of(const Status& status) {
  return status ? "" : status.error().message();
}

TEST(Config, ReadsYamlEnvironmentAndFlagsInOrderOfPrecedence) {
  Settings settings;
  ConfigSchema schema = make_schema(settings);
  const std::string path = testing::TempDir() + "config_test.yaml";
  std::ofstream(path)
      << "http:\n  port: 1\n  timeout: 250ms\n  body_bytes_max: 64KiB\nname: demo\n";
  auto sources = with_env(
      {{"STATOR_HTTP_PORT", "2"}, {"DYN_HTTP_PORT", "9"}, {"STATOR_ROUTER_MODE", "random"}});
  sources.file = path;
  sources.flags = {{"--port", "3"}, {"--log-verbose", "true"}};

  ASSERT_EQ(error_of(schema.load(sources)), "");

  EXPECT_EQ(settings.port, 3);
  EXPECT_EQ(settings.timeout, 250ms);
  EXPECT_EQ(settings.body_bytes, 65536U);
  EXPECT_EQ(settings.mode, "random");
  EXPECT_TRUE(settings.verbose);
  EXPECT_EQ(settings.name, "demo");
  std::remove(path.c_str());
}

TEST(Config, APeersVariableCountsWhenOursIsUnset) {
  Settings settings;
  ConfigSchema schema = make_schema(settings);
  ASSERT_EQ(error_of(schema.load(with_env({{"DYN_HTTP_PORT", "9"}}))), "");
  EXPECT_EQ(settings.port, 9);
}

TEST(Config, APeersVariableMayHaveItsUnitInItsName) {
  Settings settings;
  ConfigSchema schema = make_schema(settings);
  ASSERT_EQ(error_of(schema.load(with_env({{"DYN_HTTP_BODY_LIMIT_MB", "45"}}))), "");
  EXPECT_EQ(settings.body_bytes, 45UL << 20);
}

TEST(Config, AnUnknownKeyNamesTheNearestOne) {
  Settings settings;
  EXPECT_EQ(error_of(make_schema(settings).load_yaml("http:\n  prot: 1\n")),
            "unknown configuration key 'http.prot', did you mean 'http.port'?");
}

struct BadValue {
  const char* yaml;
  const char* message;
};

class ConfigBadValue : public testing::TestWithParam<BadValue> {};

TEST_P(ConfigBadValue, NamesKeyValueAndRange) {
  Settings settings;
  EXPECT_THAT(error_of(make_schema(settings).load_yaml(GetParam().yaml)),
              HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, ConfigBadValue,
    testing::Values(
        BadValue{"http: {port: 70000}",
                 "http.port (configuration file): '70000' is not an integer in 0 … 65535"},
        BadValue{"http: {port: 80x}", "'80x' is not an integer"},
        BadValue{"http: {timeout: soon}", "'soon' is not a duration"},
        BadValue{"http: {timeout: -1s}", "'-1s' is not a duration"},
        BadValue{"http: {body_bytes_max: 1XB}", "'1XB' is not a size"},
        BadValue{"router: {mode: best}", "'best' is not one of kv, random"},
        BadValue{"router: {temperature: nan}", "'nan' is not a number in"},
        BadValue{"log: {verbose: maybe}", "'maybe' is neither true nor false"},
        BadValue{"http: [1, 2]", "http"}, BadValue{"http: {port: [{a: 1}]}", "http.port"},
        BadValue{"http: {port: 1", "not valid YAML"}));

TEST(Config, AListIsItsValuesWithCommas) {
  Settings settings;
  ASSERT_TRUE(make_schema(settings).load_yaml("router:\n  mode: [random]\n").has_value());
  EXPECT_EQ(settings.mode, "random");
  EXPECT_THAT(error_of(make_schema(settings).load_yaml("router: {mode: [kv, random]}")),
              HasSubstr("'kv,random'"));
}

TEST(Config, AMissingFileIsNamed) {
  Settings settings;
  ConfigSchema::Sources sources;
  sources.file = "/nonexistent/stator.yaml";
  EXPECT_THAT(error_of(make_schema(settings).load(sources)), HasSubstr("/nonexistent/stator.yaml"));
}

TEST(Config, RenderedYamlLoadsBack) {
  Settings settings;
  settings.port = 1234;
  settings.mode = "random";
  const std::string yaml = make_schema(settings).render_yaml();
  Settings loaded;
  ASSERT_EQ(error_of(make_schema(loaded).load_yaml(yaml)), "");
  EXPECT_EQ(loaded.port, 1234);
  EXPECT_EQ(loaded.mode, "random");
}

TEST(Config, TheDocsTableHasARowPerField) {
  Settings settings;
  EXPECT_THAT(make_schema(settings).render_markdown(),
              HasSubstr("| `http.port` | `--port` | `STATOR_HTTP_PORT` (`DYN_HTTP_PORT`) | `8000` "
                        "| 0 … 65535 | port |"));
}

TEST(Config, SecretsAreReadButNeverShown) {
  std::string token = "default";
  ConfigSchema schema;
  schema.secret("hub.token", token, "for gated models");
  ASSERT_EQ(error_of(schema.load_yaml("hub: {token: hunter2}")), "");
  EXPECT_EQ(token, "hunter2");
  EXPECT_THAT(schema.render_yaml(), testing::Not(HasSubstr("hunter2")));
  EXPECT_THAT(schema.render_markdown(), testing::Not(HasSubstr("default`")));
}

TEST(Config, ParsesDurationsAndSizes) {
  EXPECT_EQ(parse_duration("1.5s").value(), 1500ms);
  EXPECT_EQ(parse_duration("2m").value(), 2min);
  EXPECT_EQ(parse_duration("3").value(), 3s);
  EXPECT_EQ(parse_bytes("1GiB").value(), 1ULL << 30);
  EXPECT_EQ(parse_bytes("192MB").value(), 192'000'000U);
  EXPECT_FALSE(parse_bytes("").has_value());
}

}  // namespace
}  // namespace stator
