// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stator/json/value.h"
#include "stator/kube/client.h"
#include "stator/kube/object.h"

namespace stator::epp {

/// "ip:port" of every endpoint of these EndpointSlices that is not said to be unready, at the port
/// named `replica-agg`; slices without such a port have none.
std::vector<std::string> replicas_of(const std::vector<json::Value>& slices);

/// The other pickers of a pool: the endpoints of their Service. A server that is away leaves them
/// as they were. Thread-safe. Destroyed after client.stop().
class ReplicaPeers {
 public:
  virtual ~ReplicaPeers() = default;
  virtual std::vector<std::string> addresses() const = 0;
};
std::unique_ptr<ReplicaPeers> watch_replicas(kube::Client& client, const kube::ObjectName& service);

}  // namespace stator::epp
