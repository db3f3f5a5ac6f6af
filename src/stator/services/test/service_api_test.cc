// SPDX-License-Identifier: Apache-2.0
#include "stator/services/service_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/json/writer.h"
#include "stator/services/event_json.h"
#include "stator/services/json_fields.h"
#include "stator/services/test/service_fixture.h"

namespace stator::services {
namespace {

using ::testing::HasSubstr;

class ServiceApiTest : public ::testing::Test {
 protected:
  SimClock clock_;
  Metrics metrics_;
  ServiceApi api_{{.metrics_prefix = "test_service"}, clock_, metrics_};
};

TEST_F(ServiceApiTest, FindsTheEndpointAndWhatStandsForItsId) {
  api_.add("GET", "/things/{id}/color",
           [](const auto& request) { return ServiceReply{.body = std::string(request.id)}; });
  EXPECT_EQ(ask(api_, "GET", "/things/a%2Fb/color").text, "a/b");
  EXPECT_EQ(ask(api_, "POST", "/things/7/color").status, 405);
  for (const char* path : {"/things//color", "/things/7", "/things/7/8/color", "/other"}) {
    EXPECT_EQ(ask(api_, "GET", path).status, 404) << path;
  }
  EXPECT_EQ(ask(api_, "GET", "/health").status, 200);
}

TEST_F(ServiceApiTest, ErrorsHaveTheStatusOfTheirCodeAndAreCounted) {
  api_.add("POST", "/fail", [](const auto& request) -> Result<ServiceReply> {
    return Error(request.body == "busy" ? Code::kOverloaded : Code::kAlreadyExists, "no \"luck\"");
  });
  EXPECT_EQ(ask(api_, "POST", "/fail").status, 409);
  EXPECT_EQ(ask(api_, "POST", "/fail", "busy").status, 429);
  EXPECT_EQ(ask(api_, "POST", "/fail").body.at("error").as_string(), "no \"luck\"");
  EXPECT_THAT(ask(api_, "GET", "/metrics").text,
              HasSubstr("test_service_errors_total{endpoint=\"/fail\",method=\"POST\"} 3\n"));
}

TEST(QueryValue, DecodesAndFinds) {
  EXPECT_EQ(query_value("a=1&model_name=org%2Fm+x&b", "model_name"), "org/m x");
  EXPECT_EQ(query_value("a=1&b", "b"), "");
  EXPECT_EQ(query_value("ab=1", "a"), std::nullopt);
  EXPECT_EQ(query_value("a=%4", "a"), "%4");
}

TEST(Fields, ErrorsNameTheField) {
  const Fields fields = *Fields::parse(
      R"({"n":-1,"big":18446744073709551615,"h":[-1,18446744073709551615],"t":[4294967296],"s":3})");
  EXPECT_EQ(*fields.number("big"), UINT64_MAX);
  EXPECT_THAT(fields.number("n").error().message(), HasSubstr("n must be a whole number"));
  EXPECT_THAT(*fields.hashes("h"), ::testing::ElementsAre(UINT64_MAX, UINT64_MAX));
  EXPECT_THAT(fields.tokens("t").error().message(), HasSubstr("t must be"));
  EXPECT_THAT(fields.text("s").error().message(), HasSubstr("s must be a string"));
  EXPECT_FALSE(Fields::parse("[1]").has_value());
  EXPECT_FALSE(Fields::parse("{").has_value());
  EXPECT_FALSE(Fields::parse(std::string(100, '[')).has_value());
}

TEST(EventJson, IsReadBackAsItWasWritten) {
  const std::vector<kv::KvEventData> all = {
      stored(3).data, stored(3, kv::StorageTier::kDevice, 1).data,
      kv::BlocksRemoved{{blocks::ExternalHash(UINT64_MAX), blocks::ExternalHash(1)}},
      kv::AllCleared{}};
  for (const kv::KvEventData& data : all) {
    const WorkerEvent event{
        {WorkerId(7), 2},
        {.event_id = 9, .dp_rank = 2, .tier = kv::StorageTier::kDisk, .data = data}};
    std::string text;
    json::Writer writer(text);
    write_event(writer, event);
    const auto read = read_event(*json::parse(text));
    ASSERT_TRUE(read.has_value()) << text;
    EXPECT_EQ(*read, event) << text;
  }
}

TEST(EventJson, TakesWhatOldAndNewProducersSend) {
  const auto legacy = read_event(*json::parse(
      R"({"worker_id":7,"event":{"event_id":1,"dp_rank":0,"data":{"stored":{"parent_hash":-5,
          "blocks":[{"block_hash":-1,"tokens_hash":2}]}}},"state_source":"x"})"));
  ASSERT_TRUE(legacy.has_value());
  EXPECT_EQ(std::get<kv::BlocksStored>(legacy->event.data).blocks[0].external.value(), UINT64_MAX);
  for (const char* bad :
       {R"({"worker_id":7})", R"({"worker_id":7,"event":{"data":"gone"}})",
        R"({"worker_id":7,"storage_tier":"tape","event":{"data":"cleared"}})",
        R"({"worker_id":7,"event":{"data":{"stored":{"blocks":[{"block_hash":1}]}}}})"}) {
    EXPECT_FALSE(read_event(*json::parse(bad)).has_value()) << bad;
  }
}

}  // namespace
}  // namespace stator::services
