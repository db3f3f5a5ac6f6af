// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/open_object_store.h"

#include <string_view>
#include <utility>

#include "stator/core/log.h"
#include "stator/storage/file_store.h"
#include "stator/storage/object_store.h"

namespace stator::storage {
namespace {

constexpr std::string_view kFile = "file://";

struct Opened {
  std::unique_ptr<ObjectDialect> dialect;
  std::string prefix;
};

Result<Opened> open_dialect(const ObjectStoreOptions& options) {
  if (options.url.starts_with("az://")) {
    STATOR_TRY(AzureOptions azure, parse_azure_url(options.url));
    azure.endpoint = options.endpoint;
    azure.account = options.credentials.access_key;
    azure.key = options.credentials.secret_key;
    azure.sas_token = options.credentials.session_token;
    STATOR_TRY(auto dialect, make_azure_dialect(azure));
    return Opened{.dialect = std::move(dialect), .prefix = azure.prefix};
  }
  STATOR_TRY(S3Options s3, parse_s3_url(options.url));
  s3.endpoint = options.endpoint;
  s3.credentials = options.credentials;
  return Opened{.dialect = make_s3_dialect(s3), .prefix = s3.prefix};
}

}  // namespace

Result<std::unique_ptr<BlockStore>> open_object_store(const ObjectStoreOptions& options,
                                                      const Digest& space, Clock& clock,
                                                      Metrics& metrics) {
  std::unique_ptr<BlockStore> out;
  Status usable;
  if (options.url.starts_with(kFile)) {
    auto store = std::make_unique<FileStore>(options.url.substr(kFile.size()), space);
    usable = store->check();
    out = std::move(store);
  } else {
    STATOR_TRY(Opened opened, open_dialect(options), "kv.object");
    auto store = std::make_unique<ObjectStore>(
        std::move(opened.dialect), ObjectClientOptions{.prefix = std::move(opened.prefix)}, space,
        clock, metrics);
    usable = store->check();
    out = std::move(store);
  }
  // One that is away for a while may come back; one that says no will not change its mind.
  const bool away = !usable && (usable.error().code() == Code::kUnavailable ||
                                usable.error().code() == Code::kDeadline ||
                                usable.error().code() == Code::kDisconnected);
  if (!usable && !away) {
    log::error("kv", "the object tier is switched off; serving goes on without it",
               {{"object", options.url}, {"reason", usable.error().message()}});
    metrics
        .gauge("stator_kv_tier_enabled", "1: the tier takes blocks; 0: an error switched it off",
               {{"tier", "object"}})
        .set(0);
    return std::unique_ptr<BlockStore>();
  }
  if (away) {
    log::warn("kv", "the object tier does not answer yet; it is asked again as it is needed",
              {{"object", options.url}, {"reason", usable.error().message()}});
  } else {
    log::info("kv", "object tier ready", {{"object", options.url}, {"namespace", to_hex(space)}});
  }
  return out;
}

}  // namespace stator::storage
