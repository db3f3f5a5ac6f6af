// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"

// What inference engines themselves say about their KV cache, in their own words: batches of
// MessagePack as vLLM 0.11 to 0.32, SGLang and the bridges of TensorRT-LLM publish them. Decoding
// judges nothing; EventNormalizer (event_normalizer.h) decides what counts.

namespace stator::kv_events {

/// What distinguishes a block beyond its tokens.
struct EngineBlockExtras {
  std::vector<std::string> texts;   ///< LoRA names, cache salts: told apart by who knows them
  std::vector<uint64_t> mm_hashes;  ///< of the media in the block, in any order
  bool opaque = false;              ///< something we cannot hash, such as prompt embeddings
};

/// What the tail of a store or a removal may say about where the blocks are. Empty text: absent.
struct EngineEventScope {
  std::string medium;
  std::string kind;  ///< of attention, for instance `full_attention`
  std::string locality;
  std::string ownership;
  std::optional<uint32_t> group;
};

struct EngineStored {
  std::vector<uint64_t> hashes;  ///< the engine's own; of binary digests the last 8 bytes
  std::optional<uint64_t> parent;
  std::vector<TokenId> tokens;
  /// The tokens came as pairs: a block spans block_size + 1 tokens, the last one shared with the
  /// next block.
  bool bigram = false;
  uint32_t block_size = 0;
  bool has_lora_id = false;  ///< a number that only this engine process understands
  std::string lora_name;
  std::string cache_salt;
  std::vector<EngineBlockExtras> extras;  ///< by block; shorter means nothing for the rest
  EngineEventScope scope;
};

struct EngineRemoved {
  std::vector<uint64_t> hashes;
  EngineEventScope scope;
};

struct EngineCleared {
  std::string ownership;
};

using EngineEvent = std::variant<EngineStored, EngineRemoved, EngineCleared>;

struct EngineEventBatch {
  double timestamp_s = 0;
  std::optional<uint32_t> dp_rank;  ///< absent: that of the socket it came from
  std::vector<EngineEvent> events;
  uint32_t ignored_events = 0;  ///< of a type we do not know
};

/// Decodes one payload. Arrays and maps are accepted at every level, decided by what is there and
/// never by a version; unknown fields and events are skipped. kCorrupt for what is not MessagePack
/// or has a known field of the wrong type. Memory is at most about 60 times the payload.
Result<EngineEventBatch> decode_engine_events(std::string_view payload);

}  // namespace stator::kv_events
