// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace stator::engine::cpu {
namespace {

using testing::HasSubstr;

std::string file_of(std::string_view header, size_t data_bytes) {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, sizeof(length));
  file += header;
  for (size_t i = 0; i < data_bytes; ++i) {
    file += static_cast<char>(i);
  }
  return file;
}

Result<std::vector<TensorInfo>> parse(std::string_view file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), "m.safetensors");
}

constexpr std::string_view kTwo =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[],"data_offsets":[12,16]},)"
    R"("a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}  )";

TEST(SafetensorsHeader, GivesTensorsInOrderOfTheirBytes) {
  const std::string file = file_of(kTwo, 16);

  const auto tensors = parse(file);

  ASSERT_TRUE(tensors.has_value()) << tensors.error().to_string();
  ASSERT_EQ(tensors->size(), 2U);
  const TensorInfo& first = tensors->front();
  EXPECT_EQ(first.name, "a");
  EXPECT_EQ(first.dtype, Dtype::kBf16);
  EXPECT_EQ(first.shape, (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(first.begin, 8 + kTwo.size());
  EXPECT_EQ(first.end - first.begin, 12U);
  EXPECT_EQ(tensors->back().name, "b");
  EXPECT_TRUE(tensors->back().shape.empty());
}

TEST(SafetensorsHeader, AnEmptyTensorTakesNoBytes) {
  const auto tensors =
      parse(file_of(R"({"a":{"dtype":"F32","shape":[0,5],"data_offsets":[0,0]}})", 0));

  ASSERT_TRUE(tensors.has_value());
  EXPECT_EQ(tensors->front().begin, tensors->front().end);
}

TEST(SafetensorsHeader, EveryTruncationIsAnErrorThatSaysSo) {
  const std::string file = file_of(kTwo, 16);
  for (size_t length = 0; length < file.size(); ++length) {
    const auto tensors = parse(std::string_view(file).substr(0, length));
    ASSERT_FALSE(tensors.has_value()) << length;
    EXPECT_EQ(tensors.error().code(), Code::kCorrupt);
    EXPECT_THAT(tensors.error().message(), HasSubstr("truncated")) << length;
  }
}

struct BadHeader {
  std::string_view header;
  size_t data_bytes;
  std::string_view message;
  Code code = Code::kCorrupt;
};

class BadHeaders : public testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaders, AreRefusedWithFileAndReason) {
  const auto tensors = parse(file_of(GetParam().header, GetParam().data_bytes));

  ASSERT_FALSE(tensors.has_value());
  EXPECT_EQ(tensors.error().code(), GetParam().code);
  EXPECT_THAT(tensors.error().message(), HasSubstr("m.safetensors"));
  EXPECT_THAT(tensors.error().message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadHeaders,
    testing::Values(
        BadHeader{"[]", 0, "not a JSON object"}, BadHeader{" {}", 0, "not a JSON object"},
        BadHeader{R"({"a":)", 0, "not a JSON object"},
        BadHeader{R"({"a":1})", 0, "tensor 'a': the header entry has no dtype"},
        BadHeader{R"({"a":{"dtype":3}})", 0, "no dtype"},
        BadHeader{R"({"a":{"dtype":"F4","shape":[],"data_offsets":[0,4]}})", 4, "dtype 'F4'",
                  Code::kUnsupported},
        BadHeader{R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4, "shape or data_offsets"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "shape or"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "shape or"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4,
                  "shape or"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}})", 4, "shape or"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "do not match"},
        BadHeader{R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "do not match"},
        // 2^62 × 4 bytes wraps around to 0.
        BadHeader{R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", 0,
                  "do not match"},
        BadHeader{
            R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
            6, "tensor 'b': overlaps"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5, "leaves a hole"},
        BadHeader{R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5,
                  "1 bytes after the last tensor"},
        BadHeader{
            R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
            0, "tensor 'a': appears twice"},
        BadHeader{R"({"a\u0000b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0, "NUL"},
        BadHeader{R"({"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0, "name is empty"}));

TEST(SafetensorsHeader, RefusesHostileHeaderLengths) {
  for (const uint64_t length : {uint64_t{0}, uint64_t{1}, kHeaderBytesMax + 1, UINT64_MAX}) {
    std::string file = file_of("{}", 0);
    std::memcpy(file.data(), &length, sizeof(length));

    const auto tensors = parse(file);

    ASSERT_FALSE(tensors.has_value());
    EXPECT_EQ(tensors.error().code(), Code::kCorrupt);
    EXPECT_THAT(tensors.error().message(), HasSubstr("header length"));
  }
}

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "checkpoint_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& name, std::string_view content) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << content;
  }
  void write_index(std::string_view weight_map) const {
    write("model.safetensors.index.json", R"({"weight_map":)" + std::string(weight_map) + "}");
  }
  void expect_corrupt(std::string_view message) const {
    const auto checkpoint = Checkpoint::open(folder_);
    ASSERT_FALSE(checkpoint.has_value());
    EXPECT_EQ(checkpoint.error().code(), Code::kCorrupt);
    EXPECT_THAT(checkpoint.error().message(), HasSubstr(message));
  }
  std::string folder_;
};

constexpr std::string_view kA = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
constexpr std::string_view kB = R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})";

TEST_F(CheckpointTest, ReadsASingleFile) {
  write("model.safetensors", file_of(kTwo, 16));

  const auto checkpoint = Checkpoint::open(folder_);

  ASSERT_TRUE(checkpoint.has_value());
  ASSERT_TRUE(checkpoint->tensors().contains("b"));
  EXPECT_EQ(checkpoint->tensors().at("b").bytes.front(), std::byte{12});
}

TEST_F(CheckpointTest, ReadsTheShardsOfAnIndex) {
  write("one", file_of(kA, 2));
  write("two", file_of(kB, 3));
  write_index(R"({"a":"one","b":"two"})");

  const auto checkpoint = Checkpoint::open(folder_);

  ASSERT_TRUE(checkpoint.has_value());
  EXPECT_EQ(checkpoint->tensors().size(), 2U);
}

TEST_F(CheckpointTest, NamesTheFolderWithoutWeights) {
  const auto checkpoint = Checkpoint::open(folder_);

  ASSERT_FALSE(checkpoint.has_value());
  EXPECT_EQ(checkpoint.error().code(), Code::kNotFound);
  EXPECT_THAT(checkpoint.error().message(), HasSubstr(folder_));
}

TEST_F(CheckpointTest, NamesAMissingShard) {
  write_index(R"({"a":"one"})");

  const auto checkpoint = Checkpoint::open(folder_);

  ASSERT_FALSE(checkpoint.has_value());
  EXPECT_EQ(checkpoint.error().code(), Code::kNotFound);
  EXPECT_THAT(checkpoint.error().message(), HasSubstr("/one"));
}

TEST_F(CheckpointTest, AnIndexMustMatchItsShards) {
  write("one", file_of(kA, 2));
  write_index(R"({"a":"one","c":"one"})");
  expect_corrupt("tensor 'c': is in none of the shards");
}

TEST_F(CheckpointTest, ATensorInTwoShardsIsCorrupt) {
  write("one", file_of(kA, 2));
  write("two", file_of(kA, 2));
  write_index(R"({"a":"one","b":"two"})");
  expect_corrupt("tensor 'a': is also in another shard");
}

TEST_F(CheckpointTest, ShardsCannotLeaveTheFolder) {
  for (const std::string_view name : {"../x", "/etc/passwd", "..", ".", "", "a\\u0000"}) {
    write_index(R"({"a":")" + std::string(name) + R"("})");
    expect_corrupt("not the name of a file in the folder");
  }
}

TEST_F(CheckpointTest, TheNumberOfShardsIsBounded) {
  std::string map = "{";
  for (int i = 0; i <= 1024; ++i) {
    map += (i == 0 ? "\"t" : ",\"t") + std::to_string(i) + "\":\"s" + std::to_string(i) + "\"";
  }
  write_index(map + "}");
  expect_corrupt("more than 1024 shards");
}

TEST_F(CheckpointTest, AnIndexMustBeJson) {
  for (const std::string_view text : {"", "[]", "{", R"({"weight_map":[]})"}) {
    write("model.safetensors.index.json", text);
    expect_corrupt("weight_map");
  }
}

}  // namespace
}  // namespace stator::engine::cpu
