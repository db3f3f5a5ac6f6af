// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/epp/pool.h"
#include "stator/json/value.h"
#include "stator/kube/client.h"

namespace stator::epp {

/// The endpoints of an InferencePool: every port of every ready pod that its selector finds. A pod
/// that is going away but still ready gets nothing new. Prefill workers are told by their label
/// nvidia.com/dynamo-component-type.
std::vector<Endpoint> endpoints_of(const json::Value& pool, const std::vector<json::Value>& pods);

/// Of InferenceModelRewrites: rules that match a model exactly, with their targets.
Rewrites rewrites_of(const std::vector<json::Value>& objects);

/// Keeps a pool's endpoints as an InferencePool and its pods say; a server that is away leaves them
/// as they were. Destroyed after client.stop().
class PoolWatch {
 public:
  virtual ~PoolWatch() = default;
};
std::unique_ptr<PoolWatch> watch_pool(kube::Client& client, const kube::ObjectName& name,
                                      EndpointPool& pool);

}  // namespace stator::epp
