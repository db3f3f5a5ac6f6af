// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/storage/block_name.h"

namespace stator::storage {

/// What stands in front of a block's bytes in files and objects: 4 KiB, little-endian.
///
///     0 magic "STKVBLK1"       8 CRC-32C of these 4096 bytes, this field 0     12 version (1)
///    16 namespace [16]        32 lineage hash, big-endian [16]   48 the parent's [16]
///    64 check [16]            80 flags (1: tokens are present)   84 groups u16  86 tokens u16
///    88 payload bytes u64     96 generation u64                 104 unix ms u64
///   112 tp rank, tp size, first layer, last layer: u16 each
///   128 CRC-32C of each MiB of the payload, u32 each; then the block's token ids, u32 each
struct BlockHeader {
  static constexpr size_t kBytes = 4096;
  static constexpr size_t kGroupBytes = size_t{1} << 20;
  static constexpr size_t kListMax = (kBytes - 128) / 4;  ///< groups and tokens together
  static constexpr uint64_t kPayloadMax = uint64_t{512} << 20;

  Digest space{};
  BlockName name;
  kv::LineageHash parent;  ///< default for a first block
  uint64_t payload_bytes = 0;
  uint64_t generation = 0;
  uint64_t unix_ms = 0;
  uint16_t tp_rank = 0;
  uint16_t tp_size = 1;
  uint16_t layer_first = 0;
  uint16_t layer_last = 0;
  std::vector<uint32_t> group_crcs;
  std::vector<TokenId> tokens;  ///< empty when a block has too many for the list
};

/// A header for these bytes: their checksums, and the tokens if they fit.
BlockHeader describe_payload(std::span<const std::byte> payload, std::span<const TokenId> tokens);

/// `out` has kBytes.
void encode(const BlockHeader& header, std::span<std::byte> out);
/// kCorrupt for anything that encode() did not write.
Result<BlockHeader> decode_header(std::span<const std::byte> bytes);
/// kCorrupt, and which MiB, unless the payload is the one described.
Status check_payload(const BlockHeader& header, std::span<const std::byte> payload);

/// What a reader wants to find.
struct Expected {
  const Digest& space;
  const BlockName& name;
  uint64_t payload_bytes = 0;
  std::span<const TokenId> tokens{};  ///< empty: `check` alone speaks for them
};
/// kCorrupt: no header of ours. kNotFound: one of another block, namespace or size.
Result<BlockHeader> check_header(std::span<const std::byte> bytes, const Expected& expected);

}  // namespace stator::storage
