// SPDX-License-Identifier: Apache-2.0
#include "stator/media/image_header.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace stator::media {
namespace {

using namespace std::string_literals;

std::string png(uint32_t width, uint32_t height) {
  std::string out = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR"s;
  for (const uint32_t value : {width, height}) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      out.push_back(static_cast<char>(value >> shift));
    }
  }
  return out + "\x08\x02\0\0\0"s;
}

std::string jpeg(const std::string& before = "") {
  return "\xFF\xD8\xFF\xE0\x00\x04"
         "ab"s +
         before + "\xFF\xC2\x00\x11\x08\x00\x20\x00\x40\x03"s;
}

TEST(ImageHeader, ReadsTheSizeOfEachFormat) {
  EXPECT_EQ(read_image_size(png(640, 480)), (ImageSize{640, 480}));
  EXPECT_EQ(read_image_size(jpeg()), (ImageSize{64, 32}));
  EXPECT_EQ(read_image_size(jpeg("\xFF\xFF\xC4\x00\x03x"s)), (ImageSize{64, 32}));
  EXPECT_EQ(read_image_size("GIF89a\x0A\x00\x14\x00"s), (ImageSize{10, 20}));
  EXPECT_EQ(read_image_size("RIFF\0\0\0\0WEBPVP8X\x0A\0\0\0\0\0\0\0\x09\0\0\x13\0\0"s),
            (ImageSize{10, 20}));
  EXPECT_EQ(read_image_size("RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9D\x01\x2A\x0A\x00\x14\x00"s),
            (ImageSize{10, 20}));
  EXPECT_EQ(read_image_size("RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2F\x09\xC0\x04\x00\0\0\0\0\0"s),
            (ImageSize{10, 20}));
  EXPECT_EQ(read_image_size("BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x0A\0\0\0\xEC\xFF\xFF\xFF"s),
            (ImageSize{10, 20}));
}

TEST(ImageHeader, SaysNothingOfHeadersThatMakeNoSense) {
  for (const std::string& bytes :
       {""s, "\x89PNG"s, png(640, 480).substr(0, 23), png(0, 480), png(640, 0), png(0x80000000, 1),
        jpeg().substr(0, 14), "\xFF\xD8\xFF\xDA\x00\x04xx"s, "\xFF\xD8\xFF\xE0\x00\x01"s,
        "\xFF\xD8\xFF\xE0\x00\x10"s, "GIF89a\0\0\0\0"s, "GIF89a"s,
        "RIFF\0\0\0\0WEBPVP8?\x0A\0\0\0\0\0\0\0\x09\0\0\x13\0\0"s, "BM"s, "<svg/>"s}) {
    EXPECT_EQ(read_image_size(bytes), std::nullopt) << bytes.size();
  }
}

TEST(ImageHeader, EveryCutOfAHeaderIsReadWithoutHarm) {
  for (const std::string& whole : {png(640, 480), jpeg(), "GIF89a\x0A\x00\x14\x00"s}) {
    for (size_t size = 0; size < whole.size(); ++size) {
      read_image_size(std::string_view(whole).substr(0, size));
    }
  }
}

TEST(ImageHeader, TellsKindsByTheirFirstBytes) {
  const std::pair<std::string, std::string_view> files[] = {
      {png(1, 1), "image/png"},
      {"RIFF\0\0\0\0WAVEfmt "s, "audio/wav"},
      {"ID3\x04"s, "audio/mpeg"},
      {"\xFF\xFB\x90\x00"s, "audio/mpeg"},
      {"\xFF\xF1\x50\x80"s, "audio/aac"},
      {"fLaC"s, "audio/flac"},
      {"OggS"s, "audio/ogg"},
      {"\0\0\0\x20"s + "ftypisom", "video/mp4"},
      {"\0\0\0\x20"s + "ftypM4A ", "audio/mp4"},
      {"\x1A\x45\xDF\xA3"s, "video/webm"},
      {"RIFF\0\0\0\0AVI LIST"s, "video/x-msvideo"}};
  for (const auto& [bytes, type] : files) {
    const auto known = sniff(bytes);
    ASSERT_TRUE(known) << type;
    EXPECT_EQ(known->type, type);
  }
  for (const char* text : {"<html>", "%PDF-1.7", "hello", "{\"a\":1}", "PK\x03\x04"}) {
    EXPECT_FALSE(sniff(text)) << text;
  }
}

}  // namespace
}  // namespace stator::media
