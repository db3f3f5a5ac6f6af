// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/config.h"
#include "stator/net/http_request.h"

namespace stator::frontend {

/// Paths under which routes are found, too: operators choose them for clients that cannot be
/// changed, as with NVIDIA Dynamo's DYN_HTTP_SVC_*_PATH. What lies below a route moves with it
/// (/v1/models/{id}). A path of one's own comes before any other.
class MovedPaths {
 public:
  static constexpr size_t kCount = 15;

  /// Declares http.paths.*.
  void describe(ConfigSchema& schema);
  /// The target as the rest of the frontend knows it; nothing if it is not one of these.
  std::optional<std::string> target_of(std::string_view target) const;
  /// The same, written into the request.
  void apply(net::HttpRequest& request) const;

 private:
  std::array<std::string, kCount> paths_;  // empty: not moved
};

}  // namespace stator::frontend
