// SPDX-License-Identifier: Apache-2.0
#include "stator/app/kv_settings.h"

#include <gtest/gtest.h>

#include <map>

namespace stator::app {
namespace {

using Variables = std::map<std::string, std::string>;

Status settle(KvSettings& kv, const Variables& variables = {}) {
  return settle_kv(kv, [&](const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(KvSettings, DynamosObjectTierBecomesOurs) {
  KvSettings kv;
  ASSERT_TRUE(settle(kv, {{"DYN_KVBM_OBJECT_ENABLED", "1"},
                          {"DYN_KVBM_OBJECT_BUCKET", "b"},
                          {"DYN_KVBM_OBJECT_ENDPOINT", "http://127.0.0.1:9000"},
                          {"DYN_KVBM_OBJECT_ACCESS_KEY", "k"},
                          {"DYN_KVBM_OBJECT_SECRET_KEY", "s"},
                          {"DYN_KVBM_OBJECT_REGION", "r"}}));
  EXPECT_EQ(kv.object, "s3://b/kv");
  EXPECT_EQ(kv.object_endpoint, "http://127.0.0.1:9000");
  EXPECT_EQ(kv.object_access_key, "k");
  EXPECT_EQ(kv.object_secret_key, "s");
  EXPECT_EQ(kv.object_region, "r");

  KvSettings off;
  ASSERT_TRUE(settle(off, {{"DYN_KVBM_OBJECT_BUCKET", "b"}}));
  EXPECT_EQ(off.object, "") << "not enabled";
}

TEST(KvSettings, ADiskSizeWithoutAFolderHasOne) {
  KvSettings kv;
  kv.disk_gb = 1;
  ASSERT_TRUE(settle(kv, {{"DYN_KVBM_DISK_DISABLE_O_DIRECT", "true"}}));
  EXPECT_EQ(kv.disk, "/var/lib/stator/kv");
  EXPECT_FALSE(kv.disk_direct);
}

TEST(KvSettings, BlocksGoBeforeBytes) {
  KvSettings kv;
  kv.disk = "/tmp/kv";
  kv.disk_bytes = 1 << 30;
  kv.disk_blocks = 10;
  ASSERT_TRUE(settle(kv));
  EXPECT_EQ(kv.wanted_disk_bytes(65'536), 10U * (65'536 + 4096));
  EXPECT_EQ(kv.wanted_disk_bytes(), uint64_t{1} << 30) << "of blocks whose size is not known";
}

TEST(KvSettings, ContradictionsAreRefused) {
  const auto refused = [](auto change) {
    KvSettings kv;
    change(kv);
    const Status settled = settle(kv);
    return settled ? std::string() : std::string(settled.error().message());
  };
  EXPECT_NE(refused([](KvSettings& kv) { kv.disk_bytes = 1 << 20; }).find("kv.disk"),
            std::string::npos);
  EXPECT_NE(refused([](KvSettings& kv) { kv.disk = "/tmp/kv"; }).find("kv.disk_bytes"),
            std::string::npos);
  EXPECT_NE(refused([](KvSettings& kv) { kv.kept = "/tmp/s"; }).find("kv.kept_bytes"),
            std::string::npos);
  EXPECT_NE(refused([](KvSettings& kv) { kv.store = "host:99999"; }).find("kv.store"),
            std::string::npos);
  EXPECT_NE(refused([](KvSettings& kv) { kv.store = "host"; }).find("HOST:PORT"),
            std::string::npos);
  EXPECT_EQ(refused([](KvSettings& kv) { kv.store = "http://host:80"; }), "");
  EXPECT_EQ(refused([](KvSettings& kv) { kv.store = "discover"; }), "");
  EXPECT_NE(refused([](KvSettings& kv) {
              kv.object = "s3://b/p";
              kv.object_endpoint = "nonsense";
            }).find("http://HOST:PORT"),
            std::string::npos);
}

}  // namespace
}  // namespace stator::app
