// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <span>

#include "stator/storage/block_header.h"
#include "stator/storage/journal.h"

/// Headers and journals come from disks and object stores.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const size_t cut = bytes.empty() ? 0 : data[0] % (bytes.size() + 1);
  stator::storage::replay(bytes.first(cut), bytes.subspan(cut), 64);
  if (bytes.size() >= stator::storage::BlockHeader::kBytes) {
    const auto header =
        stator::storage::decode_header(bytes.first(stator::storage::BlockHeader::kBytes));
    if (header) {
      stator::storage::check_payload(*header, bytes.subspan(stator::storage::BlockHeader::kBytes))
          .ignore("fuzzing");
    }
  }
  return 0;
}
