// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/request_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stator/core/random.h"

namespace stator::net::detail {
namespace {

constexpr ParserLimits kLimits{.header_bytes_max = 2000, .headers_max = 10, .body_bytes_max = 5000};

constexpr std::string_view kHead = "POST /v1/x?q=1 HTTP/1.1\r\nHost: a\r\n";

struct Refused {
  const char* name;
  std::string bytes;
  int status;
};

class RefusesTest : public testing::TestWithParam<Refused> {};

TEST_P(RefusesTest, WholeAndByteByByte) {
  RequestParser whole(kLimits);
  whole.feed(GetParam().bytes);
  ASSERT_TRUE(whole.refusal().has_value());
  EXPECT_EQ(whole.refusal()->status, GetParam().status) << whole.refusal()->message;
  EXPECT_FALSE(whole.complete());
  EXPECT_EQ(whole.feed("more"), 0U);

  RequestParser split(kLimits);
  for (const char c : GetParam().bytes) {
    split.feed({&c, 1});
  }
  ASSERT_TRUE(split.refusal().has_value());
  EXPECT_EQ(split.refusal()->status, GetParam().status) << split.refusal()->message;
}

std::string with(std::string_view headers, std::string_view body = "") {
  return std::string(kHead) + std::string(headers) + "\r\n" + std::string(body);
}

INSTANTIATE_TEST_SUITE_P(
    RequestParser, RefusesTest,
    testing::Values(
        Refused{"Garbage", "\x01\x02\r\n\r\n", 400}, Refused{"NoVersion", "GET /\r\n\r\n", 400},
        Refused{"OldVersion", "GET / HTTP/0.9\r\n\r\n", 505},
        Refused{"NewVersion", "GET / HTTP/2.0\r\n\r\n", 505},
        Refused{"BareLineFeedInRequestLine", "GET / HTTP/1.1\nHost: a\r\n\r\n", 400},
        Refused{"BareLineFeedInHeaders", "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400},
        Refused{"SpaceBeforeColon", with("X : b\r\n"), 400},
        Refused{"HeaderWithoutColon", with("nonsense\r\n"), 400},
        Refused{"FoldedHeader", with("X: a\r\n b\r\n"), 400},
        Refused{"HeaderFoldedWithATab", with("X: a\r\n\tb\r\n"), 400},
        Refused{"FoldedHeaderBeforeOthers", with("X: a\r\n b\r\nYyyyyyyyyyyyyyyyyyyy: c\r\n"), 400},
        Refused{"FoldedEmptyHeader", with("X:\r\n \r\n"), 400},
        Refused{"MissingHost", "GET / HTTP/1.1\r\n\r\n", 400},
        Refused{"TwoHosts", with("Host: b\r\n"), 400},
        Refused{"HostWithAPath", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400},
        Refused{"HostWithAUser", "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", 400},
        Refused{"ListOfHosts", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400},
        Refused{"TargetOfAnotherScheme", "GET file:///etc/x HTTP/1.1\r\nHost: a\r\n\r\n", 400},
        Refused{"VersionInLowerCase", "GET / http/1.1\r\nHost: a\r\n\r\n", 505},
        Refused{"LengthAndChunked", with("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
                400},
        Refused{"ChunkedAndLength", with("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"),
                400},
        Refused{"DifferentLengths", with("Content-Length: 1\r\nContent-Length: 2\r\n"), 400},
        Refused{"EqualLengths", with("Content-Length: 1\r\nContent-Length: 1\r\n"), 400},
        Refused{"LengthList", with("Content-Length: 1, 1\r\n"), 400},
        Refused{"NegativeLength", with("Content-Length: -1\r\n"), 400},
        Refused{"SignedLength", with("Content-Length: +1\r\n"), 400},
        Refused{"HexLength", with("Content-Length: 0x10\r\n"), 400},
        Refused{"HugeLength", with("Content-Length: 99999999999999999999999\r\n"), 400},
        Refused{"TwiceChunked",
                with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
        Refused{"OtherCoding", with("Transfer-Encoding: gzip\r\n"), 501},
        Refused{"CodingBeforeChunked", with("Transfer-Encoding: gzip, chunked\r\n"), 501},
        Refused{"ChunkedInHttp10", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        Refused{"OtherExpectation", with("Expect: tea\r\n"), 417},
        Refused{"TooManyHeaders",
                with("A: 1\r\nB: 1\r\nC: 1\r\nD: 1\r\nE: 1\r\nF: 1\r\nG: 1\r\n"
                     "H: 1\r\nI: 1\r\nJ: 1\r\n"),
                431},
        Refused{"LongHeader", with("X: " + std::string(2000, 'x') + "\r\n"), 431},
        Refused{"LongHeadersTogether",
                with("X: " + std::string(1000, 'x') + "\r\nY: " + std::string(1000, 'y') + "\r\n"),
                431},
        Refused{"EndlessRequestLine", "GET /" + std::string(3000, 'x'), 431},
        Refused{"LargeBody", with("Content-Length: 5001\r\n"), 413},
        Refused{"LargeChunk", with("Transfer-Encoding: chunked\r\n", "1389\r\n"), 413},
        Refused{"BadChunkSize", with("Transfer-Encoding: chunked\r\n", "xyz\r\n"), 400},
        Refused{"HugeChunkSize", with("Transfer-Encoding: chunked\r\n", "FFFFFFFFFFFFFFFFFFFF\r\n"),
                400},
        Refused{"EndlessChunkExtension",
                with("Transfer-Encoding: chunked\r\n", "1;" + std::string(5000, 'x')), 400},
        Refused{"EndlessTrailers",
                with("Transfer-Encoding: chunked\r\n", "0\r\nX: " + std::string(5000, 'x')), 400},
        Refused{"BareLineFeedInChunks", with("Transfer-Encoding: chunked\r\n", "1\nx\r\n"), 400},
        Refused{"ChunkLongerThanItsSize", with("Transfer-Encoding: chunked\r\n", "1\r\nxyz\r\n"),
                400},
        Refused{"SpaceAfterChunkSize", with("Transfer-Encoding: chunked\r\n", "1 \r\nx\r\n"), 400},
        Refused{"FoldedTrailer", with("Transfer-Encoding: chunked\r\n", "0\r\nX: a\r\n b\r\n\r\n"),
                400},
        Refused{"NegativeChunkSize", with("Transfer-Encoding: chunked\r\n", "-1\r\n"), 400},
        Refused{"BareLineFeedInTrailers", with("Transfer-Encoding: chunked\r\n", "0\r\nX: a\n\r\n"),
                400}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(RequestParser, GivesEverythingOfARequest) {
  RequestParser parser(kLimits);
  const std::string bytes = with("X-One: 1\r\nContent-Length: 4\r\n", "body");

  EXPECT_EQ(parser.feed(bytes + "GET"), bytes.size());

  ASSERT_TRUE(parser.complete());
  EXPECT_TRUE(parser.keep_alive());
  EXPECT_FALSE(parser.is_http_1_0());
  const HttpRequest request = parser.take_request();
  EXPECT_EQ(request.method(), "POST");
  EXPECT_EQ(request.target(), "/v1/x?q=1");
  EXPECT_EQ(request.path(), "/v1/x");
  EXPECT_EQ(request.query(), "q=1");
  EXPECT_EQ(request.header("x-ONE"), "1");
  EXPECT_EQ(request.header_count(), 3U);
  EXPECT_EQ(request.header_at(0).name, "Host");
  EXPECT_EQ(request.body(), "body");
}

TEST(RequestParser, AnySplitGivesTheSameRequest) {
  const std::string bytes =
      "\r\n" + with("Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n",
                    "3;a=b\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nT: 1\r\n\r\n");
  Random random(11);
  for (int round = 0; round < 500; ++round) {
    RequestParser parser(kLimits);
    size_t at = 0;
    while (at < bytes.size()) {
      const size_t step = std::min<size_t>(1 + random.below(20), bytes.size() - at);
      ASSERT_EQ(parser.feed(std::string_view(bytes).substr(at, step)), step);
      ASSERT_FALSE(parser.refusal()) << parser.refusal()->message;
      at += step;
    }
    ASSERT_TRUE(parser.complete());
    EXPECT_TRUE(parser.expects_continue());
    const HttpRequest request = parser.take_request();
    EXPECT_EQ(request.body(), "abc0123456789abcdef");
    EXPECT_EQ(request.header("t"), std::nullopt);
  }
}

TEST(RequestParser, LeavesTheNextRequestAloneWhereverTheSplitIs) {
  const std::string first = with("Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\n\r\n");
  const std::string next = "GET /next HTTP/1.1\r\n";
  const std::string both = first + next;
  for (size_t split = 0; split <= both.size(); ++split) {
    RequestParser parser(kLimits);
    size_t consumed = parser.feed(std::string_view(both).substr(0, split));
    if (!parser.complete()) {
      ASSERT_EQ(consumed, split);
      consumed += parser.feed(std::string_view(both).substr(split));
    }
    ASSERT_TRUE(parser.complete()) << split;
    EXPECT_EQ(consumed, first.size()) << split;
  }
}

TEST(RequestParser, TrailersChangeNothing) {
  RequestParser parser(kLimits);
  parser.feed(
      with("Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\nContent-Length: 5\r\nX: 1\r\n\r\n"));

  ASSERT_TRUE(parser.complete());
  const HttpRequest request = parser.take_request();
  EXPECT_EQ(request.header("content-length"), std::nullopt);
  EXPECT_EQ(request.header("x"), std::nullopt);
  EXPECT_EQ(request.body(), "x");
}

TEST(RequestParser, HostsAndTargetsOfAllShapes) {
  for (const std::string bytes :
       {"GET / HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n", "GET / HTTP/1.1\r\nHost: \r\n\r\n",
        "GET HTTPS://other/x HTTP/1.1\r\nHost: a_b.example:1\r\n\r\n",
        "GET /x?url=file:///y HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1 ; "
        "x=y\r\na\r\n0\r\n\r\n"}) {
    RequestParser parser(kLimits);
    EXPECT_EQ(parser.feed(bytes), bytes.size()) << bytes;
    EXPECT_TRUE(parser.complete()) << bytes;
  }
}

TEST(RequestParser, EmptyLinesBeforeARequestDoNotStartIt) {
  RequestParser parser(kLimits);
  EXPECT_EQ(parser.feed("\r\n\r\n"), 4U);
  EXPECT_FALSE(parser.started());
  EXPECT_EQ(parser.feed("G"), 1U);
  EXPECT_TRUE(parser.started());
}

TEST(RequestParser, KnowsWhenHeadersAreThere) {
  RequestParser parser(kLimits);
  parser.feed(with("Content-Length: 4\r\n"));
  EXPECT_TRUE(parser.headers_complete());
  EXPECT_FALSE(parser.complete());
  EXPECT_EQ(parser.body_bytes_received(), 0U);
  parser.feed("bo");
  EXPECT_EQ(parser.body_bytes_received(), 2U);
}

TEST(RequestParser, AcceptsAllMethodsAndHttp10WithoutHost) {
  RequestParser custom(kLimits);
  custom.feed("BREW / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(custom.complete());

  RequestParser old(kLimits);
  old.feed("GET / HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(old.complete());
  EXPECT_TRUE(old.is_http_1_0());
  EXPECT_FALSE(old.keep_alive());
}

}  // namespace
}  // namespace stator::net::detail
