// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <charconv>
#include <filesystem>

#include "stator/core/log.h"
#include "stator/discovery/etcd_keys.h"
#include "stator/io/read_file.h"
#include "stator/io/replace_file.h"
#include "stator/scaling/connector.h"

namespace stator::scaling {
namespace {

constexpr uint64_t kValueBytesMax = 4096;
constexpr int64_t kUnknown = -1;

class FolderStore final : public KeyStore {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}
  Result<std::string> get(std::string_view key) override {
    auto text = io::read_file(path_of(key), kValueBytesMax);
    if (!text && text.error().code() == Code::kNotFound) {
      return std::string();
    }
    return text;
  }
  Status put(std::string_view key, std::string_view value) override {
    return io::replace_file(path_of(key), value, 0644);
  }

 private:
  std::string path_of(std::string_view key) const { return fmt::format("{}/{}", folder_, key); }
  const std::string folder_;
};

class EtcdStore final : public KeyStore {
 public:
  EtcdStore(std::unique_ptr<discovery::EtcdKeys> keys, std::string prefix)
      : keys_(std::move(keys)), prefix_(std::move(prefix)) {}
  Result<std::string> get(std::string_view key) override {
    return keys_->get(prefix_ + std::string(key));
  }
  Status put(std::string_view key, std::string_view value) override {
    return keys_->put(prefix_ + std::string(key), value);
  }

 private:
  std::unique_ptr<discovery::EtcdKeys> keys_;
  const std::string prefix_;
};

class VirtualConnector final : public Connector {
 public:
  VirtualConnector(std::unique_ptr<KeyStore> store, VirtualOptions options, const Clock& clock)
      : store_(std::move(store)), options_(options), clock_(clock) {}

  std::string_view name() const override { return "virtual"; }

  Result<PoolCounts> counts() override {
    PoolCounts out;
    STATOR_TRY(const int64_t prefill, read("num_prefill"));
    STATOR_TRY(const int64_t decode, read("num_decode"));
    if (prefill >= 0) {
      out.wanted.prefill = static_cast<uint32_t>(prefill);
    }
    if (decode >= 0) {
      out.wanted.decode = static_cast<uint32_t>(decode);
    }
    STATOR_TRY(out.unstable, pending());
    return out;
  }

  Status set(const PoolTargets& targets, std::string_view reason) override {
    STATOR_TRY(const std::string open, pending());
    if (!open.empty()) {
      return Error(Code::kUnavailable, open);
    }
    STATOR_TRY(const int64_t decision, read("decision_id"));
    waits_since_.reset();
    if (targets.prefill) {
      STATOR_CHECK(write("num_prefill", *targets.prefill));
      STATOR_CHECK(write("num_prefill_workers", *targets.prefill));
    }
    if (targets.decode) {
      STATOR_CHECK(write("num_decode", *targets.decode));
      STATOR_CHECK(write("num_decode_workers", *targets.decode));
    }
    // Last: who sees the new number sees its targets.
    STATOR_CHECK(write("decision_id", decision + 1));
    log::info("planner", "targets written", {{"decision_id", decision + 1}, {"reason", reason}});
    return {};
  }

 private:
  Result<int64_t> read(std::string_view key) {
    STATOR_TRY(std::string text, store_->get(key), key);
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
      text.pop_back();
    }
    if (text.empty()) {
      return kUnknown;
    }
    int64_t value = 0;
    const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end.ec != std::errc() || end.ptr != text.data() + text.size() || value < kUnknown ||
        value > UINT32_MAX) {
      return Error(Code::kCorrupt, fmt::format("key '{}' must be a whole number from -1, is '{}'",
                                               key, text.substr(0, 40)));
    }
    return value;
  }
  Status write(std::string_view key, int64_t value) {
    return store_->put(key, std::to_string(value));
  }

  /// Why the last decision is still being carried out; empty: it is not.
  Result<std::string> pending() {
    STATOR_TRY(const int64_t decision, read("decision_id"));
    STATOR_TRY(const int64_t scaled, read("scaled_decision_id"));
    if (decision < 0 || scaled >= decision) {
      waits_since_.reset();
      return std::string();
    }
    const TimePoint now = clock_.now();
    if (!waits_since_) {
      waits_since_ = now;
    }
    if (now - *waits_since_ >= options_.wait_max) {
      log::warn("planner",
                "nobody carried out the last decision: going on; does an executor write "
                "scaled_decision_id?",
                {{"decision_id", decision}, {"scaled_decision_id", scaled}});
      return std::string();
    }
    return fmt::format("decision {} has not been carried out yet (scaled_decision_id is {})",
                       decision, scaled);
  }

  std::unique_ptr<KeyStore> store_;
  const VirtualOptions options_;
  const Clock& clock_;
  std::optional<TimePoint> waits_since_;
};

}  // namespace

Result<std::unique_ptr<KeyStore>> open_folder_store(const std::string& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    return Error(Code::kIo, fmt::format("cannot make '{}': {}", folder, failed.message()));
  }
  return std::make_unique<FolderStore>(folder);
}

Result<std::unique_ptr<KeyStore>> open_etcd_store(const discovery::EtcdOptions& options,
                                                  std::string_view name_space) {
  STATOR_TRY(auto keys, discovery::open_etcd_keys(options));
  return std::make_unique<EtcdStore>(std::move(keys), fmt::format("v1/{}/planner/", name_space));
}

std::unique_ptr<Connector> make_virtual_connector(std::unique_ptr<KeyStore> store,
                                                  VirtualOptions options, const Clock& clock) {
  return std::make_unique<VirtualConnector>(std::move(store), options, clock);
}

}  // namespace stator::scaling
