// SPDX-License-Identifier: Apache-2.0
#include "stator/app/settings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>

namespace stator::app {
namespace {

class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() { describe(schema_, settings_); }
  Status load(std::map<std::string, std::string> flags,
              std::map<std::string, std::string> env = {}) {
    ConfigSchema::Sources sources;
    sources.env = [env](const std::string& name) {
      const auto it = env.find(name);
      return it == env.end() ? std::nullopt : std::optional(it->second);
    };
    for (auto& [flag, value] : flags) {
      sources.flags[flag] = value;
    }
    return schema_.load(sources);
  }
  Settings settings_;
  ConfigSchema schema_;
};

TEST_F(SettingsTest, TheCommittedTableIsWhatTheSchemaSays) {
  std::ifstream file(STATOR_SOURCE_DIR "/docs/configuration.md");
  const std::string committed{std::istreambuf_iterator<char>(file), {}};
  const std::string table = schema_.render_markdown();
  EXPECT_TRUE(committed.ends_with(table))
      << "docs/configuration.md is out of date: stator config --markdown > docs/configuration.md";
}

TEST_F(SettingsTest, EverySettingHasHelpAndItsOwnFlag) {
  std::set<std::string> flags;
  for (const ConfigField& field : schema_.fields()) {
    EXPECT_FALSE(field.help.empty()) << field.key;
    EXPECT_TRUE(flags.insert(field.flag).second) << field.flag;
    EXPECT_TRUE(field.flag.starts_with("--")) << field.flag;
  }
}

/// Whether a setting's name says that its value is nobody's business.
bool is_secret_name(std::string_view key) {
  // Counts of tokens, and where a key is.
  for (const std::string_view harmless :
       {"tokens", "_key_path", "api_keys", "etcd_key", "token_budget", "per_token", "token_ids"}) {
    if (key.find(harmless) != std::string_view::npos) {
      return false;
    }
  }
  for (const std::string_view word : {"password", "token", "secret", "key", "credential"}) {
    if (key.find(word) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

TEST_F(SettingsTest, WhatIsCalledASecretIsNeverShown) {
  size_t secrets = 0;
  for (const ConfigField& field : schema_.fields()) {
    if (!is_secret_name(field.key)) {
      continue;
    }
    if (field.kind == "text") {
      ADD_FAILURE() << field.key << " is shown: declare it with secret()";
    }
    if (field.kind == "secret") {
      ++secrets;
      ASSERT_TRUE(field.set("hunter2"));
      EXPECT_EQ(field.get(), "***") << field.key;
    }
  }
  EXPECT_GE(secrets, 4U);
  EXPECT_EQ(schema_.render_yaml().find("hunter2"), std::string::npos);
}

TEST_F(SettingsTest, NoTextSettingShowsAUrlsPassword) {
  for (const ConfigField& field : schema_.fields()) {
    if (field.kind == "text") {
      ASSERT_TRUE(field.set("nats://user:hunter2@host:1,http://hunter2@host")) << field.key;
    }
  }
  EXPECT_EQ(schema_.render_yaml().find("hunter2"), std::string::npos);
}

TEST_F(SettingsTest, AFlagWinsOverTheEnvironmentAndThatOverItsPeersName) {
  ASSERT_TRUE(load({}, {{"DYN_HTTP_PORT", "1"}}).has_value());
  EXPECT_EQ(settings_.frontend.http.port, 1);
  ASSERT_TRUE(load({}, {{"DYN_HTTP_PORT", "1"}, {"STATOR_HTTP_PORT", "2"}}).has_value());
  EXPECT_EQ(settings_.frontend.http.port, 2);
  ASSERT_TRUE(load({{"--port", "3"}}, {{"STATOR_HTTP_PORT", "2"}}).has_value());
  EXPECT_EQ(settings_.frontend.http.port, 3);
}

TEST_F(SettingsTest, ABadValueIsNamedWithItsSource) {
  const Status status = load({{"--engine", "warp"}});
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code(), Code::kInvalidArgument);
  EXPECT_NE(status.error().message().find("--engine"), std::string::npos);
  EXPECT_NE(status.error().message().find("warp"), std::string::npos);
}

}  // namespace
}  // namespace stator::app
