// SPDX-License-Identifier: Apache-2.0
#include "stator/core/credentials.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "stator/core/log.h"

namespace stator {
namespace {

TEST(HideCredentials, OnlyUserAndPasswordOfUrls) {
  for (const auto& [text, shown] : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"plain", "plain"},
           {"a@b", "a@b"},
           {"nats://host:4222", "nats://host:4222"},
           {"nats://user:pa:ss@host:4222", "nats://***@host:4222"},
           {"nats://token@host", "nats://***@host"},
           {"http://u:p@ss@host/path@x", "http://***@host/path@x"},
           {"http://host/a@b", "http://host/a@b"},
           {"http://u:p@a:1,https://v:q@b:2,c", "http://***@a:1,https://***@b:2,c"},
           {"http://u:p@", "http://***@"},
           {"dial 'nats://u:p@host': no", "dial 'nats://***@host': no"},
           {R"({"url":"http://h:1","to":"a@b"})", R"({"url":"http://h:1","to":"a@b"})"},
           {"://", "://"}}) {
    EXPECT_EQ(hide_credentials(text), shown) << text;
  }
}

TEST(HideCredentials, NoLineOfTheLogShowsThem) {
  for (const log::Format format : {log::Format::kHuman, log::Format::kJson}) {
    const std::string line =
        log::format_line(format, LogLevel::kInfo, "test", "asking http://u:hunter2@host failed",
                         {{"url", std::string("nats://hunter2@host:4222")}}, 0);
    EXPECT_EQ(line.find("hunter2"), std::string::npos) << line;
    EXPECT_NE(line.find("nats://***@host:4222"), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace stator
