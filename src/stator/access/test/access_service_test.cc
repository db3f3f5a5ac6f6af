// SPDX-License-Identifier: Apache-2.0
#include "stator/access/access_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "stator/access/test/jwt_signer.h"
#include "stator/io/replace_file.h"

namespace stator::access {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AccessServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    clock_.advance(std::chrono::seconds(100));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    EXPECT_TRUE(io::replace_file(path, text));
    return path;
  }
  std::unique_ptr<AccessService> start(AccessConfig config) {
    config.reload_interval = std::chrono::hours(1);  // the test says when
    auto service = AccessService::start(std::move(config), clock_, metrics_);
    EXPECT_TRUE(service) << service.error().message();
    return std::move(*service);
  }
  static Result<Caller> ask(AccessService& service, std::string_view name, std::string_view value) {
    net::HttpRequest request("GET", "/");
    request.add_header(name, value);
    return service.authenticate(request);
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) /
      ("access-" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) +
       std::to_string(::getpid()));
  SimClock clock_;
  Metrics metrics_;
};

TEST_F(AccessServiceTest, TakesAKeyFromBothHeaders) {
  const NewKey key = make_key(Role::kService, "acme");
  const auto service = start({.api_keys = write("keys", key.line)});

  for (const auto& [name, value] :
       {std::pair{"authorization", "Bearer " + key.key},
        std::pair{"Authorization", "bEaReR  " + key.key}, std::pair{"x-api-key", key.key}}) {
    const auto caller = ask(*service, name, value);
    ASSERT_TRUE(caller) << name;
    EXPECT_EQ(caller->role, Role::kService);
    EXPECT_EQ(caller->tenant, "acme");
    EXPECT_EQ(caller->key_id.size(), 12U);
    EXPECT_THAT(key.key, Not(HasSubstr(caller->key_id)));
  }
  EXPECT_EQ(ask(*service, "authorization", "Basic " + key.key)->role, Role::kAnyone);
  const auto wrong = ask(*service, "x-api-key", "sk-wrong");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code(), Code::kUnauthenticated);
  EXPECT_THAT(wrong.error().message(), Not(HasSubstr("sk-wrong")));
}

TEST_F(AccessServiceTest, ReloadsAndKeepsTheOldOnAnError) {
  const NewKey one = make_key(Role::kUser, "a");
  const NewKey two = make_key(Role::kUser, "b");
  const auto service = start({.api_keys = write("keys", one.line)});

  write("keys", two.line);
  service->reload();
  EXPECT_FALSE(ask(*service, "x-api-key", one.key));
  EXPECT_TRUE(ask(*service, "x-api-key", two.key));

  write("keys", "what is this");
  service->reload();
  EXPECT_TRUE(ask(*service, "x-api-key", two.key));
  EXPECT_THAT(metrics_.render(), HasSubstr("stator_access_reload_failures_total 1"));
}

TEST_F(AccessServiceTest, NamesTheSettingOfAFileThatIsWrong) {
  for (const auto& [config, setting] :
       {std::pair{AccessConfig{.api_keys = write("k", "x")}, "access.api_keys"},
        std::pair{AccessConfig{.tenants = write("t", "x y")}, "access.tenants"},
        std::pair{AccessConfig{.jwks = write("j", "{}")}, "access.jwt_jwks"},
        std::pair{AccessConfig{.jwks = "http://id.example/keys"}, "https://"}}) {
    const auto service = AccessService::start(config, clock_, metrics_);
    ASSERT_FALSE(service) << setting;
    EXPECT_EQ(service.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(service.error().message(), HasSubstr(setting));
  }
}

TEST_F(AccessServiceTest, RemembersTokensUntilTheyExpireOrKeysChange) {
  const JwtSigner signer("ES256", "k1");
  const auto service = start({.jwks = write("jwks", signer.key_set()), .jwt_cache_max = 2});
  const auto token = [&](std::string_view who) {
    return "Bearer " + signer.sign(fmt::format(R"({{"sub":"{}","exp":{}}})", who,
                                               unix_seconds(clock_.wall_now()) + 60));
  };
  const std::string first = token("a");

  EXPECT_EQ(ask(*service, "authorization", first)->tenant, "a");
  EXPECT_EQ(ask(*service, "authorization", first)->tenant, "a");
  EXPECT_THAT(metrics_.render(), HasSubstr("stator_access_tokens_cached_total 1"));
  for (const std::string_view who : {"b", "c", "d"}) {  // beyond the bound: still judged right
    EXPECT_EQ(ask(*service, "authorization", token(who))->tenant, who);
  }
  clock_.advance(std::chrono::seconds(61));
  EXPECT_FALSE(ask(*service, "authorization", first));

  const std::string last = token("e");
  EXPECT_TRUE(ask(*service, "authorization", last));
  write("jwks", JwtSigner("ES256", "k2").key_set());
  service->reload();
  EXPECT_FALSE(ask(*service, "authorization", last));
}

TEST_F(AccessServiceTest, BoundsTenantsWithoutALine) {
  const auto service =
      start({.tenants = write("t", "vip weight=3\n* concurrent=1"), .tenants_max = 2});

  const auto a = service->tenant("a");
  const auto b = service->tenant("b");
  const auto c = service->tenant("c");
  const auto d = service->tenant("d");

  EXPECT_NE(a, b);
  EXPECT_EQ(c, d);
  EXPECT_EQ(service->tenant("vip")->weight(), 3);
  EXPECT_EQ(c->state(clock_.now()).limits.concurrent, 1U);
  write("t", "* concurrent=5");
  service->reload();
  EXPECT_EQ(c->state(clock_.now()).limits.concurrent, 5U);
  EXPECT_EQ(a->state(clock_.now()).limits.concurrent, 5U);
}

TEST_F(AccessServiceTest, SaltsDifferByTenantAndCannotBeChosen) {
  const auto service = start({.cache_salt_key = "secret"});
  const auto other = start({.cache_salt_key = "another"});

  EXPECT_EQ(service->cache_salt("a", ""), service->cache_salt("a", ""));
  EXPECT_NE(service->cache_salt("a", ""), service->cache_salt("b", ""));
  EXPECT_NE(service->cache_salt("a", "x"), service->cache_salt("a", "y"));
  EXPECT_NE(service->cache_salt("a", "b"), service->cache_salt("ab", ""));
  EXPECT_NE(service->cache_salt("a", ""), other->cache_salt("a", ""));
  EXPECT_THAT(service->cache_salt("acme", ""), Not(HasSubstr("acme")));
}

TEST_F(AccessServiceTest, SaltsAreKeyedByTheKeysFileWhereNothingElseIsSaid) {
  const NewKey one = make_key(Role::kUser, "a");
  const NewKey two = make_key(Role::kUser, "b");
  const auto keyless = start({.tenants = write("t", "a concurrent=1")});
  const auto service = start({.api_keys = write("keys", one.line + "\n" + two.line + "\n")});
  const std::string salt = service->cache_salt("a", "");

  EXPECT_NE(salt, keyless->cache_salt("a", ""));
  const auto turned = start({.api_keys = write("turned", two.line + "\n" + one.line + "\n")});
  EXPECT_EQ(turned->cache_salt("a", ""), salt);  // of another frontend
  const auto alone = start({.api_keys = write("alone", one.line + "\n")});
  EXPECT_NE(alone->cache_salt("a", ""), salt);  // knowing one key is not enough
  write("keys", one.line + "\n");
  service->reload();
  EXPECT_EQ(service->cache_salt("a", ""), salt);  // running requests keep their blocks
}

}  // namespace
}  // namespace stator::access
