// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/otlp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/json/value.h"
#include "stator/telemetry/request_spans.h"
#include "stator/telemetry/test/facts.h"

namespace stator::telemetry {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const OtlpResource kResource{
    .service = "stator", .version = "1.2", .attributes = "zone=a%20b, rack=7,=x,none"};

/// The fields of a message: number, and of length-delimited ones the bytes.
std::vector<std::pair<uint32_t, std::string>> fields_of(std::string_view message) {
  std::vector<std::pair<uint32_t, std::string>> out;
  const auto varint = [&message] {
    uint64_t value = 0;
    for (uint32_t shift = 0; !message.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(message.front());
      message.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) {
        break;
      }
    }
    return value;
  };
  while (!message.empty()) {
    const uint64_t tag = varint();
    const uint64_t size = (tag & 7) == 2 ? varint() : (tag & 7) == 1 ? 8 : (tag & 7) == 5 ? 4 : 0;
    if ((tag & 7) == 0) {
      varint();
    }
    EXPECT_LE(size, message.size()) << "of field " << (tag >> 3);
    out.emplace_back(tag >> 3, message.substr(0, size));
    message.remove_prefix(std::min<size_t>(size, message.size()));
  }
  return out;
}

std::string framed(const OtlpEncoding& encoding, const RequestFacts& facts, int times = 1) {
  SpanList spans;
  make_spans(facts, spans);
  std::string bytes;
  for (int i = 0; i < times; ++i) {
    encoding.append(bytes, spans);
  }
  return encoding.frame(bytes);
}

TEST(OtlpBytes, LengthsAgreeAtEveryDepth) {
  const auto request = fields_of(framed(OtlpBytes(kResource), moved_request(), 3));
  ASSERT_EQ(request.size(), 1U);
  const auto resource_spans = fields_of(request[0].second);
  ASSERT_EQ(resource_spans.size(), 2U);
  EXPECT_THAT(resource_spans[0].second, HasSubstr("service.version"));
  EXPECT_THAT(resource_spans[0].second, HasSubstr("a b"));
  const auto scope_spans = fields_of(resource_spans[1].second);

  ASSERT_EQ(scope_spans.size(), 1U + 3 * 8);
  for (size_t i = 1; i < scope_spans.size(); ++i) {
    EXPECT_EQ(scope_spans[i].first, 2U);
    for (const auto& [field, bytes] : fields_of(scope_spans[i].second)) {
      if (field == 9) {
        const auto pair = fields_of(bytes);
        ASSERT_EQ(pair.size(), 2U);
        EXPECT_EQ(fields_of(pair[1].second).size(), 1U) << pair[0].second;
      }
    }
  }
}

TEST(OtlpBytes, TextThatIsNoUtf8SpoilsNoBatch) {
  RequestFacts facts = moved_request();
  facts.x_request_id = "\xff\xfe";

  const std::string message = framed(OtlpBytes(kResource), facts);

  EXPECT_EQ(message.find("\xff\xfe"), std::string::npos);
  EXPECT_THAT(message, HasSubstr("(not UTF-8)"));
  EXPECT_EQ(fields_of(message).size(), 1U);
}

TEST(OtlpJson, IsTheSameInJson) {
  const auto document = json::parse(framed(OtlpJson(kResource), moved_request(), 2));
  ASSERT_TRUE(document) << document.error().message();
  const json::Value& part = document->find("resourceSpans")->elements()[0];
  EXPECT_EQ(part.find("resource")->find("attributes")->size(), 5U);
  const json::Value& spans = *part.find("scopeSpans")->elements()[0].find("spans");

  ASSERT_EQ(spans.size(), 16U);
  const json::Value& root = spans.elements()[0];
  EXPECT_EQ(root.text_at({"traceId"}), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(root.text_at({"name"}), "http-request");
  EXPECT_EQ(root.text_at({"startTimeUnixNano"}), "1700000000123000000");
  EXPECT_EQ(json::to_text(*spans.elements()[7].find("links")),
            R"([{"traceId":"4bf92f3577b34da6a3ce929d0e0e4736","spanId":")" +
                to_hex(attempt_span(moved_request().trace, 0)) + R"("}])");
}

TEST(OtlpJson, OfNoSpansIsStillAMessage) {
  EXPECT_TRUE(json::parse(OtlpJson(kResource).frame("")));
}

TEST(ResourceAttributes, AreReadAsTheSpecificationSays) {
  EXPECT_THAT(read_resource_attributes("zone=a%20b, rack=7,=x,none,e="),
              ElementsAre(Pair("zone", "a b"), Pair("rack", "7"), Pair("e", "")));
}

}  // namespace
}  // namespace stator::telemetry
