// SPDX-License-Identifier: Apache-2.0
#include "stator/access/tenants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/core/random.h"

namespace stator::access {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TimePoint at(double seconds) {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

TEST(TenantTable, ReadsLimits) {
  const auto table = TenantTable::parse(
      "acme requests_per_minute=60 tokens_per_minute=1000 concurrent=2 weight=1.5\n* concurrent=1");

  ASSERT_TRUE(table) << table.error().message();
  EXPECT_EQ(table->find("acme"), (TenantLimits{60, 1000, 2, 1.5}));
  EXPECT_EQ(table->find("other").concurrent, 1U);
  EXPECT_TRUE(table->lists("acme"));
  EXPECT_FALSE(table->lists("other"));
}

TEST(TenantTable, NamesWhatIsWrong) {
  for (const auto& [text, message] :
       {std::pair{"acme tokens=5", "'tokens=5'"}, std::pair{"acme weight=0", "'weight=0'"},
        std::pair{"acme concurrent=-1", "'concurrent=-1'"},
        std::pair{"acme concurrent", "'concurrent'"},
        std::pair{"acme concurrent=nan", "'concurrent=nan'"},
        std::pair{"a weight=1\na weight=2", "line 2"}}) {
    const auto table = TenantTable::parse(text);
    ASSERT_FALSE(table) << text;
    EXPECT_THAT(table.error().message(), HasSubstr(message));
  }
}

TEST(Tenant, KeepsItsRateToOnePercent) {
  Tenant tenant("t", {.requests_per_minute = 600});
  Random random(7);
  double now = 0;
  uint32_t let_in = 0;

  for (; now < 600; now += random.uniform() * 0.02) {  // about 100 a second
    if (tenant.enter(at(now))) {
      ++let_in;
      tenant.leave();
    }
  }

  EXPECT_NEAR(let_in, 600 + 600 / 60 * now,
              0.01 * (600 + 600 / 60 * now));  // a burst, and the rate
}

TEST(Tenant, PaysForTokensThatItOwes) {
  Tenant tenant("t", {.tokens_per_minute = 6000});
  ASSERT_TRUE(tenant.enter(at(1)));
  tenant.charge_tokens(at(1), 9000);  // 3,000 more than there were: 30 s of its rate

  const auto refused = tenant.enter(at(2));

  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().limit, "tokens_per_minute");
  EXPECT_NEAR(std::chrono::duration<double>(refused.error().wait).count(), 29.01, 0.05);
  EXPECT_FALSE(tenant.enter(at(30.9)));
  EXPECT_TRUE(tenant.enter(at(31.1)));
}

TEST(Tenant, BoundsWhatRunsAtOnce) {
  const auto tenant = std::make_shared<Tenant>("t", TenantLimits{.concurrent = 2});
  ASSERT_TRUE(tenant->enter(at(1)));
  TenantLease one(tenant);
  ASSERT_TRUE(tenant->enter(at(1)));
  {
    const TenantLease two(tenant);
    EXPECT_EQ(tenant->enter(at(1)).error().limit, "concurrent");
  }

  EXPECT_TRUE(tenant->enter(at(1)));
  tenant->leave();
  const TenantLease moved = std::move(one);
  EXPECT_EQ(tenant->state(at(1)).running, 1U);
  EXPECT_EQ(tenant->state(at(1)).refused, 1U);
}

TEST(Tenant, TakesNewLimitsAtOnce) {
  Tenant tenant("t", {});
  EXPECT_TRUE(tenant.enter(at(1)));

  tenant.set_limits({.requests_per_minute = 1});

  EXPECT_TRUE(tenant.enter(at(1)));
  EXPECT_FALSE(tenant.enter(at(1)));
  tenant.set_limits({});
  EXPECT_TRUE(tenant.enter(at(1)));
}

}  // namespace
}  // namespace stator::access
