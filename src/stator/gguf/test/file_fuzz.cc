// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <span>

#include "stator/core/assert.h"
#include "stator/gguf/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = stator::gguf::File::parse(bytes);
  if (file) {
    for (const auto& tensor : file->tensors) {
      STATOR_ASSERT(tensor.bytes.data() >= bytes.data() &&
                        tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + size,
                    "a tensor outside of its file");
    }
  }
  return 0;
}
