// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>

#include "stator/core/random.h"
#include "stator/engine/core/engine_service.h"
#include "stator/engine/handoff/messages.h"
#include "stator/engine/handoff/port.h"
#include "stator/engine/handoff/test/byte_runner.h"

namespace stator::engine {
namespace {

using handoff::Message;
using handoff::Port;

constexpr uint32_t kBlocks = 96;

/// An engine with or without a role, and one session with it.
struct Node {
  Node(inference::WorkerRole role, std::string name_in, Duration lease = std::chrono::seconds(30),
       uint64_t staging = 1 << 20, uint8_t space = 1)
      : name(std::move(name_in)) {
    if (role != inference::WorkerRole::kAggregated) {
      auto opened = Port::open({.role = role,
                                .engine_kind = "bytes",
                                .engine_name = name,
                                .space = {std::byte{space}},
                                .block_tokens = ByteRunner::kBlock,
                                .block_bytes = ByteRunner::kBytes,
                                .staging_bytes = staging,
                                .lease = lease},
                               clock, metrics);
      port = std::move(*opened);
    }
    std::vector<std::unique_ptr<ModelRunner>> runners;
    runners.push_back(std::make_unique<ByteRunner>(kBlocks, kBlocks));
    engine = std::move(*make_engine({.kind = "bytes",
                                     .name = name,
                                     .block_size = ByteRunner::kBlock,
                                     .total_blocks = kBlocks,
                                     .host_blocks = kBlocks,
                                     .max_num_seqs = 8,
                                     .max_num_batched_tokens = 16},
                                    std::move(runners), clock, metrics, {}, {.port = port}));
    STATOR_ASSERT(engine->start(), "a test's engine starts");
    session = engine->open_session(sink);
  }
  ~Node() {
    if (engine != nullptr) {
      engine->stop();
    }
  }

  Status submit(uint64_t id, std::vector<TokenId> tokens,
                inference::Phase phase = inference::Phase::kWhole,
                inference::Handoff handoff = {}) {
    inference::EngineRequest request{.key = key(id), .tokens = std::move(tokens)};
    request.stop.max_tokens = phase == inference::Phase::kPrefill ? 1 : 6;
    request.stop.ignore_eos = true;
    request.phase = phase;
    request.handoff = std::move(handoff);
    return engine->submit(session, std::move(request));
  }
  static inference::RequestKey key(uint64_t id) {
    return {.request = RequestId(id), .attempt = Attempt()};
  }
  uint64_t count(std::string_view metric, MetricLabels more) {
    more.insert(more.begin(), {"engine", name});
    return metrics.counter(metric, "", more).value();
  }

  std::string name;
  SystemClock clock;
  Metrics metrics;
  KeepingSink sink;
  std::shared_ptr<Port> port;
  std::unique_ptr<Engine> engine;
  SessionId session;
};

std::vector<TokenId> prompt(uint64_t seed, size_t length) {
  Random random(seed);
  std::vector<TokenId> tokens(length);
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(random.next() % 1000);
  }
  return tokens;
}

/// What one engine alone says.
std::vector<TokenId> alone(const std::vector<TokenId>& tokens) {
  Node node(inference::WorkerRole::kAggregated, "alone");
  STATOR_ASSERT(node.submit(1, tokens), "accepted");
  return node.sink.wait_for_end(Node::key(1)).tokens;
}

/// Asks `giver` for the prompt and waits for its offer, or for the whole prompt.
inference::Handoff offered(Node& giver, uint64_t id, const std::vector<TokenId>& tokens,
                           bool computed) {
  STATOR_ASSERT(giver.submit(id, tokens, inference::Phase::kPrefill,
                             {.id = id, .kind = giver.port->ability().kind}),
                "accepted");
  return giver.sink
      .wait_for(
          Node::key(id),
          [&](const auto& heard) { return !heard.offers.empty() && (heard.ended || !computed); })
      .offers.front();
}

TEST(Handoff, TokensAreThoseOfOneEngineAndTheBlocksComeFromTheOther) {
  Node giver(inference::WorkerRole::kPrefill, "p");
  Node taker(inference::WorkerRole::kDecode, "d");
  for (const size_t length : {1, 4, 5, 33, 64, 200}) {
    const auto tokens = prompt(length, length);

    ASSERT_TRUE(taker.submit(length, tokens, inference::Phase::kDecode,
                             offered(giver, length, tokens, false)));
    const auto heard = taker.sink.wait_for_end(Node::key(length));

    EXPECT_EQ(heard.tokens, alone(tokens));
    EXPECT_EQ(heard.cached_tokens, (length - 1) / ByteRunner::kBlock * ByteRunner::kBlock);
  }
  EXPECT_EQ(taker.count("stator_engine_handoffs_taken_total", {{"outcome", "whole"}}), 4);
  EXPECT_EQ(taker.count("stator_engine_handoffs_taken_total", {{"outcome", "needless"}}), 2);
  EXPECT_EQ(taker.count("stator_engine_handoff_bytes_total", {{"side", "take"}}),
            (1 + 8 + 15 + 49) * ByteRunner::kBytes);
}

TEST(Handoff, ASecondTakerIsRefusedAndComputesItself) {
  Node giver(inference::WorkerRole::kPrefill, "p");
  Node first(inference::WorkerRole::kDecode, "d1");
  Node second(inference::WorkerRole::kDecode, "d2");
  const auto tokens = prompt(7, 40);
  const inference::Handoff handoff = offered(giver, 1, tokens, true);

  ASSERT_TRUE(first.submit(1, tokens, inference::Phase::kDecode, handoff));
  EXPECT_EQ(first.sink.wait_for_end(Node::key(1)).tokens, alone(tokens));
  ASSERT_TRUE(second.submit(1, tokens, inference::Phase::kDecode, handoff));
  const auto heard = second.sink.wait_for_end(Node::key(1));

  EXPECT_EQ(heard.tokens, alone(tokens));
  EXPECT_EQ(heard.cached_tokens, 0);
  EXPECT_EQ(giver.count("stator_engine_handoffs_refused_total", {{"reason", "second"}}), 1);
  EXPECT_EQ(second.count("stator_engine_handoff_fallbacks_total", {{"reason", "second"}}), 1);
}

TEST(Handoff, ATakerThatComesAfterTheLeaseIsRefused) {
  Node giver(inference::WorkerRole::kPrefill, "p", std::chrono::milliseconds(1));
  Node taker(inference::WorkerRole::kDecode, "d");
  const auto tokens = prompt(7, 40);
  const inference::Handoff handoff = offered(giver, 1, tokens, true);
  while (giver.port->owed() > 0) {
    giver.sink.wait_for(Node::key(1), [](const auto&) { return true; });
  }

  ASSERT_TRUE(taker.submit(1, tokens, inference::Phase::kDecode, handoff));

  EXPECT_EQ(taker.sink.wait_for_end(Node::key(1)).tokens, alone(tokens));
  EXPECT_EQ(giver.count("stator_engine_handoffs_refused_total", {{"reason", "late"}}), 1);
  EXPECT_EQ(taker.count("stator_engine_handoff_fallbacks_total", {{"reason", "late"}}), 1);
}

TEST(Handoff, WhatWasMeantForAnotherLifeOrIsForgedIsRefused) {
  Node giver(inference::WorkerRole::kPrefill, "p");
  Node taker(inference::WorkerRole::kDecode, "d");
  const auto tokens = prompt(9, 40);
  inference::Handoff handoff = offered(giver, 1, tokens, true);
  auto invitation = *handoff::decode_invitation(handoff.payload);

  ++invitation.epoch;
  handoff.payload = encode(invitation);
  ASSERT_TRUE(taker.submit(1, tokens, inference::Phase::kDecode, handoff));
  EXPECT_EQ(taker.sink.wait_for_end(Node::key(1)).tokens, alone(tokens));
  EXPECT_EQ(giver.count("stator_engine_handoffs_refused_total", {{"reason", "epoch"}}), 1);

  --invitation.epoch;
  invitation.token[3] ^= std::byte{1};
  handoff.payload = encode(invitation);
  const auto others = prompt(10, 40);
  ASSERT_TRUE(taker.submit(2, others, inference::Phase::kDecode, handoff));
  EXPECT_EQ(taker.sink.wait_for_end(Node::key(2)).tokens, alone(others));
  EXPECT_EQ(giver.count("stator_engine_handoffs_refused_total", {{"reason", "foreign"}}), 1);
}

TEST(Handoff, ThePromptOfOthersIsNotTakenForThisOne) {
  Node giver(inference::WorkerRole::kPrefill, "p");
  Node taker(inference::WorkerRole::kDecode, "d");
  const auto tokens = prompt(11, 40);

  ASSERT_TRUE(
      taker.submit(1, tokens, inference::Phase::kDecode, offered(giver, 1, prompt(12, 40), true)));

  EXPECT_EQ(taker.sink.wait_for_end(Node::key(1)).tokens, alone(tokens));
  EXPECT_EQ(taker.count("stator_engine_handoff_integrity_errors_total", {}), 1);
}

TEST(Handoff, StagingMemoryThatIsFullGivesAPart) {
  Node giver(inference::WorkerRole::kPrefill, "p", std::chrono::seconds(30), 4096);
  Node taker(inference::WorkerRole::kDecode, "d");
  const auto small = 4096 / ByteRunner::kBytes;
  // Prompts nobody fetches fill it.
  for (uint64_t id = 1; id <= small / 60 + 1; ++id) {
    offered(giver, id, prompt(id, 241), true);
  }
  const auto tokens = prompt(99, 241);

  ASSERT_TRUE(
      taker.submit(99, tokens, inference::Phase::kDecode, offered(giver, 99, tokens, true)));
  const auto heard = taker.sink.wait_for_end(Node::key(99));

  EXPECT_EQ(heard.tokens, alone(tokens));
  EXPECT_LT(heard.cached_tokens, 240);
  EXPECT_GE(giver.count("stator_engine_handoff_staging_full_total", {}), 1);
}

TEST(Handoff, AGiverThatIsGoneCostsComputing) {
  auto giver = std::make_unique<Node>(inference::WorkerRole::kPrefill, "p");
  Node taker(inference::WorkerRole::kDecode, "d");
  const auto tokens = prompt(13, 100);
  const inference::Handoff handoff = offered(*giver, 1, tokens, true);
  giver.reset();

  ASSERT_TRUE(taker.submit(1, tokens, inference::Phase::kDecode, handoff));

  EXPECT_EQ(taker.sink.wait_for_end(Node::key(1)).tokens, alone(tokens));
  EXPECT_EQ(taker.count("stator_engine_handoff_fallbacks_total", {{"reason", "lost"}}), 1);
}

TEST(Handoff, EnginesOfOtherRolesAndNamespacesRefuse) {
  Node giver(inference::WorkerRole::kPrefill, "p");
  Node foreign(inference::WorkerRole::kDecode, "d", std::chrono::seconds(30), 1 << 20, 2);
  Node whole(inference::WorkerRole::kAggregated, "a");
  const auto tokens = prompt(14, 20);
  const inference::Handoff handoff = offered(giver, 1, tokens, true);

  EXPECT_EQ(foreign.submit(1, tokens, inference::Phase::kDecode, handoff).error().code(),
            Code::kUnsupported);
  EXPECT_EQ(whole.submit(1, tokens, inference::Phase::kDecode, handoff).error().code(),
            Code::kUnsupported);
  EXPECT_EQ(giver.submit(2, tokens, inference::Phase::kDecode, handoff).error().code(),
            Code::kUnsupported);
}

TEST(Handoff, MessagesReadBackAsWritten) {
  std::vector<Message> all;
  all.push_back({.kind = Message::Kind::kClaim,
                 .id = 1,
                 .epoch = 2,
                 .token = {std::byte{3}},
                 .space = {std::byte{4}},
                 .text = "metadata"});
  all.push_back({.kind = Message::Kind::kGranted, .id = 5});
  all.push_back({.kind = Message::Kind::kRefused, .id = 6, .verdict = handoff::Verdict::kLate});
  all.push_back({.kind = Message::Kind::kReady,
                 .id = 7,
                 .base = 8,
                 .first = 9,
                 .ready = {{.slot = 10, .crc = 11, .check = {std::byte{12}}}, {}}});
  all.push_back({.kind = Message::Kind::kAlive, .id = 13});
  all.push_back({.kind = Message::Kind::kEnd,
                 .id = 14,
                 .first = 15,
                 .verdict = handoff::Verdict::kCancelled});
  all.push_back({.kind = Message::Kind::kFetched, .id = 16, .first = 17});
  for (const Message& message : all) {
    const std::string bytes = encode(message);

    const auto read = handoff::decode_message(bytes);

    ASSERT_TRUE(read);
    EXPECT_EQ(*read, message);
    EXPECT_FALSE(handoff::decode_message(bytes + "x"));
    EXPECT_FALSE(handoff::decode_message(std::string_view(bytes).substr(0, bytes.size() - 1)));
  }
}

}  // namespace
}  // namespace stator::engine
