// SPDX-License-Identifier: Apache-2.0
// Any bytes as a snapshot file, and as one model's content behind a checksum that fits: reading
// never crashes, and an index that was restored answers, changes and can be saved again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "stator/core/assert.h"
#include "stator/router/index/chain_index.h"
#include "stator/router/index/index_snapshot.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using stator::router::ByteReader;
  using stator::router::ByteWriter;
  using stator::router::ChainIndex;
  constexpr uint64_t kBytes = 1 << 20;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)stator::router::decode_snapshots(bytes);
  ByteReader in(bytes);
  const auto index = ChainIndex::restore({.bytes_max = kBytes}, in);
  if (!index) {
    return 0;
  }
  std::vector<stator::blocks::SequenceHash> prompt;
  for (size_t at = 0; at + 8 <= std::min<size_t>(size, 512); at += 8) {
    prompt.emplace_back(ByteReader(bytes.substr(at)).get<uint64_t>());
  }
  for (size_t skip = 0; skip < prompt.size(); ++skip) {
    (void)(*index)->find_longest_match(std::span(prompt).subspan(skip));
  }
  ByteWriter out;
  (*index)->save(out);
  ByteReader again(out.view());
  const auto twin = ChainIndex::restore({.bytes_max = kBytes}, again);
  STATOR_ASSERT(twin.has_value(), "what was saved can be restored");
  STATOR_ASSERT((*twin)->holder_blocks() == (*index)->holder_blocks(), "and says the same");
  for (const stator::WorkerKey worker : (*index)->workers()) {
    (*index)->remove_worker(worker);
  }
  STATOR_ASSERT((*index)->holder_blocks() == 0, "I3");
  return 0;
}
