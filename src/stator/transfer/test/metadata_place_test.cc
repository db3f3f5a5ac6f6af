// SPDX-License-Identifier: Apache-2.0
#include "stator/transfer/metadata_place.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "stator/core/assert.h"

namespace stator::transfer {
namespace {

struct Node {
  explicit Node(std::string name) : agent(std::move(name), {}, clock, metrics) {
    STATOR_ASSERT(agent.create_backend("tcp", {}) == Outcome::kSuccess, "tcp starts");
    memory = agent.allocate(8192);
    first = {.addr = reinterpret_cast<uint64_t>(memory.data()), .len = 4096};
    second = {.addr = first.addr + 4096, .len = 4096};
    STATOR_ASSERT(agent.register_mem(MemType::kDram, {{first, second}}) == Outcome::kSuccess, "");
  }
  bool reaches(std::string_view peer, const Desc& range) {
    ListId list = 0;
    return agent.prep_list(peer, MemType::kDram, {&range, 1}, list) == Outcome::kSuccess;
  }
  SystemClock clock;
  Metrics metrics;
  Agent agent;
  std::span<std::byte> memory;
  Desc first;
  Desc second;
};

TEST(PartialMetadata, AddsToWhatIsKnown) {
  Node a("a");
  Node b("b");
  std::string blob;
  std::string peer;
  ASSERT_EQ(b.agent.local_partial_md(MemType::kDram, {&b.first, 1}, true, blob), Outcome::kSuccess);
  ASSERT_EQ(a.agent.load_remote_md(blob, peer), Outcome::kSuccess);
  EXPECT_EQ(peer, "b");
  EXPECT_TRUE(a.reaches("b", b.first));
  EXPECT_FALSE(a.reaches("b", b.second));

  ASSERT_EQ(b.agent.local_partial_md(MemType::kDram, {&b.second, 1}, false, blob),
            Outcome::kSuccess);
  ASSERT_EQ(a.agent.load_remote_md(blob, peer), Outcome::kSuccess);
  EXPECT_TRUE(a.reaches("b", b.first));
  EXPECT_TRUE(a.reaches("b", b.second));
}

TEST(PartialMetadata, OfAnotherLifeTakesThePlaceOfTheOld) {
  Node a("a");
  std::string peer;
  Desc old;
  {
    Node b("b");
    old = b.first;
    ASSERT_EQ(a.agent.load_remote_md(b.agent.local_md(), peer), Outcome::kSuccess);
  }
  Node b("b");
  std::string blob;
  const Desc known{.addr = b.second.addr, .len = b.second.len};
  ASSERT_EQ(b.agent.local_partial_md(MemType::kDram, {&known, 1}, true, blob), Outcome::kSuccess);
  ASSERT_EQ(a.agent.load_remote_md(blob, peer), Outcome::kSuccess);
  EXPECT_TRUE(a.reaches("b", b.second));
  EXPECT_FALSE(a.reaches("b", {.addr = b.first.addr, .len = 4096}));
}

TEST(PartialMetadata, OfWhatIsNotRegisteredIsRefused) {
  Node a("a");
  std::string blob;
  const Desc other{.addr = a.first.addr, .len = 100};
  EXPECT_EQ(a.agent.local_partial_md(MemType::kDram, {&other, 1}, true, blob), Outcome::kNotFound);
  EXPECT_EQ(a.agent.local_partial_md(MemType::kDram, {}, true, blob), Outcome::kSuccess);
}

TEST(MetadataPlace, AFolderKeepsIt) {
  const std::string folder =
      testing::TempDir() + "/stator_metadata_place_" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  auto place = open_metadata_place("file://" + folder);
  ASSERT_TRUE(place);
  Node a("a");
  Node b("b");
  EXPECT_EQ((*place)->get("b").error().code(), Code::kNotFound);
  ASSERT_TRUE((*place)->put("b", b.agent.local_md()));
  std::string peer;
  ASSERT_TRUE((*place)->put("c", "other"));
  EXPECT_EQ(*(*place)->list(""), (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(*(*place)->list("c"), std::vector<std::string>{"c"});
  ASSERT_EQ(a.agent.load_remote_md(*(*place)->get("b"), peer), Outcome::kSuccess);
  EXPECT_TRUE(a.agent.knows("b"));
  ASSERT_TRUE((*place)->erase("b"));
  EXPECT_TRUE((*place)->erase("b"));
  EXPECT_EQ((*place)->get("b").error().code(), Code::kNotFound);
  EXPECT_EQ((*place)->get("../b").error().code(), Code::kInvalidArgument);
  std::filesystem::remove_all(folder);
}

TEST(MetadataListener, GivesItsOwnAndLoadsWhatIsSent) {
  Node a("a");
  Node b("b");
  auto listener = MetadataListener::start(b.agent, "127.0.0.1", 0);
  ASSERT_TRUE(listener);
  auto place = open_metadata_place("tcp://127.0.0.1:" + std::to_string((*listener)->port()));
  ASSERT_TRUE(place);
  std::string peer;
  ASSERT_EQ(a.agent.load_remote_md(*(*place)->get("b"), peer), Outcome::kSuccess);
  EXPECT_TRUE((*place)->get("")) << "whoever it is";
  EXPECT_EQ((*place)->get("c").error().code(), Code::kNotFound);

  ASSERT_TRUE((*place)->put("a", a.agent.local_md()));
  EXPECT_TRUE(b.agent.knows("a"));
  ASSERT_TRUE((*place)->erase("a"));
  EXPECT_FALSE(b.agent.knows("a"));
  EXPECT_EQ((*place)->put("x", "nonsense").error().code(), Code::kInvalidArgument);
}

TEST(MetadataPlace, OthersAreNamed) {
  for (const char* url : {"", "etcd://", "http://x:1", "tcp://x", "tcp://x:0", "tcp://x:70000",
                          "tcp://x:1a", "file://"}) {
    EXPECT_EQ(open_metadata_place(url).error().code(), Code::kInvalidArgument) << url;
  }
  auto nobody = open_metadata_place("etcd://127.0.0.1:1");
  ASSERT_TRUE(nobody);
  EXPECT_EQ((*nobody)->get("a").error().code(), Code::kUnavailable);
}

TEST(MetadataFrame, DecodesWhatItEncodes) {
  const MetadataFrame frame{
      .kind = MetadataFrame::Kind::kPut, .name_bytes = 3, .blob_bytes = 70'000};
  const std::string bytes = encode(frame);
  const auto decoded = decode_metadata_frame(bytes);
  ASSERT_TRUE(decoded);
  EXPECT_EQ(decoded->blob_bytes, 70'000U);
  EXPECT_FALSE(decode_metadata_frame(bytes.substr(1)));
  EXPECT_FALSE(decode_metadata_frame(
      encode({.kind = MetadataFrame::Kind::kPut, .blob_bytes = MetadataFrame::kBlobMax + 1})));
  EXPECT_FALSE(decode_metadata_frame(encode({.kind = static_cast<MetadataFrame::Kind>(9)})));
}

TEST(Agent, KnowsWhatMovesATransferAndHowLongItTakes) {
  Node a("a");
  Node b("b");
  std::string peer;
  ASSERT_EQ(a.agent.load_remote_md(b.agent.local_md(), peer), Outcome::kSuccess);
  ListId mine = 0;
  ListId theirs = 0;
  TransferId id = 0;
  const uint32_t first = 0;
  ASSERT_EQ(a.agent.prep_list(kSelf, MemType::kDram, {&a.first, 1}, mine), Outcome::kSuccess);
  ASSERT_EQ(a.agent.prep_list("b", MemType::kDram, {&b.first, 1}, theirs), Outcome::kSuccess);
  ASSERT_EQ(a.agent.make_xfer({.op = Op::kWrite,
                               .local = mine,
                               .local_indices = {&first, 1},
                               .remote = theirs,
                               .remote_indices = {&first, 1},
                               .notification = {}},
                              id),
            Outcome::kSuccess);
  EXPECT_EQ(a.agent.backend_of(id), "tcp");
  EXPECT_FALSE(a.agent.estimate(id));
  a.agent.post(id);
  ASSERT_EQ(a.agent.wait(id, std::chrono::seconds(60)), Outcome::kSuccess);
  EXPECT_GT(*a.agent.estimate(id), Duration::zero());
}

}  // namespace
}  // namespace stator::transfer
