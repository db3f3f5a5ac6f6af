// SPDX-License-Identifier: Apache-2.0
#include "stator/gguf/file.h"

#include <gtest/gtest.h>

#include <string>

namespace stator::gguf {
namespace {

template <typename T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}
std::string text(std::string_view value) {
  return raw(uint64_t{value.size()}) + std::string(value);
}

struct Entry {
  std::string name;
  std::vector<uint64_t> extents;  // as in files
  uint32_t type = 0;
  uint64_t offset = 0;
};

std::string file_with(const std::vector<Entry>& entries, size_t data_bytes) {
  std::string out = "GGUF" + raw(uint32_t{3}) + raw(uint64_t{entries.size()}) + raw(uint64_t{1}) +
                    text("general.architecture") + raw(uint32_t{8}) + text("llama");
  for (const Entry& entry : entries) {
    out += text(entry.name) + raw(static_cast<uint32_t>(entry.extents.size()));
    for (const uint64_t extent : entry.extents) {
      out += raw(extent);
    }
    out += raw(entry.type) + raw(entry.offset);
  }
  out.resize((out.size() + 31) / 32 * 32);
  return out + std::string(data_bytes, '\1');
}

std::string why(const std::string& bytes) {
  const auto file = File::parse(std::as_bytes(std::span(bytes)));
  return file ? "ok" : std::string(file.error().message());
}

TEST(GgufFile, FindsTensorsAndTheirShapes) {
  const std::string bytes = file_with({{"b", {64, 2}, 8, 32}, {"a", {4}, 0, 0}}, 32 + 2 * 2 * 34);

  const auto file = File::parse(std::as_bytes(std::span(bytes)));

  ASSERT_TRUE(file) << file.error().message();
  ASSERT_EQ(file->tensors.size(), 2U);
  EXPECT_EQ(file->tensors[0].name, "a");
  EXPECT_EQ(file->tensors[0].bytes.size(), 16U);
  EXPECT_EQ(file->tensors[1].shape, (std::vector<uint64_t>{2, 64}));
  EXPECT_EQ(file->tensors[1].bytes.size(), 136U);
  EXPECT_EQ(*file->metadata.find_string("general.architecture"), "llama");
}

TEST(GgufFile, RefusesByName) {
  EXPECT_EQ(why(file_with({{"a", {4}, 0, 0}, {"a", {4}, 0, 32}}, 64)),
            "GGUF tensor 'a' appears twice");
  EXPECT_EQ(why(file_with({{"a", {16}, 0, 0}, {"b", {4}, 0, 32}}, 64)),
            "GGUF tensor 'b' overlaps another one");
  EXPECT_EQ(why(file_with({{"a", {4}, 0, 3}}, 64)), "GGUF tensor 'a' is not aligned to 32");
  EXPECT_NE(why(file_with({{"a", {400}, 0, 0}}, 64)).find("truncated"), std::string::npos);
  EXPECT_NE(why(file_with({{"a", {33}, 8, 0}}, 64)).find("no multiple of 32"), std::string::npos);
  EXPECT_NE(why(file_with({{"a", {32}, 3, 0}}, 64)).find("'a' has type 3"), std::string::npos);
  EXPECT_NE(why(file_with({{"a", {1ULL << 62, 8}, 0, 0}}, 64)).find("too large"),
            std::string::npos);
  EXPECT_NE(why(file_with({{"a", {4}, 0, 0}}, 64).substr(0, 90)).find("ends within"),
            std::string::npos);
}

}  // namespace
}  // namespace stator::gguf
