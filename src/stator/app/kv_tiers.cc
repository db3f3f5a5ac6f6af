// SPDX-License-Identifier: Apache-2.0
#include "stator/app/kv_tiers.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "stator/app/terminal.h"
#include "stator/core/hash.h"
#include "stator/core/log.h"
#include "stator/io/mapped_file.h"
#include "stator/storage/http_store.h"
#include "stator/storage/kept_store.h"
#include "stator/storage/open_object_store.h"

namespace stator::app {
namespace {

/// Azure's own variables speak for az://, where the settings say nothing.
storage::AwsCredentials credentials_of(const KvSettings& settings) {
  const bool azure = settings.object.starts_with("az://");
  const auto or_env = [&](const std::string& given, const std::string& variable) {
    return azure ? read_env(variable).value_or(given) : given;
  };
  return {.access_key = or_env(settings.object_access_key, "AZURE_STORAGE_ACCOUNT"),
          .secret_key = or_env(settings.object_secret_key, "AZURE_STORAGE_KEY"),
          .session_token = or_env(settings.object_session_token, "AZURE_STORAGE_SAS_TOKEN"),
          .region = settings.object_region};
}

/// Tiers that only need host memory to load into get this share of the device's blocks.
constexpr uint32_t kStagingDivisor = 4;
constexpr uint32_t kStagingBlocksMin = 16;
constexpr uint32_t kHostBlocksMax = 1U << 28;
constexpr uint32_t kDiskThreads = 4;
constexpr uint32_t kStoreThreads = 16;

/// Digest of everything that makes the model what it is: two with equal weights and configuration
/// are one, wherever their files are. Reads them once, from the page cache that loading filled.
Result<std::string> read_revision(const std::string& model) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  std::error_code error;
  if (fs::is_directory(model, error)) {
    for (const auto& entry : fs::directory_iterator(model, error)) {
      const std::string extension = entry.path().extension().string();
      if (entry.path().filename() == "config.json" || extension == ".safetensors" ||
          extension == ".gguf") {
        files.push_back(entry.path());
      }
    }
  } else {
    files.emplace_back(model);
  }
  std::ranges::sort(files);
  std::string revision;
  for (const fs::path& file : files) {
    STATOR_TRY(const auto mapped, io::MappedFile::open(file.string()), "naming KV blocks");
    revision += fmt::format("{}:{}:{:016x};", file.filename().string(), mapped.bytes().size(),
                            xxh3_64(mapped.bytes()));
  }
  return revision;
}

void add_gauges(Metrics& metrics, const std::shared_ptr<storage::LowerTiers>& tiers) {
  const storage::DiskTier* const disk = tiers->disk();
  if (disk == nullptr) {
    return;
  }
  const MetricLabels tier = {{"tier", "disk"}};
  // A scrape may come when the tiers are gone.
  const auto read = [weak = std::weak_ptr(tiers)](auto value) {
    return [weak, value] {
      const auto alive = weak.lock();
      return alive == nullptr ? 0.0 : static_cast<double>(value(*alive->disk()));
    };
  };
  using Disk = storage::DiskTier;
  metrics
      .gauge("stator_kv_tier_info", "1; the labels say where the tier is",
             {{"tier", "disk"}, {"folder", disk->options().folder}})
      .set(1);
  metrics.gauge_callback("stator_kv_tier_blocks", "KV blocks in the tier", tier,
                         read([](const Disk& d) { return d.stored(); }));
  metrics.gauge_callback("stator_kv_tier_blocks_max", "KV blocks that fit into the tier", tier,
                         read([](const Disk& d) { return d.slots(); }));
  metrics.gauge_callback("stator_kv_tier_bytes", "bytes of the tier's blocks", tier,
                         read([](const Disk& d) { return d.stored() * d.block_stride(); }));
  metrics.gauge_callback("stator_kv_g3_recovered_blocks", "KV blocks found on disk at the start",
                         {}, read([](const Disk& d) { return d.recovered(); }));
  metrics.counter_callback("stator_kv_evictions_total", "blocks evicted from the tier for others",
                           tier, read([](const Disk& d) { return d.evicted_total(); }));
}

/// Null when none is configured, and, said once, when its folder cannot be used.
std::unique_ptr<storage::DiskTier> open_disk(const KvSettings& settings, const KvModel& model,
                                             Clock& clock, Metrics& metrics) {
  if (settings.disk.empty()) {
    return nullptr;
  }
  auto opened =
      storage::DiskTier::open({.folder = settings.disk,
                               .bytes = settings.wanted_disk_bytes(model.layout.block_bytes()),
                               .block_bytes = model.layout.block_bytes(),
                               .block_tokens = model.layout.block_size,
                               .space = model.space,
                               .wipe_foreign = settings.disk_on_mismatch == "wipe",
                               .direct = settings.disk_direct,
                               .uring = settings.disk_uring,
                               .write_bytes_per_day = settings.disk_write_bytes_per_day},
                              clock, metrics);
  if (!opened) {
    log::error("kv", "the disk tier is switched off; serving goes on without it",
               {{"folder", settings.disk}, {"reason", opened.error().message()}});
    return nullptr;
  }
  log::info("kv", "disk tier ready",
            {{"folder", settings.disk},
             {"namespace", storage::to_hex(model.space)},
             {"blocks_max", (*opened)->slots()},
             {"io_uring", (*opened)->batches()},
             {"recovered", (*opened)->recovered()}});
  return std::move(*opened);
}

/// Null when none is configured and, said once, when it cannot be used.
std::unique_ptr<storage::BlockStore> open_kept(const KvSettings& settings, const KvModel& model,
                                               Metrics& metrics) {
  if (settings.kept.empty()) {
    return nullptr;
  }
  auto memory = storage::KeptMemory::take(settings.kept, settings.kept_name, settings.kept_bytes);
  auto opened =
      memory ? storage::KeptStore::open(std::move(*memory), model.space, model.layout.block_bytes())
             : Result<std::unique_ptr<storage::KeptStore>>(std::move(memory.error()));
  if (!opened) {
    metrics
        .gauge("stator_kv_tier_enabled", "1: the tier takes blocks; 0: an error switched it off",
               {{"tier", "kept"}})
        .set(0);
    log::error("kv", "kept memory is not used; serving goes on without it",
               {{"socket", settings.kept}, {"reason", opened.error().message()}});
    return nullptr;
  }
  log::info("kv", "kept memory ready",
            {{"socket", settings.kept},
             {"name", settings.kept_name},
             {"blocks_max", (*opened)->slots()},
             {"recovered", (*opened)->recovered()}});
  return std::move(*opened);
}

}  // namespace

Result<storage::Digest> kv_namespace(const KvSettings& settings, const KvModel& model) {
  STATOR_TRY(std::string revision, read_revision(model.folder));
  const engine::cpu::KvLayout& layout = model.layout;
  return storage::namespace_of({.model = "stator-cpu",
                                .revision = std::move(revision),
                                .dtype = std::string(to_string(layout.type)),
                                .layout = fmt::format("head_major/{}", layout.version),
                                .salt = settings.salt,
                                .block_tokens = layout.block_size,
                                .layers = layout.layers,
                                .kv_heads = layout.kv_heads,
                                .head_dim = layout.head_dim,
                                .block_bytes = layout.block_bytes()});
}

uint32_t staging_blocks(uint32_t device_blocks) {
  return std::max(kStagingBlocksMin, device_blocks / kStagingDivisor);
}

uint32_t host_blocks(const KvSettings& settings, uint64_t block_bytes, uint32_t device_blocks) {
  const uint64_t wanted = settings.wanted_host_bytes() / block_bytes;
  if (wanted == 0 && settings.any_lower()) {
    return staging_blocks(device_blocks);
  }
  return static_cast<uint32_t>(std::min<uint64_t>(wanted, kHostBlocksMax));
}

Result<std::shared_ptr<storage::LowerTiers>> open_lower_tiers(const KvSettings& settings,
                                                              const KvModel& model, Clock& clock,
                                                              Metrics& metrics) {
  if (!settings.any_lower()) {
    return std::shared_ptr<storage::LowerTiers>();
  }
  const storage::Digest& space = model.space;
  const uint64_t block_bytes = model.layout.block_bytes();
  std::unique_ptr<storage::DiskTier> disk = open_disk(settings, model, clock, metrics);
  std::vector<std::unique_ptr<storage::BlockStore>> stores;
  if (auto kept = open_kept(settings, model, metrics)) {
    stores.push_back(std::move(kept));
  }
  if (!settings.store.empty()) {
    stores.push_back(std::make_unique<storage::HttpStore>(settings.store, space));
  }
  if (!settings.object.empty()) {
    STATOR_TRY(auto store, storage::open_object_store({.url = settings.object,
                                                       .endpoint = settings.object_endpoint,
                                                       .credentials = credentials_of(settings)},
                                                      space, clock, metrics));
    if (store != nullptr) {
      stores.push_back(std::move(store));
    }
  }
  if (disk == nullptr && stores.empty()) {
    return std::shared_ptr<storage::LowerTiers>();
  }
  auto tiers = std::make_shared<storage::LowerTiers>(
      storage::LowerTiersOptions{.space = space,
                                 .block_bytes = block_bytes,
                                 .block_tokens = model.layout.block_size,
                                 .io_threads = stores.empty() ? kDiskThreads : kStoreThreads},
      std::move(disk), std::move(stores), clock, metrics);
  add_gauges(metrics, tiers);
  return tiers;
}

}  // namespace stator::app
