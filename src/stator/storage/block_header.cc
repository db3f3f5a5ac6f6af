// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/block_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/core/crc32c.h"
#include "stator/core/raw_bytes.h"

namespace stator::storage {
namespace {

constexpr std::string_view kMagic = "STKVBLK1";
constexpr uint32_t kVersion = 1;
constexpr size_t kCrcAt = 8;
constexpr size_t kListAt = 128;
constexpr uint32_t kTokensPresent = 1;

uint32_t header_crc(std::span<const std::byte> bytes) {
  const std::array<std::byte, 4> none{};
  uint32_t crc = crc32c(bytes.first(kCrcAt));
  crc = crc32c(none, crc);
  return crc32c(bytes.subspan(kCrcAt + none.size()), crc);
}

size_t groups_of(uint64_t payload_bytes) {
  return (payload_bytes + BlockHeader::kGroupBytes - 1) / BlockHeader::kGroupBytes;
}

}  // namespace

BlockHeader describe_payload(std::span<const std::byte> payload, std::span<const TokenId> tokens) {
  BlockHeader header;
  header.payload_bytes = payload.size();
  for (size_t at = 0; at < payload.size(); at += BlockHeader::kGroupBytes) {
    header.group_crcs.push_back(
        crc32c(payload.subspan(at, std::min(BlockHeader::kGroupBytes, payload.size() - at))));
  }
  if (header.group_crcs.size() + tokens.size() <= BlockHeader::kListMax) {
    header.tokens.assign(tokens.begin(), tokens.end());
  }
  return header;
}

void encode(const BlockHeader& header, std::span<std::byte> out) {
  STATOR_ASSERT(out.size() == BlockHeader::kBytes, "a header has one size");
  STATOR_ASSERT(header.group_crcs.size() + header.tokens.size() <= BlockHeader::kListMax,
                "a header's lists fit");
  std::ranges::fill(out, std::byte{0});
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  put_raw(out, 12, kVersion);
  put_raw(out, 16, header.space);
  put_raw(out, 32, header.name.lineage.big_endian());
  put_raw(out, 48, header.parent.big_endian());
  put_raw(out, 64, header.name.check);
  put_raw(out, 80, header.tokens.empty() ? 0 : kTokensPresent);
  put_raw(out, 84, static_cast<uint16_t>(header.group_crcs.size()));
  put_raw(out, 86, static_cast<uint16_t>(header.tokens.size()));
  put_raw(out, 88, header.payload_bytes);
  put_raw(out, 96, header.generation);
  put_raw(out, 104, header.unix_ms);
  put_raw(out, 112, header.tp_rank);
  put_raw(out, 114, header.tp_size);
  put_raw(out, 116, header.layer_first);
  put_raw(out, 118, header.layer_last);
  std::memcpy(out.data() + kListAt, header.group_crcs.data(), header.group_crcs.size() * 4);
  std::memcpy(out.data() + kListAt + header.group_crcs.size() * 4, header.tokens.data(),
              header.tokens.size() * 4);
  put_raw(out, kCrcAt, header_crc(out));
}

Result<BlockHeader> decode_header(std::span<const std::byte> bytes) {
  if (bytes.size() != BlockHeader::kBytes ||
      std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return Error(Code::kCorrupt, "no KV block begins here");
  }
  if (get_raw<uint32_t>(bytes, kCrcAt) != header_crc(bytes)) {
    return Error(Code::kCorrupt, "the header of a KV block has a wrong checksum");
  }
  const size_t groups = get_raw<uint16_t>(bytes, 84);
  const size_t tokens = get_raw<uint16_t>(bytes, 86);
  BlockHeader header;
  header.payload_bytes = get_raw<uint64_t>(bytes, 88);
  if (get_raw<uint32_t>(bytes, 12) != kVersion || groups + tokens > BlockHeader::kListMax ||
      header.payload_bytes > BlockHeader::kPayloadMax ||
      groups != groups_of(header.payload_bytes)) {
    return Error(Code::kCorrupt, "the header of a KV block is of another format");
  }
  header.space = get_raw<Digest>(bytes, 16);
  header.name.lineage = kv::LineageHash::from_big_endian(get_raw<Digest>(bytes, 32));
  header.parent = kv::LineageHash::from_big_endian(get_raw<Digest>(bytes, 48));
  header.name.check = get_raw<Digest>(bytes, 64);
  header.generation = get_raw<uint64_t>(bytes, 96);
  header.unix_ms = get_raw<uint64_t>(bytes, 104);
  header.tp_rank = get_raw<uint16_t>(bytes, 112);
  header.tp_size = get_raw<uint16_t>(bytes, 114);
  header.layer_first = get_raw<uint16_t>(bytes, 116);
  header.layer_last = get_raw<uint16_t>(bytes, 118);
  header.group_crcs.resize(groups);
  header.tokens.resize(tokens);
  std::memcpy(header.group_crcs.data(), bytes.data() + kListAt, groups * 4);
  std::memcpy(header.tokens.data(), bytes.data() + kListAt + groups * 4, tokens * 4);
  return header;
}

Status check_payload(const BlockHeader& header, std::span<const std::byte> payload) {
  if (payload.size() != header.payload_bytes) {
    return Error(Code::kCorrupt, fmt::format("a KV block has {} bytes instead of {}",
                                             payload.size(), header.payload_bytes));
  }
  for (size_t group = 0; group < header.group_crcs.size(); ++group) {
    const size_t at = group * BlockHeader::kGroupBytes;
    const size_t length = std::min(BlockHeader::kGroupBytes, payload.size() - at);
    if (crc32c(payload.subspan(at, length)) != header.group_crcs[group]) {
      return Error(Code::kCorrupt, fmt::format("MiB {} of a KV block has a wrong checksum", group));
    }
  }
  return {};
}

Result<BlockHeader> check_header(std::span<const std::byte> bytes, const Expected& expected) {
  STATOR_TRY(BlockHeader header, decode_header(bytes));
  const bool tokens_differ = !expected.tokens.empty() && !header.tokens.empty() &&
                             !std::ranges::equal(header.tokens, expected.tokens);
  if (header.space != expected.space || header.name != expected.name ||
      header.payload_bytes != expected.payload_bytes || tokens_differ) {
    return Error(Code::kNotFound, "another KV block is stored there");
  }
  return header;
}

}  // namespace stator::storage
