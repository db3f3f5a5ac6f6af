// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/tokenizer/prefix_cache.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::tokenizer {

/// Runs `part(0)` … `part(count - 1)`, in any order and perhaps at the same time, and returns when
/// all have ended.
using RunParts = std::function<void(size_t count, const std::function<void(size_t)>& part)>;

/// Texts below this are encoded in one piece and not kept: a hash, a lookup and two copies cost as
/// much as encoding them.
inline constexpr size_t kSegmentBytesMin = 2048;
/// From here on a text that is not in the cache is worth dividing among threads.
inline constexpr size_t kParallelBytesMin = 64 * 1024;

/// What encoding a prompt may use; all of it is optional.
struct PromptTools {
  PrefixCache* cache = nullptr;
  const RunParts* run_parts = nullptr;  ///< for kParallelBytesMin of new text and more
  const Clock* clock = nullptr;         ///< to time the hashing by
  EncodeStop stop = {};
};

/// How the ids are cut into KV blocks and told apart.
struct BlockScheme {
  uint32_t block_size = 16;
  uint64_t seed = 0;  ///< blocks::hash_seed
};

/// A prompt ready for routing.
struct PromptIds {
  std::vector<TokenId> ids;
  std::vector<blocks::SequenceHash> sequences;  ///< of all full blocks
  size_t cached_ids = 0;                        ///< how many came from the cache
  Duration hashing{};                           ///< time that the new blocks' hashes took
  bool is_cut_short = false;  ///< stop.ids_max: more ids than that, not all, and no hashes
};

/// Tokenizer::encode plus block hashes, at the cost of what is new in the text. Equal to encoding
/// the whole, unless tools.stop ends it early. Thread-safe. Errors as Tokenizer::encode.
Result<PromptIds> encode_prompt(const Tokenizer& tokenizer, std::string_view text,
                                EncodeOptions options, const BlockScheme& blocks,
                                const PromptTools& tools);

}  // namespace stator::tokenizer
