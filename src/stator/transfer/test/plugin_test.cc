// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "stator/transfer/agent.h"
#include "stator/transfer/plugins.h"
#include "stator/transfer/ucx_info.h"

namespace stator::transfer {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr size_t kBytes = size_t{3} << 20;

Desc range_of(std::span<std::byte> memory, uint64_t dev = 0) {
  return {.addr = reinterpret_cast<uint64_t>(memory.data()), .len = memory.size(), .dev = dev};
}

struct Side {
  MemType type = MemType::kDram;
  std::vector<Desc> ranges;
};

Outcome move(Agent& agent, Op op, const Side& local, std::string_view peer, const Side& remote,
             const std::string& notification = {}) {
  ListId l = 0;
  ListId r = 0;
  TransferId id = 0;
  std::vector<uint32_t> all(local.ranges.size());
  std::iota(all.begin(), all.end(), 0U);
  Outcome outcome = agent.prep_list(kSelf, local.type, local.ranges, l);
  if (outcome == Outcome::kSuccess) {
    outcome = agent.prep_list(peer, remote.type, remote.ranges, r);
  }
  if (outcome == Outcome::kSuccess) {
    outcome = agent.make_xfer({.op = op,
                               .local = l,
                               .local_indices = all,
                               .remote = r,
                               .remote_indices = all,
                               .notification = notification},
                              id);
  }
  if (outcome != Outcome::kSuccess) {
    return outcome;
  }
  agent.post(id);
  outcome = agent.wait(id, kPatience);
  agent.release(id);
  return outcome;
}

std::vector<Desc> pieces_of(const Desc& whole, uint64_t len) {
  std::vector<Desc> out;
  for (uint64_t at = 0; at + len <= whole.len; at += len) {
    out.push_back({.addr = whole.addr + at, .len = len, .dev = whole.dev});
  }
  return out;
}

TEST(Plugins, RefusesTablesItCannotUse) {
  EXPECT_FALSE(refuse_table(nullptr).empty());
  stator_transfer_backend_v1 table = cuda_table();
  EXPECT_EQ(refuse_table(&table), "");
  table.api_version = STATOR_TRANSFER_BACKEND_API + 1;
  EXPECT_NE(refuse_table(&table).find("version"), std::string::npos);
  table = cuda_table();
  table.size -= 1;
  EXPECT_FALSE(refuse_table(&table).empty());
  table = cuda_table();
  table.check = nullptr;
  EXPECT_FALSE(refuse_table(&table).empty());
  table = cuda_table();
  table.capabilities = STATOR_BACKEND_REMOTE;  // without conn_info()
  EXPECT_FALSE(refuse_table(&table).empty());
}

TEST(Plugins, LoadsTheFolderAndLeavesOutWhatIsRefused) {
  const Plugins plugins(STATOR_TEST_PLUGIN_DIR);
  const std::vector<std::string> names = plugins.names();
  EXPECT_EQ(names, (std::vector<std::string>{"ucx", "cuda", "mirror"}));
  EXPECT_NE(plugins.find("mirror"), nullptr);
  EXPECT_EQ(plugins.find("old"), nullptr);  // of another version of the interface
  EXPECT_EQ(Plugins("").find("mirror"), nullptr);
}

/// The plug-in "mirror" (test/plugins/mirror.c) keeps objects in memory of its own.
TEST(Plugins, MovesBytesThroughALoadedOne) {
  ASSERT_EQ(::setenv("STATOR_TRANSFER_PLUGIN_DIR", STATOR_TEST_PLUGIN_DIR, 1), 0);
  SystemClock clock;
  Metrics metrics;
  Agent agent("a", {}, clock, metrics);
  ASSERT_EQ(agent.create_backend("mirror", {{"slow", "3"}}), Outcome::kSuccess);
  EXPECT_EQ(agent.create_backend("mirror", {{"rubbish", "1"}}), Outcome::kBackend);
  EXPECT_EQ(agent.create_backend("none", {}), Outcome::kNotFound);
  const auto memory = agent.allocate(8192);
  const Desc all = range_of(memory);
  ASSERT_EQ(agent.register_mem(MemType::kDram, {&all, 1}), Outcome::kSuccess);
  uint64_t dev = 0;
  ASSERT_EQ(agent.register_named(MemType::kObj, "thing", dev), Outcome::kSuccess);
  std::iota(reinterpret_cast<uint8_t*>(memory.data()),
            reinterpret_cast<uint8_t*>(memory.data()) + 4096, 0);
  const Desc front = range_of(memory.first(4096));
  const Desc back = range_of(memory.last(4096));
  const Desc object{.addr = 0, .len = 4096, .dev = dev};
  EXPECT_EQ(move(agent, Op::kWrite, {MemType::kDram, {front}}, kSelf, {MemType::kObj, {object}}),
            Outcome::kSuccess);
  EXPECT_EQ(agent.query_mem(MemType::kObj, dev), 4096U);
  EXPECT_EQ(move(agent, Op::kRead, {MemType::kDram, {back}}, kSelf, {MemType::kObj, {object}}),
            Outcome::kSuccess);
  EXPECT_TRUE(std::ranges::equal(memory.first(4096), memory.last(4096)));
  const Desc beyond{.addr = 4096, .len = 4096, .dev = dev};
  EXPECT_EQ(move(agent, Op::kRead, {MemType::kDram, {back}}, kSelf, {MemType::kObj, {beyond}}),
            Outcome::kNotFound);
}

TEST(CudaBackend, CopiesBetweenHostAndGpuInOrder) {
  SystemClock clock;
  Metrics metrics;
  Agent agent("a", {}, clock, metrics);
  EXPECT_EQ(agent.create_backend("cuda", {{"library", "/nowhere.so"}}), Outcome::kBackend);
  // A driver over host memory, test/plugins/fake_cuda.c: "GPU" 0 and 1.
  ASSERT_EQ(agent.create_backend("cuda", {{"library", STATOR_TEST_FAKE_CUDA}}), Outcome::kSuccess);
  const auto memory = agent.allocate(kBytes);
  std::vector<std::byte> gpu(kBytes);
  const Desc host = range_of(memory);
  const Desc vram = range_of(gpu, 1);
  const Desc elsewhere = range_of(gpu, 7);
  ASSERT_EQ(agent.register_mem(MemType::kDram, {&host, 1}), Outcome::kSuccess);
  ASSERT_EQ(agent.register_mem(MemType::kVram, {&vram, 1}), Outcome::kSuccess);
  EXPECT_EQ(agent.register_mem(MemType::kVram, {&elsewhere, 1}), Outcome::kNotFound);
  for (size_t i = 0; i < memory.size(); ++i) {
    memory[i] = static_cast<std::byte>(i * 13 + i / 251);
  }
  const Side here{MemType::kDram, pieces_of(host, 64 << 10)};
  const Side there{MemType::kVram, pieces_of(vram, 64 << 10)};
  EXPECT_EQ(move(agent, Op::kWrite, here, kSelf, there), Outcome::kSuccess);
  EXPECT_TRUE(std::ranges::equal(memory, gpu));
  std::ranges::fill(memory, std::byte{0});
  EXPECT_EQ(move(agent, Op::kRead, here, kSelf, there), Outcome::kSuccess);
  EXPECT_TRUE(std::ranges::equal(memory, gpu));
  std::ranges::fill(memory, std::byte{9});
  EXPECT_EQ(move(agent, Op::kRead, there, kSelf, here), Outcome::kSuccess);  // local is the GPU
  EXPECT_EQ(gpu[kBytes / 2], std::byte{9});
  EXPECT_EQ(agent.deregister_mem(MemType::kDram, {&host, 1}), Outcome::kSuccess);
}

TEST(UcxInfo, ReadsWhatItWroteAndNothingElse) {
  const UcxInfo info{.address = "worker",
                     .keys = {{.addr = 4096, .len = 100, .packed = "key"},
                              {.addr = 1, .len = UINT64_MAX - 1, .packed = "k"}}};
  const std::string bytes = encode(info);
  EXPECT_EQ(decode_ucx_info(bytes), info);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(decode_ucx_info(std::string_view(bytes).substr(0, size)), std::nullopt);
  }
  EXPECT_EQ(decode_ucx_info(bytes + "x"), std::nullopt);
  UcxInfo wraps = info;
  wraps.keys[0].addr = UINT64_MAX;
  EXPECT_EQ(decode_ucx_info(encode(wraps)), std::nullopt);
}

#if __has_include(<ucp/api/ucp.h>)

/// UCX's own transports between two agents of this process.
class UcxTest : public testing::TestWithParam<const char*> {};

TEST_P(UcxTest, WritesReadsAndTells) {
  SystemClock clock;
  Metrics metrics;
  Agent a("a", {}, clock, metrics);
  Agent b("b", {}, clock, metrics);
  std::array<std::span<std::byte>, 2> memory;
  std::array<Desc, 2> whole;
  for (const auto& [agent, i] : {std::pair(&a, 0), std::pair(&b, 1)}) {
    ASSERT_EQ(agent->create_backend("ucx", {{"tls", GetParam()}}), Outcome::kSuccess);
    memory[i] = agent->allocate(kBytes);
    whole[i] = range_of(memory[i]);
    ASSERT_EQ(agent->register_mem(MemType::kDram, {&whole[i], 1}), Outcome::kSuccess);
  }
  std::string peer;
  ASSERT_EQ(a.load_remote_md(b.local_md(), peer), Outcome::kSuccess);
  for (size_t i = 0; i < kBytes; ++i) {
    memory[0][i] = static_cast<std::byte>(i * 7 + i / 255);
  }
  // In another order than in memory, so that no two pieces touch on both sides.
  Side local{MemType::kDram, pieces_of(whole[0], 64 << 10)};
  Side remote{MemType::kDram, pieces_of(whole[1], 64 << 10)};
  std::ranges::reverse(local.ranges);
  std::ranges::reverse(remote.ranges);
  ASSERT_EQ(move(a, Op::kWrite, local, peer, remote, "done"), Outcome::kSuccess);
  std::map<std::string, std::vector<std::string>> told;
  while (told.empty()) {
    told = b.notifications();
  }
  EXPECT_EQ(told["a"], std::vector<std::string>{"done"});
  EXPECT_TRUE(std::ranges::equal(memory[0], memory[1]));
  std::ranges::fill(memory[0], std::byte{0});
  ASSERT_EQ(move(a, Op::kRead, local, peer, remote), Outcome::kSuccess);
  EXPECT_TRUE(std::ranges::equal(memory[0], memory[1]));

  const Desc beyond{.addr = whole[1].addr + 1, .len = kBytes};
  EXPECT_EQ(move(a, Op::kRead, {MemType::kDram, {whole[0]}}, peer, {MemType::kDram, {beyond}}),
            Outcome::kNotFound);
  EXPECT_EQ(a.gen_notification(peer, "alone"), Outcome::kSuccess);
  EXPECT_EQ(a.invalidate_remote_md(peer), Outcome::kSuccess);
  EXPECT_EQ(move(a, Op::kRead, local, peer, remote), Outcome::kNotFound);
}

TEST(UcxBackend, SaysWhatIsWrongWithItsParameters) {
  SystemClock clock;
  Metrics metrics;
  Agent agent("a", {}, clock, metrics);
  EXPECT_EQ(agent.create_backend("ucx", {{"tls", "nothing_of_that_name"}}), Outcome::kBackend);
  EXPECT_EQ(agent.create_backend("ucx", {{"rubbish", "1"}}), Outcome::kBackend);
}

INSTANTIATE_TEST_SUITE_P(Transports, UcxTest, testing::Values("tcp+self", "posix+cma+self"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '+', '_');
                           return name;
                         });

#endif

}  // namespace
}  // namespace stator::transfer
