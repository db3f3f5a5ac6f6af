// SPDX-License-Identifier: Apache-2.0
// Any bytes an engine's socket may bring: decoding and normalising never crash, the table keeps its
// bound, and what left as stored and not as removed is what the table still holds.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "stator/core/assert.h"
#include "stator/core/flat_map.h"
#include "stator/kv_events/engine_events.h"
#include "stator/kv_events/event_normalizer.h"

namespace {

using stator::FlatSet;
using Copy = std::pair<uint64_t, int>;  // block, tier

void apply(const stator::kv::KvEvent& event, FlatSet<Copy>& copies) {
  const int tier = static_cast<int>(event.tier);
  if (const auto* stored = std::get_if<stator::kv::BlocksStored>(&event.data)) {
    STATOR_ASSERT(!stored->blocks.empty(), "a store stores something");
    for (const auto& block : stored->blocks) {
      copies.insert({block.external.value(), tier});
    }
  } else if (const auto* removed = std::get_if<stator::kv::BlocksRemoved>(&event.data)) {
    for (const auto& block : removed->blocks) {
      copies.erase({block.value(), tier});
    }
  } else {
    copies.clear();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kBlocksMax = 64;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto batch = stator::kv_events::decode_engine_events(bytes);
  if (!batch.has_value()) {
    return 0;
  }
  stator::kv_events::EventNormalizer normalizer({.block_size = 2, .blocks_max = kBlocksMax});
  FlatSet<Copy> copies;
  for (int round = 0; round < 2; ++round) {
    for (const auto& event : normalizer.normalize(0, *batch)) {
      apply(event, copies);
    }
  }
  STATOR_ASSERT(normalizer.stats().held_blocks <= kBlocksMax, "N3");
  STATOR_ASSERT(normalizer.stats().held_blocks > 0 || copies.empty(), "N1");
  return 0;
}
