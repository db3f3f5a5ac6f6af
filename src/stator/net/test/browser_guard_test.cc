// SPDX-License-Identifier: Apache-2.0
#include "stator/net/browser_guard.h"

#include <gtest/gtest.h>

#include <string>

namespace stator::net {
namespace {

struct Page {
  const char* name;
  std::string host;
  std::string origin;  // empty: no header
  BrowserRules rules;
  bool allowed;
};

HttpRequest request_of(const Page& page) {
  HttpRequest request("POST", "/busy_threshold");
  request.add_header("Host", page.host);
  if (!page.origin.empty()) {
    request.add_header("Origin", page.origin);
  }
  return request;
}

class MayChangeTest : public testing::TestWithParam<Page> {};

TEST_P(MayChangeTest, FollowsOriginAndHost) {
  const Status may = check_may_change(request_of(GetParam()), GetParam().rules);

  EXPECT_EQ(may.has_value(), GetParam().allowed);
  if (!may) {
    EXPECT_EQ(may.error().code(), Code::kPermissionDenied);
    EXPECT_NE(may.error().message().find("http.cors_origins"), std::string_view::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(
    BrowserGuard, MayChangeTest,
    testing::Values(
        Page{"NoPage", "stator.example:8000", "", {}, true},
        Page{"AnotherOrigin", "localhost:8000", "https://evil.example", {}, false},
        Page{"AnotherPort", "localhost:8000", "http://localhost:3000", {}, false},
        Page{"AFile", "localhost:8000", "null", {}, false},
        Page{"Rebound", "evil.example:8000", "http://evil.example:8000", {}, false},
        Page{"OurOwn", "localhost:8000", "http://localhost:8000", {}, true},
        Page{"OurOwnV4", "10.0.0.7:8000", "http://10.0.0.7:8000", {}, true},
        Page{"OurOwnV6", "[::1]:8000", "http://[::1]:8000", {}, true},
        Page{"OurOwnByName",
             "Stator.example",
             "https://stator.example",
             {.cors_origins = "", .allowed_hosts = "a.example, stator.example"},
             true},
        Page{"NoAddress", "1.2.3.4.evil.example", "http://1.2.3.4.evil.example", {}, false},
        Page{"HalfABracket", "[", "http://[", {}, false},
        Page{"Listed",
             "stator.example",
             "https://chat.example",
             {.cors_origins = "https://chat.example", .allowed_hosts = ""},
             true},
        Page{"NotListed",
             "stator.example",
             "https://chat.example.evil",
             {.cors_origins = "https://chat.example", .allowed_hosts = ""},
             false},
        Page{"All",
             "stator.example",
             "https://any.example",
             {.cors_origins = "*", .allowed_hosts = ""},
             true}),
    [](const auto& info) { return info.param.name; });

TEST(BrowserGuard, HostsOfALocalServerAreNamesOfThisMachine) {
  for (const std::string_view host :
       {"localhost", "LOCALHOST:1", "127.0.0.1:22031", "[::1]:80", "10.1.2.3", "box.lan:9"}) {
    HttpRequest request("GET", "/metrics");
    request.add_header("host", host);
    EXPECT_TRUE(check_host(request, "box.lan").has_value()) << host;
  }
  for (const std::string_view host : {"evil.example", "localhost.evil.example:80", "[::1",
                                      "127.0.0.1.evil.example", "[evil]:80", "box.lan.evil"}) {
    HttpRequest request("GET", "/metrics");
    request.add_header("host", host);
    EXPECT_FALSE(check_host(request, "box.lan").has_value()) << host;
  }
}

}  // namespace
}  // namespace stator::net
