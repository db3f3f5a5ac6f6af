// SPDX-License-Identifier: Apache-2.0
#include "stator/weights/hub_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace stator::weights {
namespace {

namespace fs = std::filesystem;

class HubCacheTest : public testing::Test {
 protected:
  HubCacheTest() { fs::remove_all(dir_); }
  ~HubCacheTest() override { fs::remove_all(dir_); }

  void put(const HubCache& cache, const std::string& file) {
    std::ofstream(cache.blob(file)) << "content of " << file;
    ASSERT_TRUE(cache.link("abc", file, file).has_value());
  }

  fs::path dir_ =
      fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST(HubName, IsTwoPlainParts) {
  EXPECT_TRUE(is_hub_name("Qwen/Qwen3-0.6B"));
  EXPECT_FALSE(is_hub_name("models"));
  EXPECT_FALSE(is_hub_name("../secret"));
  EXPECT_FALSE(is_hub_name("a/b/c"));
  EXPECT_FALSE(is_hub_name("/etc"));
  EXPECT_FALSE(is_hub_name("org/"));
  EXPECT_FALSE(is_hub_name("org/na me"));
}

TEST(HubFiles, OnlyWhatServingNeeds) {
  EXPECT_TRUE(is_wanted_file("config.json"));
  EXPECT_TRUE(is_wanted_file("model-00001-of-00002.safetensors"));
  EXPECT_TRUE(is_wanted_file("chat_template.jinja"));
  EXPECT_FALSE(is_wanted_file("pytorch_model.bin"));
  EXPECT_FALSE(is_wanted_file("onnx/model.safetensors"));
}

TEST_F(HubCacheTest, ASnapshotCountsOnceItsFilesAreThere) {
  const HubCache cache(dir_, "org/name");
  ASSERT_TRUE(cache.prepare("abc").has_value());
  ASSERT_TRUE(cache.write_ref("main", "abc").has_value());
  EXPECT_FALSE(cache.find_snapshot("main").has_value());
  put(cache, "config.json");
  put(cache, "tokenizer.json");
  EXPECT_FALSE(cache.find_snapshot("main").has_value());
  put(cache, "model.safetensors");
  ASSERT_TRUE(cache.find_snapshot("main").has_value());
  EXPECT_EQ(cache.find_snapshot("main")->filename(), "abc");
  EXPECT_TRUE(cache.find_snapshot("abc").has_value()) << "a commit names itself";
  EXPECT_FALSE(cache.find_snapshot("dev").has_value());
  fs::remove(cache.blob("model.safetensors"));
  EXPECT_FALSE(cache.find_snapshot("main").has_value()) << "a dangling link is a missing file";
}

TEST_F(HubCacheTest, BlobsAreVerifiedByTheirName) {
  fs::create_directories(dir_);
  const fs::path file = dir_ / "blob";
  std::ofstream(file) << "hello\n";
  // sha256sum and git hash-object of the same six bytes.
  EXPECT_TRUE(verify_blob(file, "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03")
                  .value());
  EXPECT_TRUE(verify_blob(file, "ce013625030ba8dba906f756967f9e9ca394464a").value());
  EXPECT_FALSE(verify_blob(file, "0000000000000000000000000000000000000000").value());
  EXPECT_TRUE(verify_blob(file, "some-opaque-etag").value());
  EXPECT_EQ(verify_blob(dir_ / "absent", "ce013625030ba8dba906f756967f9e9ca394464a").error().code(),
            Code::kIo);
}

}  // namespace
}  // namespace stator::weights
