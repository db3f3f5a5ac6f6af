// SPDX-License-Identifier: Apache-2.0
// What a fleet may do to a router, and what the router must make of it: nothing crashes, nothing is
// counted twice, requests are served, and every case shows in a metric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "stator/router/index/index_service.h"
#include "stator/router/router_service.h"

namespace stator::router {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class RouterFaults : public ::testing::Test {
 protected:
  RouterFaults() {
    for (uint64_t i = 0; i < 8; ++i) {
      locals_.emplace_back(mix64(i + 1));
      prompt_.push_back(prompt_.empty() ? blocks::chain(locals_.back())
                                        : blocks::chain(prompt_.back(), locals_.back()));
    }
  }
  kv::KvEvent stored(size_t count) const {
    kv::BlocksStored run;
    for (size_t i = 0; i < count; ++i) {
      run.blocks.push_back({blocks::ExternalHash(prompt_[i].value()), locals_[i]});
    }
    return {.event_id = 1, .data = std::move(run)};
  }
  RouteRequest request() const {
    return {.request_id = "r",
            .model = "m",
            .prompt_tokens = 130,
            .block_size = 16,
            .sequences = prompt_};
  }
  std::shared_ptr<RouterService> make(const RouterConfig& config = {.mode = "kv"}) {
    return *RouterService::create(config, "m", clock_, metrics_, receipts_);
  }

  SimClock clock_;
  Metrics metrics_;
  ReceiptLog receipts_;
  std::vector<blocks::LocalHash> locals_;
  std::vector<blocks::SequenceHash> prompt_;
};

TEST_F(RouterFaults, ABlocksHashMayBeAnyNumber) {
  const auto index = *ChainIndex::create({});
  constexpr WorkerKey kWorker{WorkerId(1), 0};
  for (const uint64_t hash : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}, uint64_t{1} << 63}) {
    const std::vector<blocks::SequenceHash> query{blocks::chain(blocks::LocalHash(hash))};
    const kv::StoredBlock block{blocks::ExternalHash(hash), blocks::LocalHash(hash)};
    const auto tell = [&](uint64_t id, kv::KvEventData data) {
      return index->apply(kWorker, {.event_id = id, .data = std::move(data)});
    };
    EXPECT_EQ(tell(1, kv::BlocksStored{.blocks = {block}}), Applied::kOk) << hash;
    EXPECT_EQ(index->find_longest_match(query).size(), 1U) << hash;
    EXPECT_EQ(tell(2, kv::BlocksRemoved{.blocks = {block.external}}), Applied::kOk) << hash;
    EXPECT_TRUE(index->find_longest_match(query).empty()) << hash;
  }
}

TEST_F(RouterFaults, TenThousandWorkersJoinAndLeaveWhileRequestsRun) {
  const auto service = make();
  std::vector<Decision> running;
  for (uint64_t wave = 0; wave < 100; ++wave) {
    for (uint64_t i = 0; i < 100; ++i) {
      const WorkerKey worker{WorkerId(1 + wave * 100 + i), 0};
      service->add_worker(worker, {.kv_events = i % 10 != 0});
      service->index().apply(worker, stored(1 + i % 8));
    }
    for (int i = 0; i < 2; ++i) {
      auto decision = service->route(request());
      ASSERT_TRUE(decision.has_value());
      running.push_back(std::move(*decision));
    }
    for (uint64_t i = 0; i < 100; ++i) {  // with requests on some of them
      service->remove_worker({WorkerId(1 + wave * 100 + i), 0});
    }
  }

  EXPECT_EQ(service->worker_count(), 0U);
  EXPECT_EQ(service->index().holder_blocks(), 0U);
  const auto refused = service->route(request());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kUnavailable);
  running.clear();
  EXPECT_EQ(service->active_requests(), 0);
  const std::string text = metrics_.render();
  EXPECT_THAT(text, Not(HasSubstr("worker_id="))) << "series go with their workers";
  EXPECT_THAT(text, HasSubstr("dynamo_component_router_worker_registered{model=\"m\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("stator_router_refusals_total{reason=\"no_workers\"} 1\n"));

  service->add_worker({WorkerId(7), 0});
  EXPECT_TRUE(service->route(request()).has_value());
}

TEST_F(RouterFaults, LoadThatIsNoNumberChangesNothing) {
  const auto service = make();
  service->add_worker({WorkerId(1), 0});
  service->add_worker({WorkerId(2), 0});
  auto decision = service->route(request());
  ASSERT_TRUE(decision.has_value());
  const auto load = [&](const char* name) {
    const std::string text = metrics_.render();
    const size_t at = text.find(std::string(name) + "{model=\"m\",worker_id=\"" +
                                to_string(decision->worker.worker));
    return std::stod(text.substr(text.find("} ", at) + 2));
  };
  EXPECT_EQ(load("dynamo_frontend_worker_active_decode_blocks"), 9);
  for (const double weight : {kNan, kInfinity, -kInfinity, -1.0, 1e300}) {
    decision->lease.add_output_block(weight);
    const double blocks = load("dynamo_frontend_worker_active_decode_blocks");
    EXPECT_GE(blocks, 0) << weight;
    EXPECT_LE(blocks, 14) << weight;
  }
  decision->lease.add_output_tokens(UINT32_MAX / 2);
  decision->lease.release();
  EXPECT_EQ(load("dynamo_frontend_worker_active_decode_blocks"), 0);
  EXPECT_EQ(load("dynamo_frontend_worker_active_prefill_tokens"), 0);
}

TEST_F(RouterFaults, WeightsThatAreNoNumbersDoNotHideAWorker) {
  const auto service = make();
  service->add_worker({WorkerId(1), 0}, {.total_kv_blocks = UINT32_MAX});
  service->add_worker({WorkerId(2), 0}, {.total_kv_blocks = 1});
  for (const double value : {kNan, kInfinity, -kInfinity}) {
    RouteRequest odd = request();
    odd.override.overlap_credit = value;
    odd.override.prefill_load_scale = value;
    const auto decision = service->route(odd);
    EXPECT_TRUE(decision.has_value()) << value;
  }
  service->set_reject_thresholds({.prefill_tokens = kNan, .kv_fraction = kNan});
  EXPECT_TRUE(service->route(request()).has_value()) << "a threshold that is none is off";
}

TEST_F(RouterFaults, EventsOutOfOrderTwiceAndOfNobodyNeverCountTooMuch) {
  const auto service = make();
  const WorkerKey worker{WorkerId(1), 0};
  service->index().apply(worker, stored(8));  // before anybody said that it is there
  service->add_worker(worker);
  kv::BlocksStored tail;
  tail.parent = blocks::ExternalHash(prompt_[3].value());
  tail.blocks = {{blocks::ExternalHash(prompt_[4].value()), locals_[4]}};
  service->index().apply(worker, {.event_id = 2, .data = tail});  // its parent was lost
  service->index().apply(worker, stored(2));
  service->index().apply(worker, stored(2));  // again
  service->index().apply(worker,
                         {.event_id = 3, .data = kv::BlocksRemoved{{blocks::ExternalHash(12345)}}});

  const auto decision = service->route(request());
  ASSERT_TRUE(decision.has_value());
  EXPECT_EQ(decision->overlap_blocks, 2U);
  EXPECT_EQ(receipts_.find("last")->candidates.at(0).trust, Trust::kDegraded);
  const std::string text = metrics_.render();
  for (const char* status : {"unknown_worker", "parent_block_not_found", "ok"}) {
    EXPECT_THAT(text, HasSubstr(std::string(R"(events_applied{event_type="stored",status=")") +
                                status + "\"}"));
  }
  EXPECT_THAT(text, HasSubstr(R"({event_type="removed",status="block_not_found"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(kv_cache_event_warnings{warning_kind="duplicate_store"} 2)"));
}

TEST_F(RouterFaults, AFloodOfEventsStaysWithinTheBudgetAndRequestsAreServed) {
  RouterConfig config{.mode = "kv"};
  config.index.bytes_max = 4 << 20;
  const auto service = make(config);
  const WorkerKey worker{WorkerId(1), 0};
  service->add_worker(worker);
  for (uint64_t chain = 0; chain < 20'000; ++chain) {
    kv::BlocksStored run;
    for (uint64_t i = 0; i < 16; ++i) {
      const uint64_t block = 1'000'000 + chain * 16 + i;
      run.blocks.push_back({blocks::ExternalHash(block), blocks::LocalHash(mix64(block))});
    }
    service->index().apply(worker, {.event_id = chain + 1, .data = std::move(run)});
  }

  EXPECT_LE(metrics_.gauge("stator_router_index_bytes", "").value(), 2.0 * (4 << 20));
  EXPECT_GT(metrics_.counter("stator_router_index_evicted_blocks_total", "").value(), 0U);
  EXPECT_TRUE(service->route(request()).has_value());
}

}  // namespace
}  // namespace stator::router
