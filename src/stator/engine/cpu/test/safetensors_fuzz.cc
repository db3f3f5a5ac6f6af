// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes are, the header parser refuses them or gives tensors that lie inside the file.
#include <cstddef>
#include <cstdint>

#include "stator/core/assert.h"
#include "stator/engine/cpu/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using stator::engine::cpu::parse_safetensors_header;
  const auto file = std::as_bytes(std::span(data, size));
  const auto tensors = parse_safetensors_header(file, "fuzz");
  if (!tensors) {
    return 0;
  }
  uint64_t end = 0;
  for (const auto& tensor : *tensors) {
    uint64_t bytes = stator::engine::cpu::dtype_bytes(tensor.dtype);
    for (const uint64_t extent : tensor.shape) {
      bytes *= extent;
    }
    STATOR_ASSERT(tensor.begin >= end && tensor.end <= size, "tensors are ordered and inside");
    STATOR_ASSERT(tensor.end - tensor.begin == bytes, "the length is dtype times shape");
    end = tensor.end;
  }
  return 0;
}
