// SPDX-License-Identifier: Apache-2.0
#include "stator/media/blob.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "stator/core/metrics.h"
#include "stator/media/local_files.h"
#include "stator/text/base64.h"

namespace stator::media {
namespace {

using namespace std::string_literals;
using inference::MediaKind;
using ::testing::HasSubstr;

std::string gif(char width = 1, char height = 1) {
  return "GIF89a"s + width + '\0' + height + '\0';
}

std::string data_url(const std::string& type, const std::string& bytes) {
  std::string url = "data:" + type + ";base64,";
  text::append_base64(url, bytes);
  return url;
}

TEST(DataUrl, ReadsBase64WithAnyParameters) {
  for (const char* head : {"image/gif", "IMAGE/GIF", "image/gif;charset=utf-8", ""}) {
    const auto raw = read_data_url(data_url(head, gif()), 100);
    ASSERT_TRUE(raw) << head << ": " << raw.error().message();
    EXPECT_EQ(raw->bytes, gif());
    EXPECT_EQ(raw->type, *head == '\0' ? "" : "image/gif");
  }
  EXPECT_TRUE(is_data_url("DATA:,x"));
  EXPECT_FALSE(is_data_url("https://x/data:"));
}

TEST(DataUrl, RefusesWhatIsNotStrictlyOne) {
  for (const char* url :
       {"data:", "data:image/png", "data:image/png,abc", "data:image/png;base64", "data:,",
        "data:image/png;base64,", "data:image/png;base64,abc", "data:image/png;base64,ab c",
        "data:image/png;base64,ab\ncd", "data:image/png;base64,a===", "data:image/png;base64,-_-_",
        "data:image;base64,aaaa", "data:a/b/c;base64,aaaa", "data:image/<;base64,aaaa",
        "data:image/png;BASE64;x,aaaa", "data:image/png;base64,aaaa#x"}) {
    EXPECT_FALSE(read_data_url(url, 100)) << url;
  }
}

TEST(DataUrl, RefusesTooMuchBeforeItIsDecoded) {
  EXPECT_TRUE(read_data_url(data_url("image/png", std::string(100, 'x')), 100));
  for (const size_t size : {101, 102, 103, 5000}) {
    const auto raw = read_data_url(data_url("image/png", std::string(size, 'x')), 100);
    ASSERT_FALSE(raw) << size;
    EXPECT_EQ(raw.error().code(), Code::kTooLarge);
  }
}

TEST(Blob, IsWhatItsBytesSay) {
  const auto blob =
      make_blob(MediaKind::kImage, {.type = "image/png", .bytes = gif(3, 2)}, {}, nullptr);
  ASSERT_TRUE(blob) << blob.error().message();
  EXPECT_EQ((*blob)->type, "image/gif");
  EXPECT_EQ((*blob)->width, 3U);
  EXPECT_EQ((*blob)->height, 2U);
  EXPECT_EQ((*blob)->digest.size(), 64U);
  const auto other = make_blob(MediaKind::kImage, {.type = "", .bytes = gif(2, 3)}, {}, nullptr);
  EXPECT_NE((*blob)->hash(), (*other)->hash());
  const auto same = make_blob(MediaKind::kImage, {.type = "x/y", .bytes = gif(3, 2)}, {}, nullptr);
  EXPECT_EQ((*blob)->digest, (*same)->digest);
}

TEST(Blob, TheDigestIsSha256) {
  const auto blob = make_blob(MediaKind::kAudio, {.type = "audio/x", .bytes = "abc"}, {}, nullptr);
  ASSERT_TRUE(blob) << blob.error().message();
  EXPECT_EQ((*blob)->digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ((*blob)->hash(), 0xba7816bf8f01cfeaU);
}

TEST(Blob, RefusesOtherKindsAndBombs) {
  const auto refusal = [](MediaKind kind, std::string type, std::string bytes) {
    const auto blob = make_blob(kind, {.type = std::move(type), .bytes = std::move(bytes)},
                                {.image_pixels_max = 1000}, nullptr);
    return blob ? "" : blob.error().message();
  };
  EXPECT_THAT(refusal(MediaKind::kImage, "image/png", "<svg xmlns='x'/>"), HasSubstr("no image"));
  EXPECT_THAT(refusal(MediaKind::kImage, "image/png", "%PDF-1.7"), HasSubstr("no image"));
  EXPECT_THAT(refusal(MediaKind::kImage, "image/png", "ID3\x04"), HasSubstr("audio/mpeg"));
  EXPECT_THAT(refusal(MediaKind::kAudio, "audio/wav", gif()), HasSubstr("image/gif"));
  EXPECT_THAT(refusal(MediaKind::kAudio, "text/html", "<html>"), HasSubstr("no audio"));
  EXPECT_THAT(refusal(MediaKind::kVideo, "", "hello"), HasSubstr("not said"));
  EXPECT_THAT(refusal(MediaKind::kImage, "image/gif", gif(100, 100)), HasSubstr("pixels"));
  EXPECT_THAT(refusal(MediaKind::kImage, "image/gif", gif(0, 1)), HasSubstr("header"));
  EXPECT_THAT(refusal(MediaKind::kImage, "image/gif", ""), HasSubstr("empty"));
  EXPECT_EQ(refusal(MediaKind::kAudio, "audio/mp4", "\0\0\0\x20"s + "ftypisom"), "");
  EXPECT_EQ(refusal(MediaKind::kAudio, "audio/x-thing", "hello"), "");
}

TEST(Blob, HoldsItsPlaceInTheBudgetAsLongAsAnybodyHasIt) {
  Metrics metrics;
  net::ByteBudget budget("media", 1 << 20, metrics);
  const std::string bytes = gif() + std::string(200 << 10, 'x');
  auto first = make_blob(MediaKind::kImage, {.type = {}, .bytes = bytes}, {}, &budget);
  ASSERT_TRUE(first);
  EXPECT_GE(budget.used(), bytes.size());
  BlobPtr kept = *first;
  first = Error(Code::kInternal, "gone");
  EXPECT_GE(budget.used(), bytes.size());
  std::vector<BlobPtr> blobs;
  for (int i = 0; i < 10; ++i) {
    auto more = make_blob(MediaKind::kImage, {.type = {}, .bytes = bytes}, {}, &budget);
    if (!more) {
      EXPECT_EQ(more.error().code(), Code::kOverloaded);
      break;
    }
    blobs.push_back(*more);
  }
  EXPECT_LT(blobs.size(), 5U);
  blobs.clear();
  kept.reset();
  EXPECT_EQ(budget.used(), 0U);
}

class LocalFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("media_files_" + std::to_string(getpid()));
    std::filesystem::create_directories(root_ / "open" / "sub");
    write(root_ / "open" / "a b.gif");
    write(root_ / "open" / "sub" / "c.gif");
    write(root_ / "secret.gif");
    std::filesystem::create_symlink(root_ / "secret.gif", root_ / "open" / "link.gif");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  static void write(const std::filesystem::path& path) { std::ofstream(path) << gif(); }
  Result<RawMedia> read(const std::string& path) {
    return read_local_file("file://" + path, (root_ / "open").string(), 100);
  }
  std::filesystem::path root_;
};

TEST_F(LocalFiles, OnlyThoseBelowTheFolderAreRead) {
  const std::string open = (root_ / "open").string();
  EXPECT_TRUE(read(open + "/a%20b.gif"));
  EXPECT_TRUE(read(open + "/sub/../sub/c.gif"));
  for (const std::string& path :
       {open + "/../secret.gif", open + "/%2e%2e/secret.gif", open + "/link.gif",
        (root_ / "secret.gif").string(), "/etc/passwd"s, open, open + "/sub", open + "/none.gif",
        "localhost" + open + "/a%20b.gif", open + "/a%20b.gif%00x"}) {
    const auto raw = read(path);
    ASSERT_FALSE(raw) << path;
    EXPECT_THAT(raw.error().message(), HasSubstr("not there")) << path;
  }
  EXPECT_FALSE(read_local_file("file://" + open + "/a%20b.gif", "", 100));
  const auto large = read_local_file("file://" + open + "/a%20b.gif", open, 3);
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code(), Code::kTooLarge);
}

}  // namespace
}  // namespace stator::media
