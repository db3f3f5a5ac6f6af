// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/etcd_keys.h"

#include <utility>

#include "stator/discovery/detail/etcd_client.h"

namespace stator::discovery {
namespace {

class Keys final : public EtcdKeys {
 public:
  Keys(std::unique_ptr<Metrics> metrics, std::unique_ptr<detail::EtcdClient> client)
      : metrics_(std::move(metrics)), client_(std::move(client)) {}
  Result<std::string> get(std::string_view key) override { return client_->get(key); }
  Status put(std::string_view key, std::string_view value) override {
    return client_->put(key, value, 0);
  }

 private:
  const std::unique_ptr<Metrics> metrics_;  // of the client's loop; nobody reads them
  const std::unique_ptr<detail::EtcdClient> client_;
};

}  // namespace

Result<std::unique_ptr<EtcdKeys>> open_etcd_keys(const EtcdOptions& options) {
  auto metrics = std::make_unique<Metrics>();
  STATOR_TRY(auto client, detail::EtcdClient::create(options, *metrics));
  return std::make_unique<Keys>(std::move(metrics), std::move(client));
}

}  // namespace stator::discovery
