// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stator/json/value.h"

namespace stator::op {

/// How the API server reaches our webhooks.
struct WebhookAddress {
  std::string service = {};  ///< "namespace/name", on port `port`; or:
  std::string url = {};      ///< https://host:port, for an operator outside the cluster
  int port = 9443;
  std::string ca_bundle = {};            ///< PEM
  std::string name = "stator-operator";  ///< of the configurations
  std::string space = {};                ///< only objects of this namespace; empty: all
  std::string operator_user = {};        ///< whose writes need no review
};

/// The hosts that the server's certificate must name.
std::vector<std::string> hosts_of(const WebhookAddress& address);

/// MutatingWebhookConfiguration and ValidatingWebhookConfiguration, and of each
/// CustomResourceDefinition with two versions the part that says how they are converted.
std::vector<json::Value> make_webhook_objects(const WebhookAddress& address);

}  // namespace stator::op
