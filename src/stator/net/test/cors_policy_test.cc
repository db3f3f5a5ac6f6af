// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/cors_policy.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace stator::net::detail {
namespace {

std::string_view lines_for(const CorsPolicy& policy, std::string_view origin) {
  HttpRequest request("GET", "/");
  request.add_header("Origin", origin);
  return policy.lines_for(request);
}

HttpRequest make_preflight(std::string_view origin, std::string_view asked_headers) {
  HttpRequest request("OPTIONS", "/v1/models");
  request.add_header("Origin", origin);
  request.add_header("Access-Control-Request-Method", "POST");
  request.add_header("Access-Control-Request-Headers", asked_headers);
  return request;
}

TEST(CorsPolicy, SaysNothingWithoutOrigins) {
  const CorsPolicy policy = CorsPolicy::parse(" , ").value();

  EXPECT_EQ(lines_for(policy, "https://a.example"), "");
  EXPECT_FALSE(policy.is_preflight(make_preflight("https://a.example", "")));
}

TEST(CorsPolicy, AllowsExactlyTheListedOrigins) {
  const CorsPolicy policy =
      CorsPolicy::parse("https://Chat.Example, http://localhost:3000,null").value();

  for (const char* origin : {"https://chat.example", "http://localhost:3000", "null"}) {
    EXPECT_TRUE(lines_for(policy, origin)
                    .starts_with("access-control-allow-origin: " + std::string(origin) + "\r\n"))
        << origin;
  }
  for (const char* origin : {"http://chat.example", "https://chat.example:8443", "", "*",
                             "http://localhost", "https://chat.example.evil.example"}) {
    EXPECT_EQ(lines_for(policy, origin), "vary: Origin\r\n") << origin;
  }
  EXPECT_EQ(policy.lines_for(HttpRequest("GET", "/")), "vary: Origin\r\n");
}

TEST(CorsPolicy, AStarAllowsAll) {
  const CorsPolicy policy = CorsPolicy::parse("*").value();

  EXPECT_TRUE(
      lines_for(policy, "https://any.example").starts_with("access-control-allow-origin: *\r\n"));
  EXPECT_FALSE(policy.lines_for(HttpRequest("GET", "/")).contains("access-control"));
}

TEST(CorsPolicy, LetsPagesReadTheRequestId) {
  const CorsPolicy policy = CorsPolicy::parse("*").value();

  EXPECT_TRUE(lines_for(policy, "https://any.example")
                  .contains("\r\naccess-control-expose-headers: x-request-id, "));
}

TEST(CorsPolicy, RefusesWhatIsNoOrigin) {
  for (const char* text :
       {"chat.example", "https://", "https://chat.example/", "https://chat.example/app",
        "https://*.example", "https://user@chat.example", R"(["*"])", "https://a b", "://x",
        "https://a.example\r\nx-evil: 1", "https://chat.example,localhost:3000"}) {
    const auto policy = CorsPolicy::parse(text);
    ASSERT_FALSE(policy.has_value()) << text;
    EXPECT_EQ(policy.error().code(), Code::kInvalidArgument);
    EXPECT_TRUE(policy.error().to_string().contains("http.cors_origins")) << text;
  }
}

TEST(CorsPolicy, KnowsPreflightsOfAllowedOrigins) {
  const CorsPolicy policy = CorsPolicy::parse("https://a.example").value();
  HttpRequest no_question("OPTIONS", "/");
  no_question.add_header("Origin", "https://a.example");
  HttpRequest get("GET", "/");
  get.add_header("Origin", "https://a.example");
  get.add_header("Access-Control-Request-Method", "GET");

  EXPECT_TRUE(policy.is_preflight(make_preflight("https://a.example", "")));
  EXPECT_FALSE(policy.is_preflight(make_preflight("https://b.example", "")));
  EXPECT_FALSE(policy.is_preflight(no_question));
  EXPECT_FALSE(policy.is_preflight(get));
}

TEST(CorsPolicy, RepeatsTheAskedHeadersWithinALimit) {
  const std::string long_list(2049, 'x');
  const HttpRequest usual = make_preflight("https://a.example", "authorization,content-type");
  const HttpRequest odd = make_preflight("https://a.example", long_list);

  const auto headers = make_preflight_headers(usual);
  ASSERT_EQ(headers.size(), 3U);
  EXPECT_EQ(headers[0].name, "access-control-allow-methods");
  EXPECT_EQ(headers[0].value, "GET, HEAD, POST");
  EXPECT_EQ(headers[1].name, "access-control-max-age");
  EXPECT_EQ(headers[2].name, "access-control-allow-headers");
  EXPECT_EQ(headers[2].value, "authorization,content-type");
  EXPECT_EQ(make_preflight_headers(odd).size(), 2U);
}

}  // namespace
}  // namespace stator::net::detail
