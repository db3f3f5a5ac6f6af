// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "stator/core/ids.h"
#include "stator/kv/event.h"
#include "stator/lab/fake_engine/fake_config.h"

namespace stator::fake_engine {

// KV events as engines publish them over ZeroMQ, and their MessagePack payloads. Pure; compared
// byte for byte with frames of real servers in test/kv_frames_test.cc.

/// A chain of full blocks became reusable. `tokens` has hashes.size() · block_size entries.
struct WireStored {
  std::vector<uint64_t> hashes;
  std::optional<uint64_t> parent;  ///< of the first block; none = start of the sequence
  std::vector<TokenId> tokens;
  uint32_t block_size = 16;
  std::optional<uint32_t> lora_id;
  std::string lora_name;
  /// One entry per block: adapter name, cache salt; an empty one is null on the wire.
  std::vector<std::vector<std::string>> extra_keys;
  std::string session_id;
  kv::StorageTier tier = kv::StorageTier::kDevice;
};
struct WireRemoved {
  std::vector<uint64_t> hashes;
  kv::StorageTier tier = kv::StorageTier::kDevice;
};
struct WireCleared {};
using WireEvent = std::variant<WireStored, WireRemoved, WireCleared>;

/// One message: what one or more engine steps changed.
struct WireBatch {
  double unix_seconds = 0;
  std::vector<WireEvent> events;
  uint32_t dp_rank = 0;
};

/// vLLM: 0.32 in map form; the array form is that of releases before the change. A removal of
/// several blocks is written as one event per block.
std::string encode_vllm_batch(const WireBatch& batch, EventForm form, EventHash hash);

/// SGLang 0.5.23 (map) and before (array): no adapter name, extra keys or groups; removals list
/// many blocks.
std::string encode_sglang_batch(const WireBatch& batch, EventForm form, EventHash hash);

}  // namespace stator::fake_engine
