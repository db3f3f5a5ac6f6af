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
    ASSERT_TRUE(cache.link("abc1234", file, file).has_value());
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
  EXPECT_TRUE(is_wanted_file("1_Pooling/config.json"));
  EXPECT_FALSE(is_wanted_file("1_Pooling/other.json"));
  EXPECT_FALSE(is_wanted_file("../x_Pooling/config.json"));
  EXPECT_FALSE(is_wanted_file("a/1_Pooling/config.json"));
  for (const char* name : {"../config.json", "..json", ".hidden.json", "a\\b.json", "a?b.json",
                           "a%2fb.json", "a\nb.json", "a b.json", ""}) {
    EXPECT_FALSE(is_wanted_file(name)) << name;
  }
  EXPECT_FALSE(is_wanted_file(std::string(300, 'a') + ".json"));
}

TEST(HubCommit, IsHexAndNothingElse) {
  EXPECT_TRUE(is_commit("5b1a6f3"));
  EXPECT_TRUE(is_commit(std::string(64, 'a')));
  for (const std::string& text :
       {std::string(), std::string("abc123"), std::string(65, 'a'), std::string("5B1A6F3"),
        std::string("../../../victim"), std::string("5b1a6f3/.."), std::string("5b1a6f3\0", 8)}) {
    EXPECT_FALSE(is_commit(text)) << text;
  }
}

TEST(HubRevision, IsABranchATagOrACommit) {
  for (const char* text : {"main", "v1.0", "refs/pr/3", "feature/a_b"}) {
    EXPECT_TRUE(is_revision(text)) << text;
  }
  for (const char* text :
       {"", "..", "../main", "a/../b", "/main", "a//b", "main/", "a?b", ".git"}) {
    EXPECT_FALSE(is_revision(text)) << text;
  }
}

TEST(HubBlob, OnlyAChecksumIsANameByItself) {
  const std::string sha1(40, 'a');
  EXPECT_EQ(blob_name(sha1), sha1);
  for (const char* etag : {"..", "../../x", "abc-123", "ABCDEF0", "x y"}) {
    const std::string name = blob_name(etag);
    EXPECT_EQ(name.size(), 5 + 64) << etag;
    EXPECT_TRUE(name.starts_with("etag-")) << etag;
    EXPECT_EQ(name.find_first_not_of("etag-0123456789bcdf"), std::string::npos) << name;
  }
  EXPECT_NE(blob_name(".."), blob_name("..."));
}

TEST_F(HubCacheTest, ASnapshotCountsOnceItsFilesAreThere) {
  const HubCache cache(dir_, "org/name");
  ASSERT_TRUE(cache.prepare("abc1234").has_value());
  ASSERT_TRUE(cache.write_ref("main", "abc1234").has_value());
  EXPECT_FALSE(cache.find_snapshot("main").has_value());
  put(cache, "config.json");
  put(cache, "tokenizer.json");
  EXPECT_FALSE(cache.find_snapshot("main").has_value());
  put(cache, "model.safetensors");
  ASSERT_TRUE(cache.find_snapshot("main").has_value());
  EXPECT_EQ(cache.find_snapshot("main")->filename(), "abc1234");
  EXPECT_TRUE(cache.find_snapshot("abc1234").has_value()) << "a commit names itself";
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
