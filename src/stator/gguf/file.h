// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/gguf/metadata.h"

namespace stator::gguf {

/// Element types this system computes with, by their numbers in files.
enum class Type : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ8_0 = 8,
  kQ4K = 12,
  kQ6K = 14,
  kBf16 = 30,
};
std::string_view to_string(Type type);
/// Elements of a type come in blocks of so many, and so many bytes.
uint64_t block_elements(Type type);
uint64_t block_bytes(Type type);

/// A tensor of a file: a view of the file's bytes.
struct Tensor {
  std::string name;
  Type type = Type::kF32;
  std::vector<uint64_t> shape;  ///< slowest dimension first, as elsewhere; the file has the reverse
  std::span<const std::byte> bytes;
};

/// A whole GGUF file in memory, checked: every tensor lies inside it, at its alignment, overlaps no
/// other one, and has as many bytes as type and shape say; names are unique.
struct File {
  Metadata metadata;
  std::vector<Tensor> tensors;  ///< in order of their place

  /// Views `bytes`, which outlive it. kCorrupt and kUnsupported name the tensor or key.
  static Result<File> parse(std::span<const std::byte> bytes);
};

}  // namespace stator::gguf
