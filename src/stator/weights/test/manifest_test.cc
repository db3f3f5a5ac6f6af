// SPDX-License-Identifier: Apache-2.0
#include "stator/weights/manifest.h"

#include <gtest/gtest.h>

namespace stator::weights {
namespace {

Manifest small() {
  Manifest out{
      .identity = {.model = "m", .dtype = "f32", .tp = 2},
      .pieces = {{.name = "a", .dtype = "f32", .shape = {4, 4}, .offset = 0, .bytes = 64},
                 {.name = "b", .dtype = "f32", .shape = {}, .offset = 4096, .bytes = 8000}},
      .chunk_bytes = 4096,
      .chunk_crcs = {}};
  const std::vector<std::byte> arena(12'096, std::byte{7});
  describe_chunks(out, arena);
  return out;
}

TEST(SourceIdentity, LeavesOutWhatIsEmptyAndTellsAllElseApart) {
  const SourceIdentity one{.model = "m", .dtype = "f32"};
  EXPECT_EQ(one.canonical(),
            R"({"dtype":"f32","ep":1,"format":1,"kind":"weights","model":"m","pp":1,"tp":1})");
  EXPECT_EQ(one.id().size(), 16U);
  SourceIdentity other = one;
  other.revision = "r";
  EXPECT_NE(one.id(), other.id());
  other = one;
  other.tp = 2;
  EXPECT_NE(one.id(), other.id());
  other = one;
  other.extra["lora"] = "x";
  EXPECT_NE(one.id(), other.id());
}

TEST(Manifest, ReadsBack) {
  const Manifest manifest = small();
  EXPECT_EQ(manifest.chunk_crcs.size(), 3U);
  const auto read = decode_manifest(encode(manifest));
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(*read, manifest);
}

TEST(Manifest, WhatIsOddIsRefused) {
  Manifest outside = small();
  outside.pieces[1].offset = 5000;
  EXPECT_FALSE(decode_manifest(encode(outside)));
  Manifest short_of_sums = small();
  short_of_sums.chunk_crcs.pop_back();
  EXPECT_FALSE(decode_manifest(encode(short_of_sums)));
  Manifest tiny = small();
  tiny.chunk_bytes = 1;
  EXPECT_FALSE(decode_manifest(encode(tiny)));
  for (const char* text : {"", "[]", "{}", R"({"arena_bytes":-1,"chunk_bytes":4096})"}) {
    EXPECT_FALSE(decode_manifest(text)) << text;
  }
}

TEST(Manifest, DifferencesAreNamed) {
  const Manifest manifest = small();
  EXPECT_TRUE(check_same(manifest, manifest));
  Manifest other = manifest;
  other.pieces[1].shape = {2000};
  EXPECT_NE(check_same(manifest, other).error().message().find("'b'"), std::string::npos);
  other = manifest;
  other.identity.revision = "other";
  EXPECT_FALSE(check_same(manifest, other));
  other = manifest;
  other.pieces.pop_back();
  EXPECT_FALSE(check_same(manifest, other));
}

}  // namespace
}  // namespace stator::weights
