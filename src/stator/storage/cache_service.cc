// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/cache_service.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "stator/core/log.h"
#include "stator/storage/aligned_buffer.h"
#include "stator/text/hex.h"

namespace stator::storage {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

std::optional<Digest> parse_digest(std::string_view hex) {
  Digest out{};
  if (hex.size() != 2 * out.size()) {
    return std::nullopt;
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const uint32_t high = text::hex_value(hex[2 * i]);
    const uint32_t low = text::hex_value(hex[2 * i + 1]);
    if (high > 15 || low > 15) {
      return std::nullopt;
    }
    out[i] = static_cast<std::byte>(high * 16 + low);
  }
  return out;
}

CacheService::CacheService(CacheServiceOptions options, Clock& clock, Metrics& metrics)
    : options_(std::move(options)),
      clock_(clock),
      metrics_(metrics),
      folder_left_(options_.folder_bytes) {
  const MetricLabels host = {{"tier", "host"}};
  blocks_gauge_ = metrics.gauge("stator_kv_tier_blocks", "KV blocks in the tier", host);
  bytes_gauge_ = metrics.gauge("stator_kv_tier_bytes", "bytes of the tier's blocks", host);
  metrics.gauge("stator_kv_tier_bytes_max", "bytes that fit into the tier", host)
      .set(static_cast<double>(options_.host_bytes));
  puts_ = metrics.counter("stator_kv_store_puts_total", "blocks taken");
  refused_ = metrics.counter("stator_kv_store_refused_total",
                             "blocks not taken: damaged, or not what they were called");
  hits_ = metrics.counter("stator_kv_store_hits_total", "blocks given");
  misses_ = metrics.counter("stator_kv_store_misses_total", "blocks asked for in vain");
  evictions_ =
      metrics.counter("stator_kv_evictions_total", "blocks evicted from the tier for others", host);
}

void CacheService::recover() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder, error)) {
    const auto space = parse_digest(entry.path().filename().string());
    const auto folder = read_disk_folder(entry.path().string());
    if (!space || !folder || folder->space != *space) {
      continue;
    }
    open_space(*space, folder->block_bytes, folder->block_tokens);
  }
}

/// Null: no folder, or one that cannot be used.
DiskTier* CacheService::open_space(const Digest& space, uint64_t block_bytes,
                                   uint32_t block_tokens) {
  const MutexLock lock(mutex_);
  const auto [found, is_new] = spaces_.try_emplace(space);
  if (!is_new || options_.folder.empty()) {
    return found->second.get();
  }
  const std::string folder = options_.folder + "/" + to_hex(space);
  const auto there = read_disk_folder(folder);
  const uint64_t bytes = there ? there->slots * disk_stride(there->block_bytes) : folder_left_ / 2;
  auto disk = DiskTier::open({.folder = folder,
                              .bytes = bytes,
                              .block_bytes = block_bytes,
                              .block_tokens = block_tokens,
                              .space = space},
                             clock_, metrics_);
  if (!disk) {
    log::error("store", "a namespace stays in memory only",
               {{"folder", folder}, {"reason", disk.error().message()}});
    return nullptr;
  }
  folder_left_ -= std::min(folder_left_, bytes);
  found->second = std::move(*disk);
  return found->second.get();
}

Status CacheService::put(const Digest& space, const kv::LineageHash& name, std::string record) {
  const auto bytes = bytes_of(record);
  auto header = bytes.size() < BlockHeader::kBytes
                    ? Result<BlockHeader>(Error(Code::kCorrupt, "shorter than a header"))
                    : decode_header(bytes.first(BlockHeader::kBytes));
  Status good = header ? check_payload(*header, bytes.subspan(BlockHeader::kBytes))
                       : Status(std::move(header.error()));
  if (good && (header->space != space || header->name.lineage != name)) {
    good = Error(Code::kInvalidArgument, "the record is another block than its address says");
  }
  if (!good) {
    refused_.add();
    return good;
  }
  DiskTier* const disk =
      open_space(space, header->payload_bytes, static_cast<uint32_t>(header->tokens.size()));
  const Key key{space, name};
  auto shared = std::make_shared<const std::string>(std::move(record));
  const bool to_disk = disk != nullptr && disk->wants(header->name) &&
                       disk->options().block_bytes == header->payload_bytes;
  {
    const MutexLock lock(mutex_);
    if (by_key_.contains(key)) {
      return Error(Code::kAlreadyExists, "the block is there");
    }
    keep(key, shared);
    update_gauges();
  }
  puts_.add();
  if (to_disk) {
    disk->write({.name = header->name,
                 .parent = header->parent,
                 .tokens = header->tokens,
                 .payload = bytes_of(*shared).subspan(BlockHeader::kBytes)})
        .ignore("memory has it");
  }
  return {};
}

void CacheService::keep(const Key& key, std::shared_ptr<const std::string> record) {
  if (record->size() > options_.host_bytes || by_key_.contains(key)) {
    return;
  }
  bytes_ += record->size();
  entries_.push_front({.key = key, .record = std::move(record)});
  by_key_.emplace(key, entries_.begin());
  while (bytes_ > options_.host_bytes) {  // C2
    bytes_ -= entries_.back().record->size();
    by_key_.erase(entries_.back().key);
    entries_.pop_back();
    evictions_.add();
  }
}

std::optional<BlockName> CacheService::on_disk(const Key& key) {
  const auto space = spaces_.find(key.space);
  if (space == spaces_.end() || space->second == nullptr) {
    return std::nullopt;
  }
  return space->second->find(key.name);
}

Result<std::shared_ptr<const std::string>> CacheService::get(const Digest& space,
                                                             const kv::LineageHash& name) {
  const Key key{space, name};
  std::optional<BlockName> stored;
  DiskTier* disk = nullptr;
  {
    const MutexLock lock(mutex_);
    if (const auto found = by_key_.find(key); found != by_key_.end()) {
      entries_.splice(entries_.begin(), entries_, found->second);
      hits_.add();
      return found->second->record;
    }
    stored = on_disk(key);
    disk = stored ? spaces_.find(space)->second.get() : nullptr;
  }
  if (disk != nullptr) {
    const AlignedBuffer payload(disk->options().block_bytes);
    auto header = disk->read_with_header(*stored, payload.bytes());
    if (header) {
      std::string record(BlockHeader::kBytes + payload.bytes().size(), '\0');
      encode(*header, std::as_writable_bytes(std::span(record)).first(BlockHeader::kBytes));
      std::memcpy(record.data() + BlockHeader::kBytes, payload.bytes().data(),
                  payload.bytes().size());
      auto shared = std::make_shared<const std::string>(std::move(record));
      const MutexLock lock(mutex_);
      keep(key, shared);
      update_gauges();
      hits_.add();
      return shared;
    }
  }
  misses_.add();
  return Error(Code::kNotFound, "no such block");
}

size_t CacheService::count(const Digest& space, std::span<const kv::LineageHash> names) {
  const MutexLock lock(mutex_);
  size_t found = 0;
  while (found < names.size()) {
    const Key key{space, names[found]};
    if (!by_key_.contains(key) && !on_disk(key)) {
      break;
    }
    ++found;
  }
  return found;
}

std::vector<CacheService::Range> CacheService::ranges(std::span<const kv::LineageHash> names) {
  std::vector<Range> out;
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < names.size(); ++i) {
    bool there = false;
    for (const auto& [space, disk] : spaces_) {
      const Key key{space, names[i]};
      there = there || by_key_.contains(key) || on_disk(key).has_value();
    }
    if (!there) {
      continue;
    }
    if (out.empty() || out.back().behind != i) {
      out.push_back({.first = i, .behind = i});
    }
    out.back().behind = i + 1;
  }
  return out;
}

void CacheService::update_gauges() {
  blocks_gauge_.set(static_cast<double>(entries_.size()));
  bytes_gauge_.set(static_cast<double>(bytes_));
}

}  // namespace stator::storage
