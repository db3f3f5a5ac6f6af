// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/entrance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "stator/frontend/request_record.h"
#include "stator/frontend/test/frontend_fixture.h"
#include "stator/io/replace_file.h"

namespace stator::frontend {
namespace {

using access::AccessConfig;
using access::AccessService;
using access::Role;
using ::testing::HasSubstr;

class EntranceTest : public ::testing::Test {
 protected:
  void TearDown() override {
    std::filesystem::remove(keys_path_);
    std::filesystem::remove(tenants_path_);
  }
  /// Keys of each role, and tenant "small" with one request a minute.
  void require_keys() {
    std::string lines;
    for (const Role role : {Role::kUser, Role::kService, Role::kOperator}) {
      keys_[role] = access::make_key(role, role == Role::kUser ? "small" : "big");
      lines += keys_[role].line + "\n";
    }
    ASSERT_TRUE(io::replace_file(keys_path_, lines));
    ASSERT_TRUE(io::replace_file(tenants_path_, "small requests_per_minute=1"));
    auto started =
        AccessService::start({.api_keys = keys_path_, .tenants = tenants_path_}, clock_, metrics_);
    ASSERT_TRUE(started) << started.error().message();
    access_ = std::move(*started);
  }
  net::HttpRequest request(std::string_view method, std::string_view path, Role role) const {
    net::HttpRequest made(method, path);
    if (const auto key = keys_.find(role); key != keys_.end()) {
      made.add_header("x-api-key", key->second.key);
    }
    return made;
  }

  const std::string keys_path_ =
      ::testing::TempDir() + "entrance-keys-" + std::to_string(::getpid());
  const std::string tenants_path_ =
      ::testing::TempDir() + "entrance-tenants-" + std::to_string(::getpid());
  FrontendConfig config_;
  SystemClock clock_;
  Metrics metrics_;
  std::map<Role, access::NewKey> keys_;
  std::unique_ptr<AccessService> access_;
};

TEST_F(EntranceTest, AgreesWithTheTableInEveryCell) {
  require_keys();
  const Entrance entrance(config_, access_.get(), true, metrics_);
  for (const RouteRow& row : list_routes()) {
    for (const Listener listener : {Listener::kPublic, Listener::kAdmin}) {
      for (const Role role : {Role::kAnyone, Role::kUser, Role::kService, Role::kOperator}) {
        FakeExchange exchange(request(row.method, row.path, role));
        const bool hidden = listener == Listener::kPublic && row.access.plane == Plane::kAdmin;
        const bool admitted = entrance.admit(exchange, listener, TimePoint());

        SCOPED_TRACE(fmt::format("{} {} {}", row.method, row.path, access::describe(role)));
        if (hidden) {
          EXPECT_FALSE(admitted);
          EXPECT_EQ(exchange.status, 404);
        } else if (!admitted && role >= row.access.role) {
          EXPECT_EQ(exchange.status, 429);  // of the tenant's one request
          EXPECT_TRUE(row.access.metered);
        } else {
          EXPECT_EQ(admitted, role >= row.access.role);
          EXPECT_EQ(exchange.status, admitted ? 0 : role == Role::kAnyone ? 401 : 403);
        }
      }
    }
  }
}

TEST_F(EntranceTest, LetsEverybodyInWithoutConfiguration) {
  const Entrance entrance(config_, nullptr, false, metrics_);
  FakeExchange exchange(net::HttpRequest("POST", "/busy_threshold"));

  EXPECT_TRUE(entrance.admit(exchange, Listener::kPublic, TimePoint()));
  EXPECT_TRUE(may_route(exchange.request()));
}

TEST_F(EntranceTest, GivesThePlaceBackWithTheLastCopyOfTheRequest) {
  require_keys();
  ASSERT_TRUE(io::replace_file(tenants_path_, "small concurrent=1"));
  access_->reload();
  const Entrance entrance(config_, access_.get(), false, metrics_);
  const auto asks = [&] { return FakeExchange(request("POST", "/v1/completions", Role::kUser)); };
  {
    FakeExchange first = asks();
    ASSERT_TRUE(entrance.admit(first, Listener::kPublic, TimePoint()));
    const net::HttpRequest copy = first.request();
    first.request().set_notes(nullptr);
    FakeExchange second = asks();
    EXPECT_FALSE(entrance.admit(second, Listener::kPublic, TimePoint()));
    EXPECT_THAT(second.text, HasSubstr("concurrent"));
  }
  FakeExchange third = asks();
  EXPECT_TRUE(entrance.admit(third, Listener::kPublic, TimePoint()));
}

TEST_F(EntranceTest, OnlyThoseWhoMayNameAnotherTenant) {
  require_keys();
  const Entrance entrance(config_, access_.get(), false, metrics_);
  for (const auto& [role, tenant] :
       {std::pair{Role::kUser, "small"}, std::pair{Role::kService, "other"}}) {
    net::HttpRequest made = request("GET", "/v1/models", role);
    made.add_header("x-tenant-id", "other");
    FakeExchange exchange(std::move(made));

    ASSERT_TRUE(entrance.admit(exchange, Listener::kPublic, TimePoint()));
    EXPECT_EQ(tenant_of(exchange.request()), tenant);
    EXPECT_EQ(record_of(exchange.request())->caller.budget->name(), tenant);
    EXPECT_EQ(may_route(exchange.request()), role == Role::kService);
  }
}

}  // namespace
}  // namespace stator::frontend
