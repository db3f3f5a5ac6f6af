// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/kv/event.h"

namespace stator::services {

/// Where one worker (and rank) publishes its KV events.
struct FeedSpec {
  WorkerKey worker;
  std::string endpoint;         ///< "tcp://10.0.0.7:5557"
  std::string replay_endpoint;  ///< for what was missed; empty = none
  uint32_t block_size = 0;      ///< tokens
};

/// One worker's events, followed until destroyed, after which nothing is delivered any more.
class EventFeed {
 public:
  virtual ~EventFeed() = default;
  /// "pending" (nothing heard yet), "active", "paused" or "failed".
  virtual std::string_view status() const = 0;
};

/// How a service subscribes to engines. A seam: the HTTP services know no sockets.
class EventFeeds {
 public:
  /// Called on a thread of the feed's, in order; AllCleared means: forget what you know of it.
  using Deliver = std::function<void(std::vector<kv::KvEvent> events)>;

  virtual ~EventFeeds() = default;
  /// kInvalidArgument for an endpoint that cannot be one.
  virtual Result<std::unique_ptr<EventFeed>> open(const FeedSpec& spec, Deliver deliver) = 0;
};

/// kInvalidArgument for a URL whose host is a link-local address, as clouds' metadata services
/// have: whoever may register something must not make us talk to those. Names are not looked up.
Status check_reachable(std::string_view url);

/// kInvalidArgument unless it looks like tcp://host:port, ipc://path or inproc://name, and may be
/// talked to.
Status check_endpoint(std::string_view endpoint);

}  // namespace stator::services
