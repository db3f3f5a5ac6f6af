// SPDX-License-Identifier: Apache-2.0
#include "stator/app/kv_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "stator/storage/budgets.h"
#include "stator/storage/disk_tier.h"

namespace stator::app {
namespace {

constexpr double kBytesPerGb = 1e9;
/// Where a disk size without a folder puts it.
constexpr std::string_view kDiskFolder = "/var/lib/stator/kv";

using Env = std::function<std::optional<std::string>(const std::string&)>;

bool is_true(const std::optional<std::string>& value) {
  return value && (*value == "1" || *value == "true" || *value == "True" || *value == "TRUE" ||
                   *value == "yes" || *value == "on");
}

/// Dynamo's object tier in our words.
void read_dynamo_object(KvSettings& kv, const Env& env) {
  if (!kv.object.empty() || !is_true(env("DYN_KVBM_OBJECT_ENABLED"))) {
    return;
  }
  kv.object = fmt::format("s3://{}/{}", env("DYN_KVBM_OBJECT_BUCKET").value_or("kvbm-blocks"),
                          env("DYN_KVBM_OBJECT_PREFIX").value_or("kv"));
  const std::pair<std::string*, const char*> rest[] = {
      {&kv.object_endpoint, "DYN_KVBM_OBJECT_ENDPOINT"},
      {&kv.object_region, "DYN_KVBM_OBJECT_REGION"},
      {&kv.object_access_key, "DYN_KVBM_OBJECT_ACCESS_KEY"},
      {&kv.object_secret_key, "DYN_KVBM_OBJECT_SECRET_KEY"}};
  for (const auto& [setting, variable] : rest) {
    *setting = env(variable).value_or(*setting);
  }
}

/// HOST:PORT, perhaps behind http://.
bool is_address(std::string_view text) {
  if (const size_t scheme = text.find("://"); scheme != std::string_view::npos) {
    text.remove_prefix(scheme + 3);
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) {
    return false;
  }
  const std::string_view digits = text.substr(colon + 1);
  uint32_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  return error == std::errc() && end == digits.data() + digits.size() && port > 0 && port <= 65535;
}

void describe_object(ConfigSchema& schema, KvSettings& kv) {
  schema.text(
      "kv.object", kv.object,
      "where KV blocks are shared with other hosts: s3://BUCKET/PREFIX, az://CONTAINER/PREFIX "
      "(Azure Blob, with AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY), or file:///FOLDER on "
      "a shared file system (cpu engine)",
      {.flag = "kv-object"});
  schema.text("kv.object_endpoint", kv.object_endpoint,
              "address of another S3 server than Amazon's: http://HOST:PORT; of another Azure: "
              "http://HOST:PORT/ACCOUNT",
              {.flag = "kv-object-endpoint", .env_peer = "AWS_ENDPOINT_URL"});
  schema.text("kv.object_region", kv.object_region, "its region", {.env_peer = "AWS_REGION"});
  schema.secret("kv.object_access_key", kv.object_access_key, "who is asking",
                {.env_peer = "AWS_ACCESS_KEY_ID"});
  schema.secret("kv.object_secret_key", kv.object_secret_key, "the key that signs",
                {.env_peer = "AWS_SECRET_ACCESS_KEY"});
  schema.secret("kv.object_session_token", kv.object_session_token, "of temporary credentials",
                {.env_peer = "AWS_SESSION_TOKEN"});
}

}  // namespace

uint64_t KvSettings::wanted_host_bytes() const {
  return host_bytes > 0 ? host_bytes : static_cast<uint64_t>(host_gb * kBytesPerGb);
}

uint64_t KvSettings::wanted_disk_bytes(uint64_t block_bytes) const {
  if (disk_blocks > 0 && block_bytes > 0) {
    return disk_blocks * storage::disk_stride(block_bytes);
  }
  return disk_bytes > 0 ? disk_bytes : static_cast<uint64_t>(disk_gb * kBytesPerGb);
}

void describe_kv(ConfigSchema& schema, KvSettings& kv) {
  schema.choice("kv.eviction", kv.eviction, {"lru", "multi_lru", "lineage", "value"},
                "which idle KV block of the engine's cache goes first (engines cpu and sim): "
                "released longest ago; fewest hits, then that; registered longest ago; least "
                "hits × cost of computing it again",
                {.flag = "kv-eviction"});
  schema.bytes("kv.host_bytes", kv.host_bytes,
               "host memory per worker for KV blocks evicted from the engine's cache (cpu engine), "
               "0 = none",
               {.flag = "kv-host-bytes"});
  schema.number("kv.host_gb", kv.host_gb, 0, 1e6,
                "the same in units of 10^9 bytes; kv.host_bytes goes first",
                {.env_peer = "DYN_KVBM_CPU_CACHE_GB"});
  schema.text("kv.disk", kv.disk,
              "folder on an SSD for KV blocks, kept over restarts; one process each (cpu engine)",
              {.flag = "kv-disk", .env_peer = "DYN_KVBM_DISK_CACHE_DIR"});
  schema.bytes("kv.disk_bytes", kv.disk_bytes, "how much of it, reserved at the start",
               {.flag = "kv-disk-bytes"});
  schema.number("kv.disk_gb", kv.disk_gb, 0, 1e6,
                "the same in units of 10^9 bytes; kv.disk_bytes goes first",
                {.env_peer = "DYN_KVBM_DISK_CACHE_GB"});
  schema.integer("kv.disk_blocks", kv.disk_blocks, 0, 1ULL << 26,
                 "the same in KV blocks; goes before both",
                 {.flag = "kv-disk-blocks", .env_peer = "DYN_KVBM_DISK_CACHE_OVERRIDE_NUM_BLOCKS"});
  schema.choice("kv.disk_on_mismatch", kv.disk_on_mismatch, {"refuse", "wipe"},
                "a folder of another model, type or block size: the tier stays off, or the folder "
                "is emptied",
                {.flag = "kv-disk-on-mismatch"});
  schema.boolean("kv.disk_direct", kv.disk_direct,
                 "read and write past the page cache, where the file system can",
                 {.flag = "kv-disk-direct"});
  schema.boolean(
      "kv.disk_uring", kv.disk_uring,
      "read a prompt's blocks by io_uring, many at once per thread, where the kernel has "
      "it; else one per thread",
      {.flag = "kv-disk-uring"});
  schema.bytes("kv.disk_write_bytes_per_day", kv.disk_write_bytes_per_day,
               "spares the SSD: what is written a day at most, 0 = no limit",
               {.flag = "kv-disk-write-bytes-per-day"});
  describe_object(schema, kv);
  schema.text(
      "kv.kept", kv.kept,
      "socket of a `stator kv hold`, whose memory keeps KV blocks when this process crashes "
      "or restarts (cpu engine)",
      {.flag = "kv-kept"});
  schema.bytes("kv.kept_bytes", kv.kept_bytes, "how much of it", {.flag = "kv-kept-bytes"});
  schema.text("kv.kept_name", kv.kept_name,
              "whose memory there it is: one process each, which finds it again by this name",
              {.flag = "kv-kept-name"});
  schema.text("kv.store", kv.store,
              "HOST:PORT of a `stator store` that engines share blocks through, or discover: a "
              "worker finds "
              "one through its discovery (cpu engine)",
              {.flag = "kv-store"});
  schema.text("kv.salt", kv.salt,
              "part of the namespace of KV blocks: engines with another one share nothing",
              {.flag = "kv-salt"});
  schema.duration("kv.load_timeout", kv.load_timeout,
                  "how long a request waits at most for blocks of tiers below host memory",
                  {.flag = "kv-load-timeout"});
}

Status settle_kv(KvSettings& kv, const Env& env) {
  read_dynamo_object(kv, env);
  kv.disk_direct = kv.disk_direct && !is_true(env("DYN_KVBM_DISK_DISABLE_O_DIRECT"));
  if (kv.disk.empty() && (kv.disk_gb > 0 || kv.disk_blocks > 0)) {
    kv.disk = kDiskFolder;
  }
  if (kv.disk.empty() != (kv.wanted_disk_bytes(1) == 0)) {
    return Error(Code::kInvalidArgument,
                 "kv.disk (a folder) and kv.disk_bytes (how much of it) are set together");
  }
  if (kv.kept.empty() != (kv.kept_bytes == 0)) {
    return Error(Code::kInvalidArgument,
                 "kv.kept (the socket of a stator kv hold) and kv.kept_bytes (how much of its "
                 "memory) are set together");
  }
  if (!kv.store.empty() && kv.store != "discover" && !is_address(kv.store)) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("kv.store (flag --kv-store): '{}' is not HOST:PORT or discover", kv.store));
  }
  const std::string& endpoint = kv.object_endpoint;
  if (!kv.object.empty() && !endpoint.empty() && !endpoint.starts_with("http://") &&
      !endpoint.starts_with("https://")) {
    return Error(Code::kInvalidArgument,
                 fmt::format("kv.object_endpoint (flag --kv-object-endpoint): '{}' is not of the "
                             "form http://HOST:PORT or https://HOST",
                             endpoint));
  }
  return {};
}

Status check_budgets(const KvSettings& settings, uint64_t workers, uint64_t cache_bytes) {
  if (!settings.any()) {
    return {};
  }
  const uint64_t per_worker = cache_bytes + settings.wanted_host_bytes();
  const uint64_t memory = storage::memory_limit();
  const uint64_t usable = memory - memory / 10;
  const uint64_t kept = settings.kept.empty() ? 0 : settings.kept_bytes;
  if (kept > usable || per_worker > (usable - kept) / std::max<uint64_t>(workers, 1)) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("{} workers × ({} bytes engine.kv_cache_bytes + {} bytes kv.host_bytes) + {} "
                    "bytes kv.kept_bytes are more than 90 % of the {} bytes of memory this process "
                    "may use: lower one",
                    workers, cache_bytes, settings.wanted_host_bytes(), kept, memory));
  }
  if (settings.disk.empty()) {
    return {};
  }
  const uint64_t wanted = settings.wanted_disk_bytes();
  const std::optional<uint64_t> room = storage::disk_room(settings.disk);
  if (room && wanted > *room - *room / 20) {
    return Error(Code::kInvalidArgument,
                 fmt::format("kv.disk_bytes {} is more than 95 % of the {} free bytes of the disk "
                             "of {}: lower it or use another folder",
                             wanted, *room, settings.disk));
  }
  return {};
}

}  // namespace stator::app
