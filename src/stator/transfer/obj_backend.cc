// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <memory>
#include <string>

#include "stator/core/mutex.h"
#include "stator/storage/object_client.h"
#include "stator/transfer/backend.h"

namespace stator::transfer {
namespace {

/// Objects of an S3 bucket or a container of Azure's, by key. A transfer moves whole objects:
/// offset 0.
class ObjBackend final : public Backend {
 public:
  ObjBackend(std::unique_ptr<storage::ObjectDialect> dialect, std::string prefix, Clock& clock,
             Metrics& metrics)
      : client_(std::move(dialect), {.prefix = std::move(prefix)}, clock, metrics) {}

  std::string_view type() const override { return "obj"; }
  bool moves_one_by_one() const override { return true; }
  bool supports(MemType local, MemType remote) const override {
    return local == MemType::kDram && remote == MemType::kObj;
  }
  Outcome open(MemType /*type*/, std::string_view meta, uint64_t& dev) override {
    if (meta.empty()) {
      return Outcome::kInvalidParam;
    }
    const MutexLock lock(mutex_);
    dev = ++last_;
    keys_.emplace(dev, client_.options().prefix.empty()
                           ? std::string(meta)
                           : client_.options().prefix + "/" + std::string(meta));
    return Outcome::kSuccess;
  }
  void close(uint64_t dev) override {
    const MutexLock lock(mutex_);
    keys_.erase(dev);
  }

  Ended run(const Job& job) override {
    for (size_t i = 0; i < job.pairs.size(); ++i) {
      const Pair pair = job.pairs[i];
      const std::string key = find(pair.remote.dev);
      if (*job.canceled || key.empty() || pair.remote.addr != 0) {
        return {.outcome = *job.canceled ? Outcome::kCanceled
                           : key.empty() ? Outcome::kNotFound
                                         : Outcome::kNotSupported,
                .failed_pair = i,
                .cause = "objects are moved whole, from offset 0"};
      }
      const std::span<std::byte> memory(reinterpret_cast<std::byte*>(pair.local.addr),
                                        pair.local.len);
      const Status done = job.op == Op::kWrite
                              ? client_.put(key, memory, storage::ObjectClient::Put::kAny)
                              : client_.get(key, memory);
      if (!done) {
        return {.outcome =
                    done.error().code() == Code::kNotFound ? Outcome::kNotFound : Outcome::kBackend,
                .failed_pair = i,
                .cause = done.error().message()};
      }
    }
    return {};
  }

 private:
  std::string find(uint64_t dev) {
    const MutexLock lock(mutex_);
    const auto found = keys_.find(dev);
    return found == keys_.end() ? std::string() : found->second;
  }

  storage::ObjectClient client_;
  Mutex mutex_;
  std::map<uint64_t, std::string> keys_ STATOR_GUARDED_BY(mutex_);
  uint64_t last_ STATOR_GUARDED_BY(mutex_) = 0;
};

}  // namespace

std::unique_ptr<Backend> make_obj_backend(const Params& params, Clock& clock, Metrics& metrics,
                                          std::string& cause) {
  const auto text = [&](std::string_view key, std::string fallback = {}) {
    const auto found = params.find(key);
    return found == params.end() ? std::move(fallback) : found->second;
  };
  const std::string container = text("container");
  if (!container.empty()) {
    auto dialect =
        storage::make_azure_dialect({.container = container,
                                     .prefix = {},
                                     .endpoint = text("endpoint_override"),
                                     .account = text("account", text("access_key")),
                                     .key = text("key", text("secret_key")),
                                     .sas_token = text("sas_token", text("session_token"))});
    if (!dialect) {
      cause = dialect.error().message();
      return nullptr;
    }
    return std::make_unique<ObjBackend>(std::move(*dialect), text("prefix"), clock, metrics);
  }
  const storage::S3Options options{.bucket = text("bucket"),
                                   .prefix = {},
                                   .endpoint = text("endpoint_override"),
                                   .credentials = {.access_key = text("access_key"),
                                                   .secret_key = text("secret_key"),
                                                   .session_token = text("session_token"),
                                                   .region = text("region", "us-east-1")}};
  if (options.bucket.empty()) {
    cause = "bucket (S3) or container (Azure) is missing";
    return nullptr;
  }
  return std::make_unique<ObjBackend>(storage::make_s3_dialect(options), text("prefix"), clock,
                                      metrics);
}

}  // namespace stator::transfer
