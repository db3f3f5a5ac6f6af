// SPDX-License-Identifier: Apache-2.0
// What running engines published, byte for byte (shared/data/streams, see the README there).
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "stator/json/value.h"
#include "stator/kv_events/engine_events.h"
#include "stator/kv_events/event_normalizer.h"

namespace stator::kv_events {
namespace {

namespace fs = std::filesystem;
using Message = std::vector<std::string>;  // frames

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

uint32_t take_u32(std::string_view& bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    value = value << 8 | static_cast<uint8_t>(bytes.at(static_cast<size_t>(i)));
  }
  bytes.remove_prefix(4);
  return value;
}

std::vector<Message> messages_of(const fs::path& path) {
  const std::string content = read_all(path);
  std::string_view rest = content;
  std::vector<Message> messages;
  while (!rest.empty()) {
    Message message(take_u32(rest));
    for (std::string& frame : message) {
      const uint32_t length = take_u32(rest);
      frame = rest.substr(0, length);
      rest.remove_prefix(length);
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

/// The recordings in order, without replays of what was recorded already.
std::vector<fs::path> recordings(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".zmq") && name.find("replay") == std::string::npos) {
      paths.push_back(entry.path());
    }
  }
  std::ranges::sort(paths);
  return paths;
}

uint64_t bits(const json::Value& number) {
  const auto positive = number.as_uint64();
  return positive ? *positive : static_cast<uint64_t>(number.as_int64().value());
}

/// What the engine holds by its own account: a set, read from the decoded copy of the recording.
class Account {
 public:
  void take(const json::Value::Array& events) {
    for (const json::Value& fields : events) {
      const std::string_view type = fields.at("type").text();
      if (type == "AllBlocksCleared") {
        held_.clear();
        continue;
      }
      for (const json::Value& hash : fields.at("block_hashes").elements()) {
        if (type == "BlockStored") {
          held_.insert(bits(hash));
        } else {
          held_.erase(bits(hash));
        }
      }
    }
  }
  size_t size() const { return held_.size(); }

 private:
  std::set<uint64_t> held_;
};

/// The same as an index sees it, by our ids.
void apply(const kv::KvEvent& event, std::set<uint64_t>& held) {
  if (const auto* stored = std::get_if<kv::BlocksStored>(&event.data)) {
    for (const kv::StoredBlock& block : stored->blocks) {
      EXPECT_TRUE(held.insert(block.external.value()).second) << "stored twice";
    }
  } else if (const auto* removed = std::get_if<kv::BlocksRemoved>(&event.data)) {
    for (const auto block : removed->blocks) {
      EXPECT_EQ(held.erase(block.value()), 1U) << "removed without a store";
    }
  } else {
    held.clear();
  }
}

class RecordedEvents : public ::testing::TestWithParam<std::pair<const char*, uint32_t>> {};

TEST_P(RecordedEvents, LeadToTheStateThatTheEngineHas) {
  const auto [engine, block_size] = GetParam();
  const fs::path folder = fs::path(STATOR_SHARED_DIR) / "data/streams" / engine / "kv-events";
  if (!fs::exists(folder)) {
    GTEST_SKIP() << folder
                 << " is absent: others' recordings; the normalizer's own tests cover the code";
  }
  EventNormalizer normalizer({.block_size = block_size});
  Account account;
  std::set<uint64_t> held;
  size_t batches = 0;
  for (const fs::path& path : recordings(folder)) {
    std::ifstream lines(fs::path(path).replace_extension(".jsonl"));
    std::string line;
    for (const Message& message : messages_of(path)) {
      ASSERT_EQ(message.size(), 3U);
      ASSERT_TRUE(std::getline(lines, line)) << path;
      const json::Value decoded = *json::parse(line);
      const auto batch = decode_engine_events(message[2]);
      ASSERT_TRUE(batch.has_value()) << batch.error().message();
      EXPECT_EQ(batch->dp_rank, 0U);
      EXPECT_EQ(batch->events.size(), decoded.at("batch").at(1).elements().size());

      account.take(decoded.at("batch").at(1).elements());
      for (const kv::KvEvent& event : normalizer.normalize(0, *batch)) {
        apply(event, held);
      }

      EXPECT_EQ(normalizer.stats().held_blocks, account.size()) << path;
      EXPECT_EQ(held.size(), account.size()) << path;
      ++batches;
    }
  }
  EXPECT_GT(batches, 3U);
  for (size_t reason = 0; reason < kDropCount; ++reason) {
    // The copies behind repeated stores are removed one by one; we forget at the first (N2).
    if (static_cast<Drop>(reason) != Drop::kBlockNotFound) {
      EXPECT_EQ(normalizer.stats().drops[reason], 0U) << drop_name(static_cast<Drop>(reason));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Engines, RecordedEvents,
                         ::testing::Values(std::pair{"vllm-0.32", 32U},
                                           std::pair{"sglang-0.5.23", 16U}));

}  // namespace
}  // namespace stator::kv_events
