// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/router/advisor.h"

namespace stator::frontend {

struct RemoteRouterConfig {
  std::string url;  ///< http://host:port of a selection service
  Duration timeout = std::chrono::milliseconds(100);
};

/// A selection service (`stator router --select`) as advisor of this process's routers: it chooses
/// and books, is told when the prompt has been computed, and when the request has ended.
///
/// One thread of its own. After kFailuresMax calls without an answer in a row it is not asked for
/// kPause, so that a service that is away costs no request its time. At most kWaitingMax messages
/// wait to be sent; further ones are not (a booking that is not ended expires there).
class RemoteRouter : public router::Advisor {
 public:
  static constexpr int kFailuresMax = 3;
  static constexpr Duration kPause = std::chrono::seconds(1);
  static constexpr size_t kWaitingMax = 65'536;

  /// kInvalidArgument for a URL that cannot be one. `clock` and `metrics` outlive it.
  static Result<std::shared_ptr<RemoteRouter>> start(const RemoteRouterConfig& config,
                                                     const Clock& clock, Metrics& metrics);
};

}  // namespace stator::frontend
