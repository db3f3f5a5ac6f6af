// SPDX-License-Identifier: Apache-2.0
#include "stator/services/slot_tracker.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "stator/services/test/service_fixture.h"

namespace stator::services {
namespace {

class SlotTrackerTest : public ::testing::Test {
 protected:
  SlotTrackerTest() { add_slot_endpoints(api_, tracker_); }
  Answered post(std::string_view path, std::string_view body) {
    return ask(api_, "POST", path, body);
  }
  json::Value load(size_t row = 0) { return ask(api_, "GET", "/loads?model_name=m").body.at(row); }
  SimClock clock_;
  Metrics metrics_;
  SlotTracker tracker_{{}, clock_, metrics_};
  ServiceApi api_{{.metrics_prefix = "slots"}, clock_, metrics_};
};

constexpr const char* kRegister =
    R"({"worker_id":7,"model_name":"m","block_size":16,"dp_start":2,"dp_size":2})";

TEST_F(SlotTrackerTest, FollowsARequestFromItsPromptToItsEnd) {
  EXPECT_EQ(post("/register", kRegister).status, 201);
  EXPECT_EQ(post("/add", R"({"model_name":"m","request_id":"a","worker_id":7,"dp_rank":2,
                             "sequence_hashes":[1,2,-3],"new_isl_tokens":40})")
                .status,
            201);
  EXPECT_EQ(post("/add", R"({"model_name":"m","request_id":"b","worker_id":7,"dp_rank":2,
                             "sequence_hashes":[1,2,4,5],"new_isl_tokens":32})")
                .status,
            201);
  EXPECT_EQ(load().at("active_prefill_tokens"), 72);
  EXPECT_EQ(load().at("active_decode_blocks"), 5) << "two shared, one and two of their own";
  EXPECT_EQ(load().at("active_requests"), 2);
  const auto potential = post(
      "/potential_loads", R"({"model_name":"m","sequence_hashes":[1,2,-3,9],"new_isl_tokens":8})");
  EXPECT_EQ(potential.body.at(0).at("potential_decode_blocks"), 6);
  EXPECT_EQ(potential.body.at(0).at("potential_prefill_tokens"), 80);
  EXPECT_EQ(potential.body.at(1).at("potential_decode_blocks"), 4);

  EXPECT_EQ(post("/prefill_complete", R"({"model_name":"m","request_id":"a"})").status, 200);
  EXPECT_EQ(load().at("active_prefill_tokens"), 32);
  EXPECT_EQ(post("/free", R"({"model_name":"m","request_id":"b"})").status, 200);
  EXPECT_EQ(load().at("active_prefill_tokens"), 0);
  EXPECT_EQ(load().at("active_decode_blocks"), 3);
  EXPECT_EQ(post("/free", R"({"model_name":"m","request_id":"a"})").status, 200);
  EXPECT_EQ(load().at("active_decode_blocks"), 0);
}

TEST_F(SlotTrackerTest, SaysWhatItDoesNotKnowAndWhatIsTaken) {
  EXPECT_EQ(ask(api_, "GET", "/loads?model_name=m").text, "[]");
  EXPECT_EQ(post("/register", kRegister).status, 201);
  EXPECT_EQ(post("/register", kRegister).status, 409);
  EXPECT_EQ(post("/register", R"({"worker_id":8,"model_name":"m","block_size":32})").status, 409);
  EXPECT_EQ(post("/register", R"({"worker_id":7,"model_name":"m","block_size":16})").status, 409);
  EXPECT_EQ(post("/register", R"({"worker_id":9,"model_name":"m","block_size":0})").status, 400);
  constexpr const char* kAdd =
      R"({"model_name":"m","request_id":"a","worker_id":7,"dp_rank":3,"sequence_hashes":[]})";
  EXPECT_EQ(post("/add", kAdd).status, 201);
  EXPECT_EQ(post("/add", kAdd).status, 409);
  EXPECT_EQ(post("/add", R"({"model_name":"m","request_id":"b","worker_id":7,"dp_rank":1,
                             "sequence_hashes":[]})")
                .status,
            404);
  EXPECT_EQ(post("/prefill_complete", R"({"model_name":"m","request_id":"b"})").status, 404);
  EXPECT_EQ(post("/free", R"({"model_name":"m","request_id":"b"})").status, 200) << "idempotent";
  EXPECT_EQ(post("/free", R"({"model_name":"n","request_id":"a"})").status, 404);
  EXPECT_EQ(post("/unregister", R"({"worker_id":7,"model_name":"m"})").status, 200);
  EXPECT_EQ(post("/unregister", R"({"worker_id":7,"model_name":"m"})").status, 404);
  EXPECT_EQ(post("/free", R"({"model_name":"m","request_id":"a"})").status, 200);
  EXPECT_TRUE(ask(api_, "GET", "/workers").body.elements().empty());
}

TEST_F(SlotTrackerTest, IsBoundedInWorkersAndRanks) {
  const auto reg = [&](int id) {
    return post("/register", fmt::format(R"({{"worker_id":{},"model_name":"m","block_size":16,)"
                                         R"("dp_start":0,"dp_size":4096}})",
                                         id))
        .status;
  };
  for (int id = 0; id < 16; ++id) {
    EXPECT_EQ(reg(id), 201);
  }
  EXPECT_EQ(reg(16), 429);
  EXPECT_EQ(post("/unregister", R"({"worker_id":3,"model_name":"m"})").status, 200);
  EXPECT_EQ(reg(16), 201);
  EXPECT_EQ(post("/register", R"({"worker_id":99,"model_name":"m","block_size":16,
                                  "dp_start":4294967295,"dp_size":1})")
                .status,
            400);
}

TEST_F(SlotTrackerTest, ListsAreOfOneModelAndGroupOrOfAll) {
  EXPECT_EQ(post("/register", kRegister).status, 201);
  EXPECT_EQ(post("/register", R"({"worker_id":8,"model_name":"n","routing_group":"g",
                                  "block_size":4})")
                .status,
            201);
  for (const std::string_view what : {"/workers", "/loads"}) {
    const auto rows = [&](std::string_view query) {
      return ask(api_, "GET", std::string(what) + std::string(query)).body.elements();
    };
    EXPECT_EQ(rows("").size(), what == "/loads" ? 3U : 2U) << what;
    EXPECT_EQ(rows("?model_name=n").size(), 1U) << what;
    EXPECT_EQ(rows("?routing_group=g").at(0).at("worker_id"), 8) << what;
    EXPECT_TRUE(rows("?model_name=n&routing_group=default").empty()) << what;
  }
}

TEST_F(SlotTrackerTest, ARequestNobodyEndsIsFreedAfterFiveMinutes) {
  EXPECT_EQ(post("/register", kRegister).status, 201);
  EXPECT_EQ(post("/add", R"({"model_name":"m","request_id":"a","worker_id":7,"dp_rank":2,
                             "sequence_hashes":[1],"new_isl_tokens":16})")
                .status,
            201);
  clock_.advance(std::chrono::seconds(299));
  EXPECT_EQ(load().at("active_requests"), 1);
  clock_.advance(std::chrono::seconds(1));
  EXPECT_EQ(load().at("active_requests"), 0);
}

TEST(Reservations, AreBounded) {
  Reservations reservations({.requests_max = 1});
  EXPECT_TRUE(reservations.add("a", {}, TimePoint{}));
  EXPECT_EQ(reservations.add("b", {}, TimePoint{}).error().code(), Code::kOverloaded);
}

}  // namespace
}  // namespace stator::services
