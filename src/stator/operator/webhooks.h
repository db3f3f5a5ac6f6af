// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/kube/client.h"
#include "stator/operator/cluster_facts.h"
#include "stator/operator/webhook_objects.h"

namespace stator::op {

struct WebhookConfig {
  std::string host = "0.0.0.0";
  uint16_t port = 9443;  ///< 0: the system picks one
  WebhookAddress address;
  std::string secret_space = "default";  ///< where the certificates are kept
  std::string secret_name = "stator-webhook-certificate";
  Duration lifetime = std::chrono::hours(24 * 90);    ///< of a server's certificate
  Duration look_interval = std::chrono::seconds(60);  ///< at certificates and registrations
  Duration facts_interval = std::chrono::seconds(2);  ///< at what else the cluster serves
};

/// Admission and conversion webhooks over HTTPS: /defaults, /validate, /convert. The certificates
/// are our own: an authority and a server's certificate in one Secret, which all replicas of the
/// operator share. A thread renews the server's certificate when a third of its life is left, and
/// writes the authority into the webhook configurations and CustomResourceDefinitions whenever they
/// do not have it.
class Webhooks {
 public:
  /// Has certificates, and listens; the API server has been told where, unless it refused that
  /// (which is logged, and tried again).
  static Result<std::unique_ptr<Webhooks>> start(kube::Client& client, ClusterFacts& facts,
                                                 WebhookConfig config, Clock& clock,
                                                 Metrics& metrics);
  virtual ~Webhooks() = default;
  virtual uint16_t port() const = 0;
};

}  // namespace stator::op
