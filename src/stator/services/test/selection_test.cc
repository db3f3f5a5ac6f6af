// SPDX-License-Identifier: Apache-2.0
#include "stator/services/selection.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/services/test/service_fixture.h"

namespace stator::services {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPrompt =
    R"("model_name":"m","token_ids":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15])";

std::string worker(int id, std::string_view extra = {}) {
  return fmt::format(R"({{"worker_id":{},"model_name":"m","endpoint":"http://w{}","block_size":4,)"
                     R"("kv_events_endpoint":"tcp://127.0.0.1:{}"{}}})",
                     id, id, 5000 + id, extra);
}

class SelectionTest : public ::testing::Test {
 protected:
  explicit SelectionTest(router::RouterConfig config = {})
      : service_({.router = std::move(config)}, indexer_, clock_, Random(1)) {
    add_selection_endpoints(api_, service_, indexer_);
  }
  Answered post(std::string_view path, std::string_view body) {
    return ask(api_, "POST", path, body);
  }
  Answered post_prompt(std::string_view path, std::string_view extra = {}) {
    return post(path, fmt::format("{{{}{}}}", kPrompt, extra));
  }
  int64_t requests(size_t row) { return load(row).at("active_requests").as_int64().value_or(-1); }
  json::Value load(size_t row) {
    return ask(api_, "GET", "/loads?model_name=m").body.at(0).at("loads").at(row);
  }
  FakeFeeds feeds_;
  SimClock clock_;
  Metrics metrics_;
  Indexer indexer_{{}, feeds_, clock_, metrics_};
  SelectionService service_;
  ServiceApi api_{{.metrics_prefix = "selection"}, clock_, metrics_};
};

TEST_F(SelectionTest, AWorkerIsSchedulableOnceEverythingIsKnown) {
  EXPECT_EQ(ask(api_, "GET", "/ready").status, 503);
  const auto first = post("/workers", R"({"worker_id":1,"model_name":"m"})");
  EXPECT_EQ(first.status, 201);
  EXPECT_EQ(first.body.at("lifecycle"), "incomplete");
  EXPECT_EQ(first.body.at("not_schedulable_reasons").elements().size(), 3U);
  EXPECT_EQ(post_prompt("/select").status, 404);
  EXPECT_EQ(ask(api_, "PATCH", "/workers/1", R"({"endpoint":"http://w1","block_size":4})").status,
            200);
  const auto not_ready = ask(api_, "GET", "/ready").body;
  EXPECT_EQ(not_ready.at("schedulable_workers"), 0);
  EXPECT_EQ(not_ready.at("workers").at(0).at("not_schedulable_reasons").elements().size(), 1U);
  const auto patched =
      ask(api_, "PATCH", "/workers/1", R"({"kv_events_endpoint":"tcp://127.0.0.1:5557"})");
  EXPECT_EQ(patched.body.at("lifecycle"), "schedulable");
  EXPECT_EQ(ask(api_, "GET", "/ready").status, 200);
  EXPECT_EQ(post_prompt("/select").status, 200);

  EXPECT_EQ(ask(api_, "PATCH", "/workers/1", R"({"lifecycle":"draining"})").status, 200);
  EXPECT_EQ(post_prompt("/select").status, 503);
  EXPECT_EQ(ask(api_, "PATCH", "/workers/2", "{}").status, 404);
  EXPECT_EQ(ask(api_, "PATCH", "/workers/x", "{}").status, 400);
  EXPECT_EQ(post("/workers", R"({"worker_id":2,"kv_events_endpoint":"nowhere"})").status, 400);
  EXPECT_EQ(ask(api_, "GET", "/workers?routing_group=x").text, "[]");
  EXPECT_EQ(ask(api_, "DELETE", "/workers/1").body.at("worker_id"), 1);
  EXPECT_EQ(ask(api_, "DELETE", "/workers/1").status, 404);
  EXPECT_EQ(ask(api_, "GET", "/workers").text, "[]");
}

TEST_F(SelectionTest, PrefersWhoHoldsThePrefixAndSaysHowMuch) {
  EXPECT_EQ(post("/workers", worker(1)).status, 201);
  EXPECT_EQ(post("/workers", worker(2)).status, 201);
  feeds_.delivers["tcp://127.0.0.1:5002"]({stored(3)});
  const auto answer = post_prompt("/select");
  EXPECT_EQ(answer.body.at("worker_id"), 2);
  EXPECT_EQ(answer.body.at("endpoint"), "http://w2");
  EXPECT_EQ(answer.body.at("overlap").at("gpu"), 12);
  EXPECT_EQ(answer.body.at("effective_prefill_tokens"), 4);
  EXPECT_EQ(answer.body.find("sequence_hashes"), nullptr);
  EXPECT_EQ(requests(0) + requests(1), 0) << "B1: nothing is booked";
  const auto scores = post_prompt("/overlap_scores").body;
  EXPECT_EQ(scores.at("num_blocks"), 4);
  EXPECT_EQ(scores.at("workers").at(0).at("device_blocks"), 0);
  EXPECT_EQ(scores.at("workers").at(1).at("device_blocks"), 3);
  EXPECT_EQ(scores.at("workers").at(1).at("router_credit_blocks").as_double(), 3);
  const auto potential = post_prompt("/potential_loads").body;
  EXPECT_EQ(potential.at(0).at("potential_prefill_tokens"), 16);
  EXPECT_EQ(potential.at(1).at("potential_prefill_tokens"), 4);

  const auto pinned = post_prompt("/select", R"(,"pinned_worker":{"worker_id":1})");
  EXPECT_EQ(pinned.body.at("worker_id"), 1);
  EXPECT_EQ(pinned.body.at("overlap").at("dp"), json::Value::object({{"0", 0}}));
  EXPECT_EQ(pinned.body.at("potential_decode_blocks"), 4);
  EXPECT_EQ(post_prompt("/select", R"(,"pinned_worker":{"worker_id":9})").status, 404);
  EXPECT_EQ(post_prompt("/select", R"(,"allowed_worker_ids":[1])").body.at("worker_id"), 1);
  EXPECT_EQ(post_prompt("/select", R"(,"routing_constraints":{"required_taints":["x"]})").status,
            503);
}

TEST_F(SelectionTest, AReservationLivesUntilItIsFreed) {
  EXPECT_EQ(post("/workers", worker(1)).status, 201);
  const auto made = post_prompt("/select_and_reserve", R"(,"selection_id":"r")");
  EXPECT_EQ(made.status, 200);
  EXPECT_EQ(made.body.at("isl_tokens"), 16);
  EXPECT_EQ(made.body.at("sequence_hashes").elements().size(), 4U);
  EXPECT_EQ(post_prompt("/select_and_reserve", R"(,"selection_id":"r")").status, 409);
  const auto row = [this] { return load(0); };
  EXPECT_EQ(row().at("potential_prefill_tokens"), 16);
  EXPECT_EQ(row().at("potential_decode_blocks"), 4);
  EXPECT_EQ(post("/reservations/r/prefill_complete", "").status, 200);
  EXPECT_EQ(row().at("potential_prefill_tokens"), 0);
  EXPECT_EQ(post("/reservations/r/output_block", "").status, 200);
  EXPECT_EQ(row().at("potential_decode_blocks"), 5);
  EXPECT_EQ(post("/reservations/r/output_block", R"({"decay_fraction":0.5})").status, 200);
  EXPECT_EQ(row().at("potential_decode_blocks"), 3) << "half of two output and four own blocks";
  EXPECT_EQ(post("/reservations/r/output_block", R"({"decay_fraction":2})").status, 400);
  EXPECT_EQ(ask(api_, "DELETE", "/reservations/r").status, 200);
  EXPECT_EQ(ask(api_, "DELETE", "/reservations/r").status, 404);
  EXPECT_EQ(row().at("potential_decode_blocks"), 0);
  const auto anonymous = post_prompt("/select_and_reserve");
  EXPECT_EQ(anonymous.body.at("selection_id").text().size(), 32U);
}

TEST_F(SelectionTest, ASelectionIsBookedOnceByItsId) {
  EXPECT_EQ(post("/workers", worker(1)).status, 201);
  EXPECT_EQ(post_prompt("/select", R"(,"selection_id":"s")").status, 200);
  constexpr const char* kReplay = R"({"selection_id":"s","model_name":"m"})";
  EXPECT_EQ(post("/reservations", R"({"selection_id":"s","model_name":"n"})").status, 404);
  EXPECT_EQ(post("/reservations", kReplay).status, 201);
  EXPECT_EQ(requests(0), 1);
  EXPECT_EQ(post("/reservations", kReplay).status, 404) << "used up";

  // A booking that fails leaves the selection.
  EXPECT_EQ(post_prompt("/select", R"(,"selection_id":"s")").status, 200);
  EXPECT_EQ(post("/reservations", kReplay).status, 409);
  EXPECT_EQ(ask(api_, "DELETE", "/reservations/s").status, 200);
  EXPECT_EQ(post("/reservations", kReplay).status, 201);

  EXPECT_EQ(post_prompt("/select", R"(,"selection_id":"t")").status, 200);
  clock_.advance(std::chrono::seconds(120));
  EXPECT_EQ(post("/reservations", R"({"selection_id":"t","model_name":"m"})").status, 404);
}

TEST_F(SelectionTest, AGatewayMayBookWhatItChoseItself) {
  EXPECT_EQ(post("/workers", worker(1)).status, 201);
  const auto by_hash =
      post("/reservations",
           R"({"model_name":"m","worker_id":1,"selection_id":"x","block_hashes":[1,2],
          "sequence_hashes":[-1,-2],"isl_tokens":9,"effective_prefill_tokens":3})");
  EXPECT_EQ(by_hash.status, 201) << by_hash.text;
  EXPECT_EQ(by_hash.body.at("sequence_hashes"), json::Value::array({-1, -2}));
  EXPECT_EQ(load(0).at("potential_prefill_tokens"), 3);
  EXPECT_EQ(post_prompt("/reservations", R"(,"worker_id":1,"effective_prefill_tokens":17)").status,
            400);
  EXPECT_EQ(post_prompt("/reservations", R"(,"worker_id":5)").status, 404);
  EXPECT_EQ(post("/reservations", R"({"model_name":"m","worker_id":1,"block_hashes":[1]})").status,
            400);
}

TEST_F(SelectionTest, RefusesAWorkerWhoseBlocksDifferFromThoseOfTheEventsHeard) {
  const auto events = R"({"model_name":"m","block_size":16,"events":[]})";
  const auto event = R"({"model_name":"m","block_size":16,"events":[{"worker_id":9,"event":{
      "event_id":1,"data":"cleared"}}]})";
  EXPECT_EQ(post("/events", events).status, 200);
  EXPECT_EQ(post("/events", event).status, 200);
  EXPECT_EQ(post("/workers", worker(1)).status, 409) << "blocks of 4";
  EXPECT_EQ(post_prompt("/select").status, 404) << "nobody serves the model";
  EXPECT_EQ(ask(api_, "GET", "/workers").text, "[]");
}

TEST_F(SelectionTest, AWorkerWithARankNobodyCanListenToIsNotThereAtAll) {
  feeds_.refused = "tcp://127.0.0.1:5002";
  EXPECT_EQ(post("/workers", worker(1, R"(,"data_parallel_size":2)")).status, 400);
  EXPECT_EQ(ask(api_, "GET", "/workers").text, "[]");
  EXPECT_EQ(post_prompt("/select").status, 503) << "its first rank neither";
  EXPECT_TRUE(feeds_.delivers.empty());
}

TEST_F(SelectionTest, RefusesNumbersThatCannotBe) {
  EXPECT_EQ(post("/workers", worker(1)).status, 201);
  // More blocks than tokens.
  EXPECT_EQ(post_prompt("/select_and_reserve", R"(,"sequence_hashes":[1,2,3,4,5])").status, 400);
  EXPECT_EQ(post_prompt("/select_and_reserve", R"(,"sequence_hashes":[1,2,3,4])").status, 200);
  // Weights whose sum is no number.
  const auto weighed = [&](std::string_view weight) {
    return post_prompt("/select", fmt::format(R"(,"routing_constraints":{{"preferred_taints":)"
                                              R"({{"a":{}}}}})",
                                              weight));
  };
  EXPECT_EQ(weighed("0.5").status, 200);
  EXPECT_EQ(weighed("1e300").status, 400);
  EXPECT_EQ(weighed("\"much\"").status, 400);
  EXPECT_THAT(weighed("1e300").text, HasSubstr("preferred_taints.a"));
  // An id where a rank belongs.
  const auto pinned =
      post_prompt("/select", R"(,"pinned_worker":{"worker_id":1,"dp_rank":4294967295})");
  EXPECT_EQ(pinned.status, 400);
  EXPECT_THAT(pinned.text,
              HasSubstr("pinned_worker.dp_rank must be a whole number from 0 to 16383"));
}

class BusySelectionTest : public SelectionTest {
 protected:
  BusySelectionTest() : SelectionTest({.reject = {.prefill_tokens = 0}}) {}
};

TEST_F(BusySelectionTest, BeyondTheThresholdsTheAnswerIs429) {
  EXPECT_EQ(post("/workers", worker(1)).status, 201);
  EXPECT_EQ(post_prompt("/select_and_reserve").status, 200);
  const auto busy = post_prompt("/select");
  EXPECT_EQ(busy.status, 429);
  EXPECT_THAT(busy.text, HasSubstr("busy thresholds"));
}

TEST_F(SelectionTest, RanksHaveEndpointsOfTheirOwn) {
  EXPECT_EQ(
      post("/workers", worker(1, R"(,"data_parallel_size":2,"data_parallel_start_rank":4)")).status,
      201);
  EXPECT_TRUE(feeds_.delivers.contains("tcp://127.0.0.1:5001"));
  EXPECT_TRUE(feeds_.delivers.contains("tcp://127.0.0.1:5002"));
  feeds_.delivers["tcp://127.0.0.1:5002"]({stored(4)});
  EXPECT_EQ(post_prompt("/select").body.at("dp_rank"), 5);
}

}  // namespace
}  // namespace stator::services
