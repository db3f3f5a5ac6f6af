// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "stator/app/invocation.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/kube/client.h"
#include "stator/net/shard.h"

namespace stator::app {

/// The API server that --kubeconfig (and --context) names, else the cluster this process runs in.
Result<std::unique_ptr<kube::Client>> make_cluster_client(const Invocation& invocation,
                                                          std::string_view agent, Clock& clock,
                                                          Metrics& metrics);

/// An option's text, or the fallback.
std::string option_of(const Invocation& invocation, std::string_view flag,
                      std::string_view fallback);
/// A port, or -1 for none.
Result<int32_t> port_option(const Invocation& invocation, std::string_view flag, int32_t fallback);

/// A whole number from 0 to `max`.
Result<int64_t> whole_option(const Invocation& invocation, std::string_view flag, int64_t fallback,
                             int64_t max);

/// GET /metrics, /healthz and /readyz on a thread of its own.
class HealthServer {
 public:
  virtual ~HealthServer() = default;
};
Result<std::unique_ptr<HealthServer>> start_health_server(int32_t port,
                                                          std::function<bool()> is_ready,
                                                          Clock& clock, Metrics& metrics);

}  // namespace stator::app
