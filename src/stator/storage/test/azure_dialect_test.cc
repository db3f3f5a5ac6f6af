// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>

#include "stator/storage/object_dialect.h"

namespace stator::storage {
namespace {

const WallTime kThen{std::chrono::seconds(1'369'353'600)};  // 2013-05-24T00:00:00Z
const AzureOptions kEmulator = {.container = "cache",
                                .prefix = {},
                                .endpoint = "http://127.0.0.1:10000/devstoreaccount1",
                                .account = "devstoreaccount1",
                                .key = "c2VjcmV0",  // "secret"
                                .sas_token = {}};

std::map<std::string, std::string> headers_of(const net::HttpClientRequest& request) {
  return {request.headers.begin(), request.headers.end()};
}

// The signatures were computed by the rules of "Authorize with Shared Key" in Python (hmac,
// base64).
TEST(AzureDialect, SignsBySharedKey) {
  const auto dialect = make_azure_dialect(kEmulator);
  ASSERT_TRUE(dialect);
  const auto put = (*dialect)->request(
      {.method = "PUT", .path = "/a%20b/0%3Ax", .body = "hello", .only_new = true}, kThen);
  EXPECT_EQ(put.url, "http://127.0.0.1:10000/devstoreaccount1/cache/a%20b/0%3Ax");
  auto headers = headers_of(put);
  EXPECT_EQ(headers["x-ms-date"], "Fri, 24 May 2013 00:00:00 GMT");
  EXPECT_EQ(headers["x-ms-blob-type"], "BlockBlob");
  EXPECT_EQ(headers["If-None-Match"], "*");
  EXPECT_EQ(headers["Authorization"],
            "SharedKey devstoreaccount1:+QC/NhDLTTwAIORUi8KEFhTs9Up7ftjDeE5/PzEM3jA=");
  const auto check = (*dialect)->request({.method = "HEAD", .path = ""}, kThen);
  EXPECT_EQ(check.url, "http://127.0.0.1:10000/devstoreaccount1/cache?restype=container");
  headers = headers_of(check);
  EXPECT_EQ(headers["Authorization"],
            "SharedKey devstoreaccount1:PL5f06N8lFEsJHxu1Ri8qMRGGg3nhO2KmG6YidtZ7N4=");
}

TEST(AzureDialect, GoesToAzureWithoutAnEndpointAndPassesASasTokenOn) {
  AzureOptions options = kEmulator;
  options.endpoint = "";
  options.sas_token = "?sv=2021-08-06&sig=abc";
  const auto dialect = make_azure_dialect(options);
  ASSERT_TRUE(dialect);
  const auto get = (*dialect)->request({.method = "GET", .path = "/key"}, kThen);
  EXPECT_EQ(get.url,
            "https://devstoreaccount1.blob.core.windows.net/cache/key?sv=2021-08-06&sig=abc");
  EXPECT_FALSE(headers_of(get).contains("Authorization"));
  const auto check = (*dialect)->request({.method = "HEAD", .path = ""}, kThen);
  EXPECT_TRUE(check.url.ends_with("/cache?restype=container&sv=2021-08-06&sig=abc"));
}

TEST(AzureDialect, SaysWhatIsMissing) {
  AzureOptions options = kEmulator;
  options.key = "no base64!";
  EXPECT_FALSE(make_azure_dialect(options));
  options = kEmulator;
  options.account = "";
  EXPECT_FALSE(make_azure_dialect(options));
  EXPECT_EQ(parse_azure_url("az://c/a/b/")->prefix, "a/b");
  EXPECT_EQ(parse_azure_url("az://c")->container, "c");
  EXPECT_FALSE(parse_azure_url("az:///a"));
  EXPECT_FALSE(parse_azure_url("s3://c/a"));
}

}  // namespace
}  // namespace stator::storage
