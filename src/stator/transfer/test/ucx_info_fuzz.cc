// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <string_view>

#include "stator/transfer/ucx_info.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto info = stator::transfer::decode_ucx_info(bytes);
  if (info && encode(*info) != bytes) {
    std::abort();
  }
  return 0;
}
