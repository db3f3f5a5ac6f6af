// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/epp/pool.h"
#include "stator/json/value.h"
#include "stator/kube/client.h"

namespace stator::epp {

/// Workers' instance ids by the names of their pods.
using Instances = std::map<std::string, std::string, std::less<>>;

/// The endpoints of an InferencePool: every port of every ready pod that its selector finds. A pod
/// that is going away but still ready gets nothing new. Prefill workers are told by their label
/// nvidia.com/dynamo-component-type; of those whose instance is known, the header that names it is
/// sent along, so that a frontend beside the worker gives it the request.
std::vector<Endpoint> endpoints_of(const json::Value& pool, const std::vector<json::Value>& pods,
                                   const Instances& instances = {});

/// Of DynamoWorkerMetadatas, Stator's and Dynamo's.
Instances instances_of(const std::vector<json::Value>& records);

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
