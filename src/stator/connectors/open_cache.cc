// SPDX-License-Identifier: Apache-2.0
#include "stator/connectors/open_cache.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/log.h"
#include "stator/storage/budgets.h"
#include "stator/storage/http_store.h"

namespace stator::connectors {
namespace {

constexpr uint32_t kDiskThreads = 4;
constexpr uint32_t kStoreThreads = 16;

Status check_budgets(const OpenOptions& options) {
  const uint64_t memory = storage::memory_limit();
  if (options.host_bytes > memory - memory / 10) {
    return Error(Code::kInvalidArgument,
                 fmt::format("host_bytes {} is more than 90 % of the {} bytes of memory this "
                             "process may use: lower it",
                             options.host_bytes, memory));
  }
  if (options.disk.empty() != (options.disk_bytes == 0)) {
    return Error(Code::kInvalidArgument,
                 "disk (a folder) and disk_bytes (how much of it) are set together");
  }
  const auto room = options.disk.empty() ? std::nullopt : storage::disk_room(options.disk);
  if (room && options.disk_bytes > *room - *room / 20) {
    return Error(Code::kInvalidArgument,
                 fmt::format("disk_bytes {} is more than 95 % of the {} free bytes of the disk of "
                             "{}: lower it or use another folder",
                             options.disk_bytes, *room, options.disk));
  }
  return {};
}

/// Null, and said once, when it cannot be used.
std::unique_ptr<storage::DiskTier> open_disk(const OpenOptions& options,
                                             const storage::Digest& space, Clock& clock,
                                             Metrics& metrics) {
  if (options.disk.empty()) {
    return nullptr;
  }
  auto disk = storage::DiskTier::open({.folder = options.disk,
                                       .bytes = options.disk_bytes,
                                       .block_bytes = options.facts.block_bytes,
                                       .block_tokens = options.facts.block_tokens,
                                       .space = space,
                                       .wipe_foreign = options.disk_wipe,
                                       .write_bytes_per_day = options.disk_write_bytes_per_day},
                                      clock, metrics);
  if (!disk) {
    log::error("kv", "the disk tier is switched off; serving goes on without it",
               {{"folder", options.disk}, {"reason", disk.error().message()}});
    return nullptr;
  }
  log::info("kv", "disk tier ready",
            {{"folder", options.disk},
             {"namespace", storage::to_hex(space)},
             {"blocks_max", (*disk)->slots()},
             {"recovered", (*disk)->recovered()}});
  return std::move(*disk);
}

void add_gauges(Metrics& metrics, const EngineCache& cache) {
  using Stats = EngineCache::Stats;
  const auto add = [&](std::string_view name, std::string_view help, std::string_view tier,
                       auto value) {
    metrics.gauge_callback(name, help, {{"tier", std::string(tier)}},
                           [&cache, value] { return static_cast<double>(value(cache.stats())); });
  };
  const uint64_t bytes = cache.options().block_bytes;
  constexpr std::string_view kBlocks = "KV blocks in the tier";
  constexpr std::string_view kBlocksMax = "KV blocks that fit into the tier";
  constexpr std::string_view kBytes = "bytes of the tier's blocks";
  add("stator_kv_tier_blocks", kBlocks, "host", [](const Stats& s) { return s.host_blocks; });
  add("stator_kv_tier_blocks", kBlocks, "disk", [](const Stats& s) { return s.disk_blocks; });
  add("stator_kv_tier_blocks_max", kBlocksMax, "host", [](const Stats& s) { return s.host_slots; });
  add("stator_kv_tier_blocks_max", kBlocksMax, "disk", [](const Stats& s) { return s.disk_slots; });
  add("stator_kv_tier_bytes", kBytes, "host",
      [bytes](const Stats& s) { return s.host_blocks * bytes; });
  add("stator_kv_tier_bytes", kBytes, "disk",
      [bytes](const Stats& s) { return s.disk_blocks * bytes; });
  add("stator_kv_pins", "KV blocks that cannot be evicted now", "host",
      [](const Stats& s) { return s.host_pinned; });
  metrics.gauge_callback("stator_kv_queue_depth", "KV blocks that wait for their way down",
                         {{"lane", "host_to_lower"}},
                         [&cache] { return static_cast<double>(cache.stats().waiting_down); });
  metrics.counter_callback("stator_kv_evictions_total", "blocks evicted from the tier for others",
                           {{"tier", "host"}},
                           [&cache] { return static_cast<double>(cache.stats().host_evictions); });
  metrics.gauge_callback(
      "kvbm_host_cache_hit_rate", "blocks found, of those asked for", {}, [&cache] {
        const Stats s = cache.stats();
        return s.lookup_blocks == 0
                   ? 0.0
                   : static_cast<double>(s.hit_blocks) / static_cast<double>(s.lookup_blocks);
      });
}

}  // namespace

Result<std::unique_ptr<EngineCache>> open_cache(const OpenOptions& options, Clock& clock,
                                                Metrics& metrics) {
  STATOR_CHECK(check_budgets(options));
  const storage::Digest space = storage::namespace_of(options.facts);
  std::unique_ptr<storage::DiskTier> disk = open_disk(options, space, clock, metrics);
  std::vector<std::unique_ptr<storage::BlockStore>> stores;
  if (!options.store.empty()) {
    constexpr std::string_view kScheme = "store://";
    std::string_view address = options.store;
    address.remove_prefix(address.starts_with(kScheme) ? kScheme.size() : 0);
    stores.push_back(std::make_unique<storage::HttpStore>(address, space));
  }
  if (!options.object.url.empty()) {
    STATOR_TRY(auto store, storage::open_object_store(options.object, space, clock, metrics));
    if (store != nullptr) {
      stores.push_back(std::move(store));
    }
  }
  std::unique_ptr<storage::LowerTiers> lower;
  if (disk != nullptr || !stores.empty()) {
    const uint32_t threads = stores.empty() ? kDiskThreads : kStoreThreads;
    lower = std::make_unique<storage::LowerTiers>(
        storage::LowerTiersOptions{.space = space,
                                   .block_bytes = options.facts.block_bytes,
                                   .block_tokens = options.facts.block_tokens,
                                   .io_threads = threads,
                                   .saves_from = storage::SaveSource::kHost},
        std::move(disk), std::move(stores), clock, metrics);
  }
  STATOR_TRY(auto cache, EngineCache::create({.space = space,
                                              .block_bytes = options.facts.block_bytes,
                                              .block_tokens = options.facts.block_tokens,
                                              .host_bytes = options.host_bytes,
                                              .copy_threads = options.copy_threads,
                                              .verify_host = options.verify_host},
                                             std::move(lower), clock, metrics));
  add_gauges(metrics, *cache);
  return cache;
}

}  // namespace stator::connectors
