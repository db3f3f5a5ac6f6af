// SPDX-License-Identifier: Apache-2.0
#include "stator/media/url_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace stator::media {
namespace {

using ::testing::HasSubstr;

UrlRules rules_of(MediaConfig config = {}) {
  return std::move(*UrlRules::create(config));
}

std::string refusal(const UrlRules& rules, std::string_view url) {
  const auto checked = rules.check(url);
  return checked ? "" : checked.error().message();
}

TEST(UrlRules, TakesPublicNamesOnTheUsualPorts) {
  const UrlRules rules = rules_of();
  const std::pair<const char*, const char*> urls[] = {
      {"https://Images.Example/cat.png?w=1#top", "https://images.example:443/cat.png?w=1"},
      {"http://images.example", "http://images.example:80/"},
      {"HTTPS://images.example:443/a", "https://images.example:443/a"},
      {"https://images.example./a", "https://images.example:443/a"},
      {"https://images.example?x", "https://images.example:443/?x"},
      {"https://xn--bcher-kva.example/a", "https://xn--bcher-kva.example:443/a"}};
  for (const auto& [url, fetched] : urls) {
    const auto checked = rules.check(url);
    ASSERT_TRUE(checked) << url << ": " << checked.error().message();
    EXPECT_EQ(checked->text, fetched);
  }
}

TEST(UrlRules, RefusesWhatLeadsInside) {
  const UrlRules rules = rules_of();
  for (const char* url :
       {"http://localhost/", "http://LOCALHOST./", "http://a.localhost/", "http://ip6-loopback/",
        "http://metadata.google.internal/computeMetadata/v1/", "http://metadata/",
        "http://kubernetes.default.svc/", "http://db.svc.cluster.local/", "http://printer.local/",
        "http://x.internal/", "http://127.0.0.1/", "http://93.184.216.34/", "http://[::1]/",
        "http://[::ffff:127.0.0.1]/", "http://[2606:4700::1111]/", "https://images.example:8443/",
        "http://images.example:443/"}) {
    EXPECT_THAT(refusal(rules, url), HasSubstr("may not be fetched")) << url;
  }
}

TEST(UrlRules, RefusesOtherSpellingsOfAddresses) {
  const UrlRules rules = rules_of({.allow_private = true});
  for (const char* url :
       {"http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://0177.0.0.1/",
        "http://127.1/", "http://127.0.0.1.2/", "http://a.0x1/", "http://1.2.3.08/", "http://0x/",
        "http://[::1%25lo]/", "http://[127.0.0.1]/", "http://[::1/", "http://[]/",
        "http://①②⑦.0.0.1/", "http://127。0。0。1/"}) {
    EXPECT_NE(refusal(rules, url), "") << url;
  }
}

TEST(UrlRules, RefusesWhatParsersReadDifferently) {
  const UrlRules rules = rules_of({.allow_private = true});
  for (const char* url : {"http://user@images.example/",
                          "http://images.example@127.0.0.1/",
                          "http://images.example:80@127.0.0.1/",
                          "http://images.example\\@127.0.0.1/",
                          "http://images.example /",
                          "http://images.example\t/",
                          "http://images.example\n/",
                          " http://images.example/",
                          "http:/images.example/",
                          "http:images.example",
                          "//images.example/",
                          "http:///images.example/",
                          "http://",
                          "http://?x",
                          "http://:80/",
                          "http://images.example:/",
                          "http://images.example:0/",
                          "http://images.example:65536/",
                          "http://images.example:80a/",
                          "http://images..example/",
                          "http://.example/",
                          "http://58.0.0../",
                          "http://images.example%2f/",
                          "http://images%00.example/",
                          "ftp://images.example/",
                          "gopher://127.0.0.1:25/",
                          "javascript:alert(1)",
                          "file:///etc/passwd",
                          "dict://x/",
                          "",
                          "images.example/cat.png"}) {
    EXPECT_NE(refusal(rules, url), "") << url;
  }
  EXPECT_NE(refusal(rules, "http://a/" + std::string(9000, 'x')), "");
}

TEST(UrlRules, AListOfHostsIsTheWholeWorld) {
  const UrlRules rules =
      rules_of({.allowed_hosts = "images.example, *.cdn.example,127.0.0.1:8080,[2001:db8::1]"});
  for (const char* url :
       {"https://images.example/a", "http://IMAGES.example/a", "https://a.cdn.example/",
        "https://b.a.cdn.example/", "http://127.0.0.1:8080/", "http://[2001:db8::1]/"}) {
    EXPECT_EQ(refusal(rules, url), "") << url;
  }
  for (const char* url : {"https://other.example/", "https://cdn.example/", "https://xcdn.example/",
                          "https://images.example:8443/", "https://images.example.evil.example/",
                          "http://127.0.0.1/", "http://127.0.0.1:8081/"}) {
    EXPECT_THAT(refusal(rules, url), HasSubstr("media.allowed_hosts")) << url;
  }
  EXPECT_FALSE(UrlRules::create({.allowed_hosts = "http://images.example"}));
  EXPECT_FALSE(UrlRules::create({.allowed_hosts = "a b"}));
  EXPECT_FALSE(UrlRules::create({.allowed_hosts = "*"}));
}

TEST(UrlRules, AddressesAreCheckedWhateverTheName) {
  const UrlRules rules = rules_of({.allowed_hosts = "images.example"});
  const FetchUrl url = *rules.check("https://images.example/a");
  const Status refused = rules.check_address(url, *parse_address("169.254.169.254"));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(), HasSubstr("link-local"));
  EXPECT_THAT(refused.error().message(), ::testing::Not(HasSubstr("169.254")));
  EXPECT_TRUE(rules.check_address(url, *parse_address("93.184.216.34")));
  const UrlRules open = rules_of({.allow_private = true});
  EXPECT_TRUE(open.check_address(url, *parse_address("10.0.0.1")));
  EXPECT_EQ(refusal(open, "http://127.0.0.1:1234/a"), "");
}

TEST(UrlRules, RedirectsAreCheckedAsTheFirstUrlWas) {
  const UrlRules rules = rules_of();
  const FetchUrl from = *rules.check("https://images.example/dir/cat.png?a/b");
  const std::pair<const char*, const char*> good[] = {
      {"/other.png", "https://images.example:443/other.png"},
      {"other.png", "https://images.example:443/dir/other.png"},
      {"//cdn.example/x", "https://cdn.example:443/x"},
      {"https://cdn.example/x#y", "https://cdn.example:443/x"}};
  for (const auto& [location, url] : good) {
    const auto next = rules.check_redirect(from, location);
    ASSERT_TRUE(next) << location << ": " << next.error().message();
    EXPECT_EQ(next->text, url);
  }
  for (const char* location :
       {"http://cdn.example/x", "https://127.0.0.1/", "//localhost/", "https://cdn.example:8443/",
        "https://a@b.example/", "file:///etc"}) {
    const auto next = rules.check_redirect(from, location);
    // "file:///etc" is relative text to us, and so a path below the same host.
    EXPECT_TRUE(!next || next->host == "images.example") << location;
  }
}

}  // namespace
}  // namespace stator::media
