// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

namespace stator::weights {

/// Everything that decides what bytes a replica has loaded: two with equal ones may copy each
/// other.
struct SourceIdentity {
  uint32_t format = 1;
  std::string kind = "weights";  ///< or "lora", "files", …
  std::string model;
  std::string revision;
  std::string framework;
  std::string framework_version;
  std::string dtype;
  std::string quantisation;
  uint32_t tp = 1;
  uint32_t pp = 1;
  uint32_t ep = 1;
  std::map<std::string, std::string> extra;

  /// JSON with sorted keys, empty values left out.
  std::string canonical() const;
  /// First 16 hex digits of its SHA-256.
  std::string id() const;
  friend bool operator==(const SourceIdentity&, const SourceIdentity&) = default;
};

/// A piece of the arena: a tensor, or a file.
struct Piece {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  uint64_t offset = 0;  ///< in the arena
  uint64_t bytes = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};

/// What lies in a source's arena, and a checksum of every chunk of it.
struct Manifest {
  static constexpr size_t kPiecesMax = size_t{1} << 20;
  static constexpr uint64_t kChunkBytes = uint64_t{16} << 20;

  SourceIdentity identity;
  std::vector<Piece> pieces;  ///< in order of their offsets, without gaps but for padding
  uint64_t arena_bytes = 0;
  uint64_t chunk_bytes = kChunkBytes;
  std::vector<uint32_t> chunk_crcs;  ///< CRC-32C of each chunk, the last one may be short

  size_t chunks() const { return (arena_bytes + chunk_bytes - 1) / chunk_bytes; }
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

/// Fills in the checksums for these bytes.
void describe_chunks(Manifest& manifest, std::span<const std::byte> arena);
/// JSON. kCorrupt for what encode() would not write: pieces outside the arena, other counts of
/// checksums, other kinds of values.
std::string encode(const Manifest& manifest);
Result<Manifest> decode_manifest(std::string_view text);
/// kInvalidArgument, and the first piece that differs: name, dtype, shape, size and place must be
/// equal.
Status check_same(const Manifest& wanted, const Manifest& offered);

}  // namespace stator::weights
