// SPDX-License-Identifier: Apache-2.0
#include "stator/weights/pull.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "stator/core/assert.h"

namespace stator::weights {
namespace {

constexpr uint64_t kChunk = 4096;
constexpr uint64_t kArena = 40 * kChunk + 100;

/// A folder where offers are left, and the weights that all good sources have.
class PullTest : public testing::Test {
 protected:
  PullTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    place_ = *transfer::open_metadata_place("file://" + folder_);
    for (size_t i = 0; i < bytes_.size(); ++i) {
      bytes_[i] = static_cast<std::byte>(i * 13 + i / 251);
    }
    manifest_ = {
        .identity = {.model = "m", .dtype = "f32"},
        .pieces = {{.name = "w", .dtype = "f32", .shape = {1000}, .offset = 0, .bytes = 4000}},
        .chunk_bytes = kChunk,
        .chunk_crcs = {}};
    describe_chunks(manifest_, bytes_);
  }
  ~PullTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<PeerSource> node(const std::string& name, std::string backend = "tcp") {
    auto made = PeerSource::create({.name = name, .backends = {std::move(backend)}}, kArena, clock_,
                                   metrics_);
    STATOR_ASSERT(made, "a source is made");
    return std::move(*made);
  }
  std::unique_ptr<PeerSource> source(const std::string& name) {
    auto made = node(name);
    std::ranges::copy(bytes_, made->arena().begin());
    STATOR_ASSERT(made->publish(*place_, manifest_), "it is offered");
    return made;
  }
  std::vector<Offer> offers() {
    return *find_offers(*place_, manifest_.identity.id(), 0, "", clock_);
  }
  Result<Pulled> pull_into(PeerSource& target, const PullOptions& options = {}) {
    return pull(target.agent(), target.arena(), manifest_, offers(), options);
  }
  bool whole(PeerSource& target) { return std::ranges::equal(target.arena(), bytes_); }

  const std::string folder_ =
      testing::TempDir() + "/stator_pull_test_" + std::to_string(::getpid());
  SystemClock clock_;
  Metrics metrics_;
  std::unique_ptr<transfer::MetadataPlace> place_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kArena);
  Manifest manifest_;
};

TEST_F(PullTest, AChainOfThreeTargetsHasTheSameBytes) {
  auto first = source("s0");
  std::vector<std::unique_ptr<PeerSource>> chain;
  for (const char* name : {"t1", "t2", "t3"}) {
    chain.push_back(node(name));
    const auto pulled = pull_into(*chain.back());
    ASSERT_TRUE(pulled) << pulled.error().to_string();
    EXPECT_TRUE(whole(*chain.back()));
    EXPECT_EQ(pulled->bytes, kArena);
    ASSERT_TRUE(chain.back()->publish(*place_, pulled->manifest));
    if (first != nullptr) {
      first.reset();  // from now on only targets give
    } else {
      chain[chain.size() - 2].reset();
    }
    EXPECT_EQ(offers().size(), 1U);
  }
}

TEST_F(PullTest, AnotherManifestIsAnotherSource) {
  auto other = node("other");
  Manifest wrong = manifest_;
  wrong.pieces[0].shape = {500, 2};
  ASSERT_TRUE(other->publish(*place_, wrong));
  auto target = node("target");
  const auto refused = pull_into(*target);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("'w'"), std::string::npos);

  auto good = source("good");
  const auto pulled = pull_into(*target);
  ASSERT_TRUE(pulled) << pulled.error().to_string();
  EXPECT_EQ(pulled->sources, std::vector<std::string>{"good"});
  EXPECT_TRUE(whole(*target));
}

TEST_F(PullTest, ASourceThatDiesUnderWayIsFollowedByAnother) {
  std::vector<std::unique_ptr<PeerSource>> sources;
  sources.push_back(source("a"));
  sources.push_back(source("b"));
  auto target = node("target");
  const std::string first = rendezvous(offers(), "target").front().worker;
  const auto dies =
      std::ranges::find(sources, first, [](const auto& one) { return one->agent().name(); });
  PullOptions options;
  options.chunks_max = 2;
  options.progress = [&](uint64_t bytes) {
    if (bytes == 8 * kChunk) {
      dies->reset();  // its agent closes; its offer is taken back
    }
  };
  const auto pulled = pull_into(*target, options);
  ASSERT_TRUE(pulled) << pulled.error().to_string();
  EXPECT_EQ(pulled->sources.size(), 2U);
  EXPECT_EQ(pulled->sources.front(), first);
  EXPECT_TRUE(whole(*target));
}

TEST_F(PullTest, ADamagedChunkIsReadAgainAndThenElsewhere) {
  auto bad = source("bad");
  bad->arena()[5 * kChunk + 17] ^= std::byte{1};  // for good
  auto target = node("target");
  const auto refused = pull_into(*target);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("chunk 5"), std::string::npos);

  auto good = source("good");
  const auto pulled = pull_into(*target);
  ASSERT_TRUE(pulled) << pulled.error().to_string();
  EXPECT_TRUE(whole(*target));
  EXPECT_EQ(pulled->sources.back(), "good");

  bad->arena()[5 * kChunk + 17] ^= std::byte{1};
  bad->arena()[6 * kChunk] ^= std::byte{1};  // until it is looked at
  good.reset();
  PullOptions options;
  options.progress = [&](uint64_t) { bad->arena()[6 * kChunk] = bytes_[6 * kChunk]; };
  auto again = node("again");
  const auto healed = pull_into(*again, options);
  ASSERT_TRUE(healed) << healed.error().to_string();
  EXPECT_TRUE(whole(*again));
}

TEST_F(PullTest, StaleAndForeignOffersAreNotFound) {
  EXPECT_EQ(offers().size(), 0U);
  auto one = source("one");
  EXPECT_EQ(offers().size(), 1U);
  EXPECT_EQ(find_offers(*place_, manifest_.identity.id(), 1, "", clock_)->size(), 0U);
  EXPECT_EQ(find_offers(*place_, manifest_.identity.id(), 0, "cuda", clock_)->size(), 0U);
  EXPECT_EQ(find_offers(*place_, "0000000000000000", 0, "", clock_)->size(), 0U);
  Offer old = offers().front();
  old.unix_ms -= 91'000;
  ASSERT_TRUE(place_->put(offer_name(old.source_id, old.worker), encode(old)));
  EXPECT_EQ(offers().size(), 0U);
  ASSERT_TRUE(one->renew());
  EXPECT_EQ(offers().size(), 1U);
  ASSERT_TRUE(place_->put(offer_name(old.source_id, "junk"), "{}"));
  EXPECT_EQ(offers().size(), 1U);
}

TEST_F(PullTest, NoMoreSourcesThanAskedForAreTried) {
  std::vector<std::unique_ptr<PeerSource>> sources;
  for (int i = 0; i < 4; ++i) {
    sources.push_back(node("bad" + std::to_string(i)));
    ASSERT_TRUE(sources.back()->publish(*place_, manifest_));  // whose bytes are zeros
  }
  auto target = node("target");
  const auto refused = pull_into(*target, {.sources_max = 2, .progress = {}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kNotFound);
}

TEST(Rendezvous, SpreadsTargetsOverSources) {
  std::vector<Offer> offers(4);
  for (size_t i = 0; i < offers.size(); ++i) {
    offers[i].worker = "s" + std::to_string(i);
  }
  std::map<std::string, int> firsts;
  for (int i = 0; i < 400; ++i) {
    const std::string target = "t" + std::to_string(i);
    ++firsts[rendezvous(offers, target).front().worker];
    EXPECT_EQ(rendezvous(offers, target), rendezvous(offers, target));
  }
  for (const auto& [worker, count] : firsts) {
    EXPECT_GT(count, 50) << worker;
  }
  EXPECT_EQ(firsts.size(), 4U);
}

}  // namespace
}  // namespace stator::weights
