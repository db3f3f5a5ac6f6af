// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string_view>

#include "stator/weights/manifest.h"
#include "stator/weights/peer_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  stator::weights::decode_manifest(text).ignore("fuzzing");
  stator::weights::decode_offer(text).ignore("fuzzing");
  return 0;
}
