// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/kv_events/zmq_sources.h"
#include "stator/services/event_feed.h"

namespace stator::services {

/// Feeds from the engines' own publishers over ZeroMQ. All arguments outlive the feeds.
std::unique_ptr<EventFeeds> make_zmq_feeds(kv_events::ZmqSources& sources, const Clock& clock,
                                           Metrics& metrics);

}  // namespace stator::services
