// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/replica_peers.h"

#include <fmt/format.h>

#include <string_view>

#include "stator/kube/informer.h"

namespace stator::epp {
namespace {

using json::Value;

constexpr std::string_view kPortName = "replica-agg";

class WatchedPeers final : public ReplicaPeers {
 public:
  WatchedPeers(kube::Client& client, const kube::ObjectName& service)
      : space_(service.space),
        slices_(client, kube::resource_of("EndpointSlice"),
                {.selection = {.space = service.space,
                               .labels = "kubernetes.io/service-name=" + service.name}}) {}

  std::vector<std::string> addresses() const override {
    return replicas_of(slices_.find(space_, [](const Value&) { return true; }));
  }

 private:
  std::string space_;
  kube::Informer slices_;
};

}  // namespace

std::vector<std::string> replicas_of(const std::vector<Value>& slices) {
  std::vector<std::string> addresses;
  for (const Value& slice : slices) {
    const Value* port = kube::find_named(slice.find("ports"), kPortName);
    if (port == nullptr || port->find("port") == nullptr) {
      continue;
    }
    for (const Value& endpoint : slice.at("endpoints").elements()) {
      if (!kube::bool_at(endpoint, {"conditions", "ready"}, true)) {
        continue;
      }
      for (const Value& address : endpoint.at("addresses").elements()) {
        const bool is_v6 = slice.text_at({"addressType"}) == "IPv6";
        addresses.push_back(is_v6
                                ? fmt::format("[{}]:{}", address.text(), port->find("port")->text())
                                : fmt::format("{}:{}", address.text(), port->find("port")->text()));
      }
    }
  }
  return addresses;
}

std::unique_ptr<ReplicaPeers> watch_replicas(kube::Client& client,
                                             const kube::ObjectName& service) {
  return std::make_unique<WatchedPeers>(client, service);
}

}  // namespace stator::epp
