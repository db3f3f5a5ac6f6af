// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/ext_proc_stream.h"

#include <gtest/gtest.h>

namespace stator::epp {
namespace {

constexpr std::string_view kBody = R"({"model":"m","messages":[{"role":"user","content":"hi"}]})";

class ExtProc : public ::testing::Test {
 protected:
  ExtProc() { pool_->set_endpoints({{.address = "10.0.0.1:80"}, {.address = "10.0.0.2:80"}}); }

  static wire::ProcessingRequest headers(bool end,
                                         wire::ProtocolConfiguration::BodySendMode mode =
                                             wire::ProtocolConfiguration::FULL_DUPLEX_STREAMED) {
    wire::ProcessingRequest request;
    auto& header = *request.mutable_request_headers()->mutable_headers()->add_headers();
    header.set_key(":method");
    header.set_raw_value("POST");
    request.mutable_request_headers()->set_end_of_stream(end);
    request.mutable_protocol_config()->set_request_body_mode(mode);
    request.mutable_protocol_config()->set_response_body_mode(mode);
    return request;
  }
  static wire::ProcessingRequest body(std::string_view text, bool end) {
    wire::ProcessingRequest request;
    request.mutable_request_body()->set_body(std::string(text));
    request.mutable_request_body()->set_end_of_stream(end);
    return request;
  }
  static std::string destination(const wire::CommonResponse& common) {
    for (const auto& option : common.header_mutation().set_headers()) {
      if (option.header().key() == "x-gateway-destination-endpoint") {
        return option.header().raw_value();
      }
    }
    return "";
  }

  SystemClock clock_;
  Metrics metrics_;
  std::unique_ptr<EndpointPool> pool_ = EndpointPool::create(clock_, metrics_).value();
};

TEST_F(ExtProc, AnswersHeadersThenTheWholeBodyOnceTheRequestEnds) {
  ExtProcStream stream(*pool_, {}, "r");
  EXPECT_TRUE(stream.on_request(headers(false)).responses.empty());
  EXPECT_TRUE(stream.on_request(body(kBody.substr(0, 7), false)).responses.empty());
  const StreamAnswer answer = stream.on_request(body(kBody.substr(7), true));
  ASSERT_EQ(answer.responses.size(), 2U);
  const auto& common = answer.responses[0].request_headers().response();
  EXPECT_TRUE(common.clear_route_cache());
  const std::string chosen = destination(common);
  EXPECT_TRUE(chosen == "10.0.0.1:80" || chosen == "10.0.0.2:80");
  EXPECT_EQ(answer.responses[0]
                .dynamic_metadata()
                .fields()
                .at("envoy.lb")
                .struct_value()
                .fields()
                .at("x-gateway-destination-endpoint")
                .string_value(),
            chosen);
  const auto& piece =
      answer.responses[1].request_body().response().body_mutation().streamed_response();
  EXPECT_EQ(piece.body(), kBody);
  EXPECT_TRUE(piece.end_of_stream());
  // S1: a repeated last piece is ignored.
  EXPECT_TRUE(stream.on_request(body("again", true)).responses.empty());
}

TEST_F(ExtProc, LargeBodiesGoBackInPiecesThatEnvoyTakes) {
  ExtProcStream stream(*pool_, {}, "r");
  static_cast<void>(stream.on_request(headers(false)));
  const std::string large = R"({"prompt":")" + std::string(200'000, 'x') + "\"}";
  const StreamAnswer answer = stream.on_request(body(large, true));
  std::string back;
  for (size_t i = 1; i < answer.responses.size(); ++i) {
    const auto& piece =
        answer.responses[i].request_body().response().body_mutation().streamed_response();
    EXPECT_LE(piece.body().size(), 62'000U);
    EXPECT_EQ(piece.end_of_stream(), i + 1 == answer.responses.size());
    back += piece.body();
  }
  EXPECT_EQ(back, large);
}

TEST_F(ExtProc, RequestsWithoutABodyAreAnsweredAtOnce) {
  ExtProcStream stream(*pool_, {}, "r");
  const StreamAnswer answer = stream.on_request(headers(true));
  ASSERT_EQ(answer.responses.size(), 1U);
  EXPECT_NE(destination(answer.responses[0].request_headers().response()), "");
}

TEST_F(ExtProc, BufferedBodiesGetTheChoiceWithTheBodysAnswer) {
  ExtProcStream stream(*pool_, {}, "r");
  const StreamAnswer first =
      stream.on_request(headers(false, wire::ProtocolConfiguration::BUFFERED));
  ASSERT_EQ(first.responses.size(), 1U);
  EXPECT_TRUE(first.responses[0].has_request_headers());
  const StreamAnswer second = stream.on_request(body(kBody, true));
  ASSERT_EQ(second.responses.size(), 1U);
  EXPECT_NE(destination(second.responses[0].request_body().response()), "");
}

TEST_F(ExtProc, OtherModesFailWithTheModeToSet) {
  ExtProcStream stream(*pool_, {}, "r");
  const StreamAnswer answer =
      stream.on_request(headers(false, wire::ProtocolConfiguration::STREAMED));
  ASSERT_TRUE(answer.end);
  EXPECT_EQ(answer.end->status, 9);
  EXPECT_NE(answer.end->message.find("FULL_DUPLEX_STREAMED"), std::string::npos);
}

int refusal(const StreamAnswer& answer) {
  return answer.responses.size() == 1 && answer.responses[0].has_immediate_response()
             ? answer.responses[0].immediate_response().status().code()
             : 0;
}

TEST_F(ExtProc, RefusesInTheProxysPlace) {
  ExtProcStream broken(*pool_, {}, "r");
  static_cast<void>(broken.on_request(headers(false)));
  EXPECT_EQ(refusal(broken.on_request(body("{nonsense", true))), 400);

  ExtProcStream large(*pool_, {.body_bytes_max = 10}, "r");
  static_cast<void>(large.on_request(headers(false)));
  EXPECT_EQ(refusal(large.on_request(body(kBody, true))), 413);

  pool_->set_endpoints({});
  ExtProcStream nobody(*pool_, {}, "r");
  static_cast<void>(nobody.on_request(headers(false)));
  EXPECT_EQ(refusal(nobody.on_request(body(kBody, true))), 503);
}

TEST_F(ExtProc, KeepsToTheGatewaysSubset) {
  for (const std::string_view only : {"10.0.0.1:80", "10.0.0.2:80"}) {
    ExtProcStream stream(*pool_, {}, "r");
    wire::ProcessingRequest request = headers(true);
    google::protobuf::Struct hint;
    hint.mutable_fields()->insert({"x-gateway-destination-endpoint-subset", {}});
    hint.mutable_fields()
        ->at("x-gateway-destination-endpoint-subset")
        .set_string_value(std::string(only));
    (*request.mutable_metadata_context()->mutable_filter_metadata())["envoy.lb.subset_hint"] = hint;
    EXPECT_EQ(destination(stream.on_request(request).responses.at(0).request_headers().response()),
              only);
  }
}

TEST_F(ExtProc, TheResponsePassesThroughPieceByPiece) {
  ExtProcStream stream(*pool_, {.test_mode = true}, "r");
  static_cast<void>(stream.on_request(headers(true)));
  wire::ProcessingRequest response_headers;
  response_headers.mutable_response_headers();
  google::protobuf::Struct balancer;
  (*balancer.mutable_fields())["x-gateway-destination-endpoint-served"].set_string_value(
      "10.0.0.1:80");
  (*response_headers.mutable_metadata_context()->mutable_filter_metadata())["envoy.lb"] = balancer;
  const StreamAnswer first = stream.on_request(response_headers);
  EXPECT_EQ(first.responses.at(0)
                .response_headers()
                .response()
                .header_mutation()
                .set_headers(0)
                .header()
                .key(),
            "x-conformance-test-served-endpoint");
  wire::ProcessingRequest piece;
  piece.mutable_response_body()->set_body("data: {}\n\n");
  piece.mutable_response_body()->set_end_of_stream(true);
  const StreamAnswer passed = stream.on_request(piece);
  const auto& back =
      passed.responses.at(0).response_body().response().body_mutation().streamed_response();
  EXPECT_EQ(back.body(), "data: {}\n\n");
  EXPECT_TRUE(back.end_of_stream());
}

}  // namespace
}  // namespace stator::epp
