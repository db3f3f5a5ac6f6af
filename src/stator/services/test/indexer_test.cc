// SPDX-License-Identifier: Apache-2.0
#include "stator/services/indexer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/services/indexer_api.h"
#include "stator/services/test/service_fixture.h"

namespace stator::services {
namespace {

using ::testing::HasSubstr;

constexpr const char* kRegister =
    R"({"instance_id":7,"endpoint":"tcp://127.0.0.1:5557","model_name":"m","block_size":4})";

class IndexerTest : public ::testing::Test {
 protected:
  IndexerTest() { add_indexer_endpoints(api_, indexer_, peers_); }
  Answered post(std::string_view path, std::string_view body) {
    return ask(api_, "POST", path, body);
  }
  FakeFeeds feeds_;
  SimClock clock_;
  Metrics metrics_;
  Indexer indexer_{{}, feeds_, clock_, metrics_};
  PeerList peers_;
  ServiceApi api_{{.metrics_prefix = "dynamo_kvindexer"}, clock_, metrics_};
};

TEST_F(IndexerTest, AnswersWithTheTokensEachInstanceHolds) {
  EXPECT_EQ(post("/query", R"({"token_ids":[1],"model_name":"m"})").status, 404);
  EXPECT_EQ(post("/register", kRegister).status, 201);
  EXPECT_EQ(post("/register", R"({"instance_id":7,"dp_rank":1,"endpoint":"tcp://127.0.0.1:5558",
                                  "model_name":"m","block_size":4})")
                .status,
            201);
  feeds_.delivers["tcp://127.0.0.1:5557"]({stored(2), stored(3, kv::StorageTier::kHostPinned, 2),
                                           stored(4, kv::StorageTier::kDisk, 3)});
  feeds_.delivers["tcp://127.0.0.1:5558"]({stored(1)});

  const auto scores = post("/query", R"({"token_ids":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16],
                                         "model_name":"m"})");
  EXPECT_EQ(scores.status, 200);
  EXPECT_EQ(scores.text,
            R"({"scores":{"7":{"0":8,"1":4}},"frequencies":[],"instances":{"7":)"
            R"({"longest_matched":16,"gpu":8,"dp":{"0":8,"1":4},"cpu":12,"disk":16}}})");
  // The first block of 4 tokens, signed: 9143094415614847814.
  EXPECT_EQ(post("/query_by_hash", R"({"block_hashes":[9143094415614847814],"model_name":"m"})")
                .body.at("scores")
                .at("7")
                .at("0"),
            4);
  EXPECT_EQ(
      post("/query_by_hash", R"({"block_hashes":[1],"cache_salt":"x","model_name":"m"})").status,
      400);
  EXPECT_EQ(post("/query", R"({"token_ids":[0,1,2,3],"model_name":"m","cache_salt":"x"})").text,
            R"({"scores":{},"frequencies":[],"instances":{}})");
}

TEST_F(IndexerTest, RegistrationsAreCheckedListedAndEnded) {
  EXPECT_EQ(post("/register", kRegister).status, 201);
  EXPECT_EQ(post("/register", kRegister).status, 409);
  for (const char* bad :
       {R"({"instance_id":8,"endpoint":"127.0.0.1:5557","model_name":"m","block_size":4})",
        R"({"instance_id":8,"endpoint":"tcp://x:99999","model_name":"m","block_size":4})",
        R"({"instance_id":8,"endpoint":"tcp://x:1","model_name":"m","block_size":0})",
        R"({"instance_id":-8,"endpoint":"tcp://x:1","model_name":"m","block_size":4})",
        R"({"instance_id":8,"endpoint":"tcp://x:1","block_size":4})"}) {
    EXPECT_EQ(post("/register", bad).status, 400) << bad;
  }
  EXPECT_EQ(post("/register",
                 R"({"instance_id":8,"endpoint":"tcp://x:1","model_name":"m","block_size":8})")
                .status,
            409);
  const auto listed = ask(api_, "GET", "/workers?model_name=m&routing_group=default");
  EXPECT_EQ(listed.body.elements().size(), 1U);
  EXPECT_EQ(listed.body.at(0).at("endpoints").at("0"), "tcp://127.0.0.1:5557");
  EXPECT_EQ(listed.body.at(0).at("listeners").at("0").at("status"), "active");
  EXPECT_TRUE(ask(api_, "GET", "/workers?model_name=other").body.elements().empty());

  feeds_.delivers["tcp://127.0.0.1:5557"]({stored(2)});
  EXPECT_EQ(post("/unregister", R"({"instance_id":7,"model_name":"m"})").status, 200);
  EXPECT_EQ(post("/unregister", R"({"instance_id":7,"model_name":"m"})").status, 404);
  EXPECT_TRUE(feeds_.delivers.empty());
  EXPECT_EQ(post("/query", R"({"token_ids":[0,1,2,3],"model_name":"m"})").text,
            R"({"scores":{},"frequencies":[],"instances":{}})");
}

TEST_F(IndexerTest, ADumpRestoresTheScoresElsewhere) {
  EXPECT_EQ(post("/register", kRegister).status, 201);
  feeds_.delivers["tcp://127.0.0.1:5557"]({stored(3), stored(5, kv::StorageTier::kDevice, 2)});
  const auto dump = ask(api_, "GET", "/dump");
  EXPECT_EQ(dump.body.at("m:default").at("block_size"), 4);

  Metrics metrics;
  Indexer other({}, feeds_, clock_, metrics);
  EXPECT_TRUE(apply_dump(other, dump.text).has_value());
  std::vector<TokenId> tokens(20);
  for (uint32_t i = 0; i < 20; ++i) {
    tokens[i] = i;
  }
  std::vector<blocks::SequenceHash> sequences;
  blocks::extend_sequences(tokens, 4, blocks::hash_seed("", ""), sequences);
  EXPECT_EQ(*other.find({"m"}, sequences), *indexer_.find({"m"}, sequences));
  EXPECT_EQ(other.find({"m"}, sequences)->at(0).blocks, 5U);

  // The worker itself takes over from the dump.
  EXPECT_TRUE(other.follow(
      {"m"}, {.worker = {WorkerId(7), 0}, .endpoint = "tcp://127.0.0.1:6000", .block_size = 4}));
  feeds_.delivers["tcp://127.0.0.1:6000"]({{.data = kv::AllCleared{}}});
  EXPECT_TRUE(other.find({"m"}, sequences)->empty());
  for (const char* bad : {"{", R"({"m":{}})", R"({"m:g":{"block_size":4,"events":[1]}})"}) {
    EXPECT_FALSE(apply_dump(other, bad).has_value()) << bad;
  }
}

TEST_F(IndexerTest, WhatFeedsSayWhileADumpIsFetchedComesAfterIt) {
  indexer_.hold();
  EXPECT_EQ(post("/register", kRegister).status, 201);
  const auto whole = stored(3);
  const auto third = std::get<kv::BlocksStored>(whole.data).blocks[2].external;
  feeds_.delivers["tcp://127.0.0.1:5557"]({{.data = kv::BlocksRemoved{{third}}}});
  EXPECT_TRUE(indexer_.apply({"m"}, 4, {{WorkerId(7), 0}, whole}));
  indexer_.release();
  EXPECT_EQ(post("/query", R"({"token_ids":[0,1,2,3,4,5,6,7,8,9,10,11],"model_name":"m"})")
                .body.at("scores")
                .at("7")
                .at("0"),
            8);
}

TEST_F(IndexerTest, EventsMayBePosted) {
  EXPECT_EQ(post("/register", kRegister).status, 201);
  const auto posted = post("/events", R"({"model_name":"m","events":[{"worker_id":7,"event":
      {"event_id":1,"dp_rank":0,"data":{"stored":{"parent_hash":null,"blocks":
      [{"block_hash":5,"tokens_hash":9143094415614847814}]}}}}]})");
  EXPECT_EQ(posted.status, 200) << posted.text;
  EXPECT_EQ(post("/query", R"({"token_ids":[0,1,2,3],"model_name":"m"})")
                .body.at("scores")
                .at("7")
                .at("0"),
            4);
  EXPECT_EQ(post("/events", R"({"model_name":"m","events":[{}]})").status, 400);
}

TEST_F(IndexerTest, PeersAreAList) {
  EXPECT_EQ(post("/register_peer", R"({"url":"http://a:8090"})").status, 201);
  EXPECT_EQ(post("/register_peer", R"({"url":"http://a:8090"})").status, 201);
  EXPECT_EQ(post("/register_peer", R"({"url":"a:8090"})").status, 400);
  EXPECT_EQ(ask(api_, "GET", "/peers").text, R"(["http://a:8090"])");
  EXPECT_EQ(post("/deregister_peer", R"({"url":"http://a:8090"})").status, 200);
  EXPECT_EQ(post("/deregister_peer", R"({"url":"http://a:8090"})").status, 404);
  EXPECT_EQ(post("/reopen_logs", "").status, 200);
}

TEST_F(IndexerTest, NobodyMakesUsTalkToAMetadataService) {
  for (const char* url :
       {"http://169.254.169.254/latest", "http://169.254.169.254", "https://u@0xA9FEA9FE:80/",
        "http://[fe80::1]:80", "http://[fe80::1%25eth0]/"}) {
    EXPECT_EQ(peers_.add(url).error().code(), Code::kInvalidArgument) << url;
  }
  for (const char* url : {"gopher://10.0.0.1", "file:///etc/passwd", "ftp://x"}) {
    EXPECT_EQ(peers_.add(url).error().code(), Code::kInvalidArgument) << url;
  }
  for (const char* endpoint :
       {"tcp://169.254.169.254:80", "tcp://2852039166:80", "tcp://[fe80::1]:80"}) {
    EXPECT_FALSE(check_endpoint(endpoint)) << endpoint;
  }
  for (const char* endpoint :
       {"tcp://10.0.0.7:5557", "tcp://[fd00::1]:5557", "tcp://engine-7:5557", "ipc:///run/x"}) {
    EXPECT_TRUE(check_endpoint(endpoint)) << endpoint;
  }
}

TEST_F(IndexerTest, BlocksHaveTokens) {
  const auto event = R"({"worker_id":1,"event":{"event_id":1,"data":"cleared"}})";
  const auto dump = fmt::format(R"({{"m:default":{{"block_size":0,"events":[{}]}}}})", event);
  EXPECT_EQ(apply_dump(indexer_, dump).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(
      post("/events", fmt::format(R"({{"model_name":"m","block_size":0,"events":[{}]}})", event))
          .status,
      400);
  EXPECT_TRUE(indexer_.partitions().empty());
}

TEST_F(IndexerTest, AWorkerNobodyCanListenToIsNotThere) {
  Indexer indexer({.workers_max = 1}, feeds_, clock_, metrics_);
  feeds_.refused = "tcp://a:1";
  const FeedSpec spec{.worker = {WorkerId(1), 0}, .endpoint = "tcp://a:1", .block_size = 4};
  EXPECT_EQ(indexer.follow({"m"}, spec).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(indexer.listeners().empty());
  const FeedSpec other{.worker = {WorkerId(2), 0}, .endpoint = "tcp://a:2", .block_size = 4};
  EXPECT_TRUE(indexer.follow({"m"}, other)) << "it takes nobody's place";
}

TEST_F(IndexerTest, IsBoundedInWorkersAndPartitions) {
  Indexer small({.partitions_max = 1, .workers_max = 1}, feeds_, clock_, metrics_);
  const FeedSpec spec{.worker = {WorkerId(1), 0}, .endpoint = "tcp://a:1", .block_size = 4};
  EXPECT_TRUE(small.follow({"m"}, spec));
  EXPECT_EQ(small.follow({"n"}, spec).error().code(), Code::kOverloaded);
  const FeedSpec second{.worker = {WorkerId(2), 0}, .endpoint = "tcp://a:2", .block_size = 4};
  EXPECT_EQ(small.follow({"m"}, second).error().code(), Code::kOverloaded);
}

}  // namespace
}  // namespace stator::services
