// SPDX-License-Identifier: Apache-2.0
#include "stator/connectors/lmcache_values.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "stator/connectors/block_key.h"
#include "stator/storage/block_header.h"

namespace stator::connectors {
namespace {

constexpr uint64_t kClassMin = 4096;
constexpr size_t kMetaWords = 7;

std::vector<TokenId> words_of(const LmMeta& meta) {
  const std::array<int32_t, kMetaWords> words = {meta.length,   meta.format,   meta.type,
                                                 meta.shape[0], meta.shape[1], meta.shape[2],
                                                 meta.shape[3]};
  std::vector<TokenId> out;
  for (const int32_t word : words) {
    out.push_back(static_cast<TokenId>(word));
  }
  return out;
}

LmMeta meta_of(std::span<const TokenId> words) {
  LmMeta meta{.length = static_cast<int32_t>(words[0]),
              .format = static_cast<int32_t>(words[1]),
              .type = static_cast<int32_t>(words[2])};
  for (size_t i = 0; i < meta.shape.size(); ++i) {
    meta.shape[i] = static_cast<int32_t>(words[3 + i]);
  }
  return meta;
}

}  // namespace

std::span<const std::byte> LmcacheValues::Value::bytes() const {
  return std::as_bytes(std::span(*record))
      .subspan(storage::BlockHeader::kBytes, static_cast<size_t>(meta.length));
}

LmcacheValues::LmcacheValues(storage::CacheService& cache) : cache_(cache) {
  for (uint64_t power = kClassMin; power <= uint64_t{kValueBytesMax}; power *= 2) {
    for (uint64_t quarter = 4; quarter < 8; ++quarter) {
      const uint64_t bytes = power / 4 * quarter;
      if (bytes <= uint64_t{kValueBytesMax}) {
        classes_.push_back(
            {.bytes = bytes,
             .space = storage::namespace_of(
                 {.model = "lmcache", .layout = "lmcache_value/1", .block_bytes = bytes})});
      }
    }
  }
}

const LmcacheValues::SizeClass* LmcacheValues::find(std::string_view key) const {
  for (const SizeClass& one : classes_) {
    const kv::LineageHash name = name_text(one.space, key).lineage;
    if (cache_.count(one.space, std::span(&name, 1)) == 1) {
      return &one;
    }
  }
  return nullptr;
}

bool LmcacheValues::has(std::string_view key) const {
  return find(key) != nullptr;
}

Result<LmcacheValues::Value> LmcacheValues::get(std::string_view key) const {
  const SizeClass* const found = find(key);
  if (found == nullptr) {
    return Error(Code::kNotFound, "no such value");
  }
  const storage::BlockName name = name_text(found->space, key);
  STATOR_TRY(auto record, cache_.get(found->space, name.lineage));
  const auto head = std::as_bytes(std::span(*record)).first(storage::BlockHeader::kBytes);
  STATOR_TRY(const auto header,
             storage::check_header(
                 head, {.space = found->space, .name = name, .payload_bytes = found->bytes}));
  if (header.tokens.size() != kMetaWords) {
    return Error(Code::kCorrupt, "a value without what it is to LMCache");
  }
  Value value{.meta = meta_of(header.tokens), .record = std::move(record)};
  if (value.meta.length < 0 || static_cast<uint64_t>(value.meta.length) > found->bytes) {
    return Error(Code::kCorrupt, "a value of another length than it has");
  }
  return value;
}

Status LmcacheValues::put(std::string_view key, const LmMeta& meta,
                          std::span<const std::byte> value) {
  if (has(key)) {
    return Error(Code::kAlreadyExists, "the value is there");
  }
  const auto fits = std::ranges::find_if(
      classes_, [&](const SizeClass& one) { return one.bytes >= value.size(); });
  if (fits == classes_.end() || value.empty()) {
    return Error(Code::kTooLarge, "a value has 1 byte to 512 MiB");
  }
  std::string record(storage::BlockHeader::kBytes + fits->bytes, '\0');
  const auto bytes = std::as_writable_bytes(std::span(record));
  std::memcpy(record.data() + storage::BlockHeader::kBytes, value.data(), value.size());
  storage::BlockHeader header =
      storage::describe_payload(bytes.subspan(storage::BlockHeader::kBytes), words_of(meta));
  header.space = fits->space;
  header.name = name_text(fits->space, key);
  storage::encode(header, bytes.first(storage::BlockHeader::kBytes));
  return cache_.put(fits->space, header.name.lineage, std::move(record));
}

}  // namespace stator::connectors
