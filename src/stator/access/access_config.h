// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/config.h"

namespace stator::access {

/// Who may use the front door. Without keys and tokens everybody may.
struct AccessConfig {
  std::string api_keys;  ///< file of lines `sha256:HEX role tenant`; empty: none
  std::string tenants;   ///< file of lines `NAME limit=…`; empty: none is limited
  std::string jwks;      ///< file or URL of a JSON Web Key Set; empty: no tokens
  std::string jwt_issuer;
  std::string jwt_audience;
  std::string jwt_tenant_claim = "tenant";
  std::string jwt_role_claim = "role";
  Duration jwks_interval = std::chrono::minutes(5);
  Duration reload_interval = std::chrono::seconds(1);
  uint32_t jwt_cache_max = 65536;  ///< verdicts
  uint32_t tenants_max = 65536;    ///< with a state of their own
  std::string cache_salt_key;      ///< secret; the same at all frontends of a fleet

  /// Whether callers need credentials.
  bool required() const { return !api_keys.empty() || !jwks.empty(); }
};

/// Declares them under access.*.
void describe(ConfigSchema& schema, AccessConfig& config);

}  // namespace stator::access
