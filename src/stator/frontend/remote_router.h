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
/// An AskedServer, with its pauses. At most kOpenMax questions and messages are open; requests
/// beyond are decided here, and messages not sent (a booking that is not ended expires there).
class RemoteRouter : public router::Advisor {
 public:
  static constexpr size_t kOpenMax = 65'536;

  /// kInvalidArgument for a URL that cannot be one. `clock` and `metrics` outlive it.
  static Result<std::shared_ptr<RemoteRouter>> start(const RemoteRouterConfig& config,
                                                     const Clock& clock, Metrics& metrics);
};

}  // namespace stator::frontend
