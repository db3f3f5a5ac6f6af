// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/sigv4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::storage {
namespace {

using testing::EndsWith;
using testing::Pair;

// The examples "GET Object" and "PUT Object" of Amazon's S3 documentation (Signature Calculations
// for the Authorization Header).
const AwsCredentials kExample = {.access_key = "AKIAIOSFODNN7EXAMPLE",
                                 .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                 .session_token = {},
                                 .region = "us-east-1"};
const WallTime kThen{std::chrono::seconds(1'369'353'600)};  // 2013-05-24T00:00:00Z

TEST(SigV4, EqualsTheExamplesOfTheDocumentation) {
  const std::string empty = sha256_hex("");
  const auto get = sign({.method = "GET",
                         .host = "examplebucket.s3.amazonaws.com",
                         .path = "/test.txt",
                         .query = "",
                         .headers = {{"range", "bytes=0-9"}},
                         .payload_hash = empty},
                        kExample, kThen);
  EXPECT_THAT(get.back(),
              Pair("Authorization",
                   EndsWith("SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, Signature="
                            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41")));

  const std::string body = sha256_hex("Welcome to Amazon S3.");
  const auto put = sign({.method = "PUT",
                         .host = "examplebucket.s3.amazonaws.com",
                         .path = "/test%24file.text",
                         .query = "",
                         .headers = {{"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                     {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
                         .payload_hash = body},
                        kExample, kThen);
  EXPECT_THAT(put.back().second,
              EndsWith("98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
}

TEST(SigV4, EncodesPathsOnce) {
  EXPECT_EQ(encode_path("/a b/c:d~e_f-1.t1r0"), "/a%20b/c%3Ad~e_f-1.t1r0");
}

}  // namespace
}  // namespace stator::storage
