// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/kv_frames.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace stator::fake_engine {
namespace {

constexpr const char* kTestdata = STATOR_SOURCE_DIR "/src/stator/lab/fake_engine/testdata/";

std::string read_file(const std::string& path) {
  const std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

uint32_t read_u32(std::string_view bytes, size_t& at) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    value = value << 8U | static_cast<unsigned char>(bytes[at++]);
  }
  return value;
}

/// The last frame of every message: its payload.
std::vector<std::string> read_payloads(const std::string& path) {
  const std::string bytes = read_file(path);
  std::vector<std::string> payloads;
  for (size_t at = 0; at < bytes.size();) {
    const uint32_t frames = read_u32(bytes, at);
    std::string frame;
    for (uint32_t i = 0; i < frames; ++i) {
      const uint32_t length = read_u32(bytes, at);
      frame = bytes.substr(at, length);
      at += length;
    }
    payloads.push_back(std::move(frame));
  }
  return payloads;
}

uint64_t hash_of(const json::Value& value) {
  const auto positive = value.as_uint64();
  return positive ? *positive : static_cast<uint64_t>(value.as_int64().value());
}

std::vector<uint64_t> hashes_of(const json::Value& value) {
  std::vector<uint64_t> hashes;
  for (const auto& hash : value.elements()) {
    hashes.push_back(hash_of(hash));
  }
  return hashes;
}

WireStored stored_of(const json::Value& event) {
  WireStored out;
  out.hashes = hashes_of(event.at("block_hashes"));
  if (!event.at("parent_block_hash").is_null()) {
    out.parent = hash_of(event.at("parent_block_hash"));
  }
  for (const auto& token : event.at("token_ids").elements()) {
    out.tokens.push_back(static_cast<TokenId>(token.as_int64().value()));
  }
  out.block_size = static_cast<uint32_t>(event.at("block_size").as_int64().value());
  if (!event.at("lora_id").is_null()) {
    out.lora_id = static_cast<uint32_t>(event.at("lora_id").as_int64().value());
  }
  if (const auto* name = event.find("lora_name"); name != nullptr && name->is_string()) {
    out.lora_name = name->text();
  }
  if (const auto* keys = event.find("extra_keys")) {
    for (const auto& entry : keys->elements()) {
      auto& block = out.extra_keys.emplace_back();
      for (const auto& key : entry.elements()) {
        block.emplace_back(key.text());
      }
    }
  }
  if (const auto* session = event.find("session_id")) {
    out.session_id = session->text();
  }
  return out;
}

WireBatch batch_of(const json::Value& line) {
  const json::Value::Array& batch = line.at("batch").elements();
  WireBatch out{.unix_seconds = batch[0].as_double().value(), .events = {}, .dp_rank = 0};
  for (const json::Value& event : batch[1].elements()) {
    if (event.at("type").text() == "BlockStored") {
      out.events.emplace_back(stored_of(event));
    } else if (event.at("type").text() == "BlockRemoved") {
      out.events.emplace_back(WireRemoved{hashes_of(event.at("block_hashes"))});
    } else {
      out.events.emplace_back(WireCleared{});
    }
  }
  return out;
}

struct Recording {
  const char* name;
  bool is_vllm;
};

class RecordedFrames : public testing::TestWithParam<Recording> {};

TEST_P(RecordedFrames, AreWrittenByteForByte) {
  const auto& [name, is_vllm] = GetParam();
  const auto payloads = read_payloads(std::string(kTestdata) + name + ".zmq");
  std::istringstream lines(read_file(std::string(kTestdata) + name + ".jsonl"));
  size_t compared = 0;

  for (std::string line; std::getline(lines, line);) {
    const json::Value value = *json::parse(line);
    if (value.at("batch").is_null()) {
      continue;  // the end mark of a replay has no payload
    }
    const WireBatch batch = batch_of(value);
    const std::string written =
        is_vllm ? encode_vllm_batch(batch, EventForm::kMap, EventHash::kUnsigned)
                : encode_sglang_batch(batch, EventForm::kMap, EventHash::kSigned);
    ASSERT_LT(compared, payloads.size());
    EXPECT_TRUE(written == payloads[compared]) << name << " message " << compared;
    ++compared;
  }

  EXPECT_GT(compared, 0U);
}

INSTANTIATE_TEST_SUITE_P(All, RecordedFrames,
                         testing::Values(Recording{"vllm-0.32/01-store-100-tokens", true},
                                         Recording{"vllm-0.32/02-continuation-and-decode", true},
                                         Recording{"vllm-0.32/04-cache-salt", true},
                                         Recording{"vllm-0.32/05-session-id", true},
                                         Recording{"vllm-0.32/06-lora", true},
                                         Recording{"vllm-0.32/09-store-after-clear", true},
                                         Recording{"vllm-0.32/11-replay-tail", true},
                                         Recording{"sglang-0.5.23/01-store-50-tokens", false},
                                         Recording{"sglang-0.5.23/03-continuation", false},
                                         Recording{"sglang-0.5.23/04-flush-cache", false},
                                         Recording{"sglang-0.5.23/05-removal-under-pressure",
                                                   false}));

std::string bytes_of(std::string_view hex) {
  std::string out;
  int high = -1;
  for (const char c : hex) {
    if (c == ' ') {
      continue;
    }
    const int digit = c <= '9' ? c - '0' : c - 'a' + 10;
    if (high < 0) {
      high = digit;
    } else {
      out.push_back(static_cast<char>(high * 16 + digit));
      high = -1;
    }
  }
  return out;
}

// The worked examples of the wire reference for releases with positional events.
TEST(KvFrames, OldStoreIsPositional) {
  const WireBatch batch{.unix_seconds = 1'700'000'000.5,
                        .events = {WireStored{.hashes = {0x1122334455667788},
                                              .parent = std::nullopt,
                                              .tokens = {1, 200, 70'000, 151'644},
                                              .block_size = 4}},
                        .dp_rank = 0};

  EXPECT_EQ(encode_vllm_batch(batch, EventForm::kArray, EventHash::kUnsigned),
            bytes_of("93 cb 41 d9 54 fc 40 20 00 00 91 97 ab 42 6c 6f 63 6b 53 74 6f 72 65 64 91 "
                     "cf 11 22 33 44 55 66 77 88 c0 94 01 cc c8 ce 00 01 11 70 ce 00 02 50 5c 04 "
                     "c0 a3 47 50 55 00"));
}

TEST(KvFrames, OldRemoveAndClearArePositional) {
  const WireBatch batch{.unix_seconds = 1'700'000'001,
                        .events = {WireRemoved{{0x1122334455667788}}, WireCleared{}},
                        .dp_rank = 1};

  EXPECT_EQ(encode_vllm_batch(batch, EventForm::kArray, EventHash::kUnsigned),
            bytes_of("93 cb 41 d9 54 fc 40 40 00 00 92 93 ac 42 6c 6f 63 6b 52 65 6d 6f 76 65 64 "
                     "91 cf 11 22 33 44 55 66 77 88 a3 47 50 55 91 b0 41 6c 6c 42 6c 6f 63 6b 73 "
                     "43 6c 65 61 72 65 64 01"));
}

TEST(KvFrames, ByteHashesEndInTheNumber) {
  const WireBatch batch{
      .unix_seconds = 0, .events = {WireRemoved{{0x1122334455667788}}}, .dp_rank = 0};

  const std::string bytes = encode_vllm_batch(batch, EventForm::kArray, EventHash::kBytes);

  const size_t digest = bytes.find(bytes_of("c4 20"));  // bin 8, 32 bytes
  ASSERT_NE(digest, std::string::npos);
  EXPECT_EQ(bytes.substr(digest + 2 + 24, 8), bytes_of("11 22 33 44 55 66 77 88"));
}

}  // namespace
}  // namespace stator::fake_engine
