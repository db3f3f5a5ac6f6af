// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/endpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/frontend/test/frontend_fixture.h"

namespace stator::frontend {
namespace {

using ::testing::HasSubstr;

class EndpointsTest : public CatalogTest {
 protected:
  static discovery::InstanceRecord worker(uint64_t id) {
    discovery::InstanceRecord record;
    record.key.worker = WorkerId(id);
    record.address = "local";
    record.model.name = "demo";
    record.model.model_path = demo_model_dir();
    record.model.context_length = 2048;
    record.model.vocab_size = demo_assets()->tokenizer->vocab_size();
    record.model.checksum = demo_assets()->checksum;
    record.model.eos_token_ids = demo_assets()->eos_token_ids;
    return record;
  }
  void add_worker() {
    const auto record = worker(7);
    ASSERT_TRUE(catalog_.preload(record.model).has_value());
    catalog_.add_worker(record);
  }
  /// True if the path is one of the endpoints; the answer is in `exchange`.
  bool ask(FakeExchange& exchange) {
    return answer_endpoint(exchange, {.config = config_,
                                      .catalog = catalog_,
                                      .receipts = receipts_,
                                      .metrics = metrics_,
                                      .wall_now = clock_.wall_now(),
                                      .stage = stage_,
                                      .client_is_local = client_is_local_});
  }
  std::pair<int, std::string> get(std::string_view target) {
    FakeExchange exchange(net::HttpRequest("GET", target));
    EXPECT_TRUE(ask(exchange));
    return {exchange.status, exchange.text};
  }
  Stage stage_ = Stage::kServing;
  bool client_is_local_ = true;
};

TEST_F(EndpointsTest, HealthFollowsTheWorkers) {
  const auto [before, waiting] = get("/health");
  EXPECT_EQ(before, 503);
  EXPECT_THAT(waiting, HasSubstr("waiting_for_workers"));
  add_worker();
  const auto [after, healthy] = get("/health");
  EXPECT_EQ(after, 200);
  EXPECT_THAT(healthy, HasSubstr("\"instance_id\":7"));
  catalog_.remove_worker(WorkerId(7));
  EXPECT_EQ(get("/health").first, 503);
}

TEST_F(EndpointsTest, WorkersThatTakeNothingNewDoNotMakeItHealthy) {
  add_worker();
  catalog_.set_suspended(WorkerId(7), true);
  const auto [suspended, why] = get("/health");
  EXPECT_EQ(suspended, 503);
  EXPECT_THAT(why, HasSubstr("none of 1 workers takes new work: worker 7"));
  catalog_.set_suspended(WorkerId(7), false);
  EXPECT_EQ(get("/health").first, 200);
  catalog_.set_draining(WorkerId(7));
  EXPECT_EQ(get("/health").first, 503);
  catalog_.add_worker(worker(8));
  EXPECT_EQ(get("/health").first, 200);
}

// What discovery lists first after it was wiped may be one that is about to go.
TEST_F(EndpointsTest, AWorkerThatJoinsDrainingDoesNotMakeItHealthy) {
  auto record = worker(7);
  record.state = discovery::InstanceState::kDraining;
  ASSERT_TRUE(catalog_.preload(record.model).has_value());
  catalog_.add_worker(record);
  EXPECT_EQ(get("/health").first, 503);
}

TEST_F(EndpointsTest, OneThatLeavesIsLiveButNotHealthyUntilItStops) {
  add_worker();
  EXPECT_EQ(get("/live").first, 200);
  stage_ = Stage::kLeaving;
  EXPECT_EQ(get("/health").first, 503);
  EXPECT_THAT(get("/health").second, HasSubstr("draining"));
  EXPECT_EQ(get("/live").first, 200);
  stage_ = Stage::kStopping;
  EXPECT_EQ(get("/health").first, 503);
  EXPECT_EQ(get("/live").first, 503);
}

TEST_F(EndpointsTest, ModelsWithWorkersAreListed) {
  EXPECT_THAT(get("/v1/models").second, HasSubstr("\"data\":[]"));
  add_worker();
  EXPECT_THAT(get("/v1/models").second, HasSubstr("\"id\":\"demo\""));
  EXPECT_EQ(get("/v1/models/demo").first, 200);
  EXPECT_EQ(get("/v1/models/%64em%6F").first, 200);
  EXPECT_THAT(get("/v1/models/a%2Fb%zz%4").second, HasSubstr("'a/b%zz%4'"));
  const auto [status, body] = get("/v1/models/absent");
  EXPECT_EQ(status, 404);
  EXPECT_THAT(body, HasSubstr("absent"));
}

TEST_F(EndpointsTest, AdaptersAreModelsWhileAWorkerHasThem) {
  add_worker();
  auto second = worker(8);
  second.model.adapters = {"clerk", "poet"};
  catalog_.add_worker(second);
  auto third = worker(9);
  third.model.adapters = {"poet"};
  catalog_.add_worker(third);
  EXPECT_THAT(get("/v1/models").second, HasSubstr(R"("id":"poet","object":"model")"));
  EXPECT_THAT(get("/v1/models/poet").second, HasSubstr(R"("parent":"demo")"));
  EXPECT_EQ(catalog_.resolve("demo:clerk").adapter, "clerk");
  EXPECT_EQ(catalog_.resolve("demo").adapter, "");

  second.model.adapters = {"poet"};
  catalog_.add_worker(second);
  EXPECT_EQ(catalog_.resolve("clerk").model, nullptr);
  EXPECT_EQ(catalog_.resolve("demo:clerk").model, nullptr);
  catalog_.remove_worker(WorkerId(9));
  EXPECT_NE(catalog_.resolve("poet").model, nullptr) << "worker 8 has it";
  catalog_.remove_worker(WorkerId(8));
  EXPECT_EQ(catalog_.resolve("poet").model, nullptr);
  EXPECT_TRUE(catalog_.list_adapters().empty());
}

TEST_F(EndpointsTest, AModelGoesBeforeAnAdapterOfItsName) {
  add_worker();
  auto other = worker(8);
  other.model.adapters = {"demo"};
  catalog_.add_worker(other);
  EXPECT_EQ(catalog_.resolve("demo").adapter, "");
  EXPECT_EQ(catalog_.resolve("demo:demo").adapter, "demo");
  EXPECT_TRUE(catalog_.list_adapters().empty());
}

TEST_F(EndpointsTest, AWorkerWithOtherFilesIsKeptOut) {
  add_worker();
  auto other = worker(8);
  other.model.checksum = "another";
  catalog_.add_worker(other);
  EXPECT_EQ(catalog_.instances().size(), 1U);
  EXPECT_THAT(metrics_.render(), HasSubstr("stator_frontend_card_mismatches_total 1"));
}

TEST_F(EndpointsTest, MetricsAreTheRegistrysText) {
  metrics_.counter("stator_test_total", "for this test").add(3);
  EXPECT_THAT(get("/metrics").second, HasSubstr("stator_test_total 3"));
}

TEST_F(EndpointsTest, ReceiptsAreFoundByAnswerIdAndAsText) {
  receipts_.add({.request_id = "r1", .model = "demo", .mode = "kv", .reason = "lowest cost"});
  EXPECT_EQ(get("/receipts/chatcmpl-r1").first, 200);
  EXPECT_EQ(get("/receipts/cmpl-r1").second, get("/receipts/last").second);
  EXPECT_THAT(get("/receipts/last?format=text").second, HasSubstr("lowest cost"));
  EXPECT_EQ(get("/receipts/r2").first, 404);
}

TEST_F(EndpointsTest, StrangersNeedTheIdOfAReceipt) {
  receipts_.add({.request_id = "r1", .model = "demo", .mode = "kv", .reason = "lowest cost"});
  for (const auto& [target, status] :
       {std::pair("/receipts/last", 403), std::pair("/receipts/cmpl-last", 403),
        std::pair("/receipts/last?format=text", 403), std::pair("/receipts/r1", 200)}) {
    FakeExchange exchange(net::HttpRequest("GET", target));
    client_is_local_ = false;
    ASSERT_TRUE(ask(exchange));
    EXPECT_EQ(exchange.status, status) << target;
    EXPECT_EQ(exchange.text.find("r1") == std::string::npos, status == 403) << exchange.text;
  }
}

TEST_F(EndpointsTest, OtherPathsAreLeftToTheShard) {
  FakeExchange chat(net::HttpRequest("POST", "/v1/chat/completions"));
  EXPECT_FALSE(ask(chat));
  FakeExchange wrong_method(net::HttpRequest("DELETE", "/v1/models"));
  EXPECT_FALSE(ask(wrong_method));
  answer_unknown_route(wrong_method, {});
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_EQ(wrong_method.header("allow"), "GET, HEAD");
  FakeExchange get_chat(net::HttpRequest("GET", "/v1/chat/completions"));
  EXPECT_FALSE(ask(get_chat));
  answer_unknown_route(get_chat, {});
  EXPECT_EQ(get_chat.status, 405);
  EXPECT_EQ(get_chat.header("allow"), "POST");
  FakeExchange unknown(net::HttpRequest("GET", "/v3"));
  EXPECT_FALSE(ask(unknown));
  answer_unknown_route(unknown, {});
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.header("allow"), "");
}

TEST(JsonContentType, IsRecognisedWithParametersAndSuffixes) {
  const auto is_json = [](std::string_view type) {
    net::HttpRequest request("POST", "/");
    request.add_header("content-type", type);
    return is_json_content_type(request);
  };
  EXPECT_TRUE(is_json("application/json"));
  EXPECT_TRUE(is_json("Application/JSON; charset=utf-8"));
  EXPECT_TRUE(is_json("application/vnd.api+json"));
  EXPECT_FALSE(is_json("text/json"));
  EXPECT_FALSE(is_json("application/jsonp"));
  EXPECT_FALSE(is_json(""));
  EXPECT_FALSE(is_json_content_type(net::HttpRequest("POST", "/")));
}

TEST_F(EndpointsTest, BusyThresholdsAreShownAndSetPerModel) {
  add_worker();
  EXPECT_THAT(get("/busy_threshold").second,
              HasSubstr(R"({"model":"demo","active_decode_blocks_threshold":null,)"));
  const auto post = [this](std::string_view body) {
    net::HttpRequest request("POST", "/busy_threshold");
    request.add_header("content-type", "application/json");
    request.mutable_body() = body;
    FakeExchange exchange(std::move(request));
    EXPECT_TRUE(ask(exchange));
    return std::pair(exchange.status, exchange.text);
  };
  const auto [status, answer] = post(
      R"({"model":"demo","active_decode_blocks_threshold":0.5,"active_prefill_tokens_threshold":0})");
  EXPECT_EQ(status, 200);
  EXPECT_THAT(answer, HasSubstr("\"active_prefill_tokens_threshold_frac\":null"));
  const auto thresholds = catalog_.find("demo")->router->reject_thresholds();
  EXPECT_EQ(thresholds.kv_fraction, 0.5);
  EXPECT_EQ(thresholds.prefill_tokens, 0);
  EXPECT_LT(thresholds.prefill_fraction, 0);

  EXPECT_EQ(post(R"({"model":"demo","active_decode_blocks_threshold":-1})").first, 200);
  EXPECT_LT(catalog_.find("demo")->router->reject_thresholds().kv_fraction, 0);
  EXPECT_EQ(catalog_.find("demo")->router->reject_thresholds().prefill_tokens, 0);

  EXPECT_EQ(post(R"({"model":"other"})").first, 404);
  for (const char* bad :
       {"[]", "{", R"({"model":3})", R"({"model":"demo","active_decode_blocks_threshold":"much"})",
        R"({"model":"demo","active_prefill_tokens_threshold":-2})"}) {
    EXPECT_EQ(post(bad).first, 400) << bad;
  }
  config_.disable_admin_api = true;
  EXPECT_EQ(get("/busy_threshold").first, 404);
}

TEST_F(EndpointsTest, PagesOfOthersSetNoBusyThresholds) {
  add_worker();
  const auto post = [this](std::string_view type, std::string_view host, std::string_view origin) {
    net::HttpRequest request("POST", "/busy_threshold");
    request.add_header("host", host);
    request.add_header("content-type", type);
    if (!origin.empty()) {
      request.add_header("origin", origin);
    }
    request.mutable_body() = R"({"model":"demo","active_decode_blocks_threshold":0})";
    FakeExchange exchange(std::move(request));
    EXPECT_TRUE(ask(exchange));
    return exchange.status;
  };
  constexpr std::string_view kType = "application/json";

  EXPECT_EQ(post("text/plain", "localhost:8000", ""), 415);
  EXPECT_EQ(post("", "localhost:8000", ""), 415);
  EXPECT_EQ(post(kType, "localhost:8000", "https://evil.example"), 403);
  EXPECT_EQ(post(kType, "evil.example:8000", "http://evil.example:8000"), 403);
  EXPECT_LT(catalog_.find("demo")->router->reject_thresholds().kv_fraction, 0);
  config_.http.allowed_hosts = "stator.example";
  EXPECT_EQ(post(kType, "stator.example", "https://stator.example"), 200);
  config_.http.cors_origins = "https://chat.example";
  EXPECT_EQ(post(kType, "localhost:8000", "https://chat.example"), 200);
  EXPECT_EQ(post(kType, "localhost:8000", ""), 200);
}

TEST_F(EndpointsTest, OnlyRoutesThatGenerateReadLargeBodies) {
  config_.text_body_bytes_max = 1 << 20;
  const auto rule = [this](std::string_view method, std::string_view path) {
    return body_rule(net::HttpRequest(method, path), config_);
  };
  for (const char* path : {"/v1/chat/completions", "/v1/completions"}) {
    EXPECT_EQ(rule("POST", path).bytes_max, SIZE_MAX) << path;
    EXPECT_LE(rule("GET", path).bytes_max, 65536) << path;
    EXPECT_EQ(rule("PUT", path).status, 405) << path;
  }
  EXPECT_EQ(rule("POST", "/tokenize").bytes_max, 1 << 20);
  EXPECT_EQ(rule("POST", "/detokenize").bytes_max, 1 << 20);
  for (const char* path : {"/v1/models", "/v1/models/a", "/health", "/live", "/metrics",
                           "/receipts/1", "/busy_threshold"}) {
    for (const char* method : {"GET", "HEAD", "POST", "DELETE"}) {
      EXPECT_LE(rule(method, path).bytes_max, 65536) << method << path;
    }
  }
  const net::BodyRule unknown = rule("POST", "/v1/nothing");
  EXPECT_LE(unknown.bytes_max, 65536);
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(unknown.message, HasSubstr("/v1/nothing"));
}

}  // namespace
}  // namespace stator::frontend
