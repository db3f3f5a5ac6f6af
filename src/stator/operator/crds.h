// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stator/json/value.h"

namespace stator::op {

struct CrdOptions {
  /// "namespace/name" of the Service of the webhooks; empty: versions are not converted by the
  /// server, and the operator reads both as they are.
  std::string webhook_service = {};
  std::string ca_bundle = {};  ///< base64 PEM
};

/// CustomResourceDefinitions of all kinds that the operator serves: graphs, components, adapters,
/// requests, models (LoRA adapters among them), worker records, checkpoints, and Grove's. Fields
/// that are not named in them are kept.
std::vector<json::Value> make_crds(const CrdOptions& options = {});

}  // namespace stator::op
