// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "stator/core/metrics.h"
#include "stator/kv_events/nats_connection.h"

namespace stator::kv_events {

/// What becomes of messages on a bad link. Parts of all messages, together at most 1.
struct LinkFaults {
  double lost = 0;
  double repeated = 0;   ///< come twice
  double reordered = 0;  ///< come behind the one published next
  uint64_t seed = 0;     ///< of the choice, with the messages' order
  bool any() const { return lost > 0 || repeated > 0 || reordered > 0; }
};

/// `nats` with those faults, for tests of who follows: what is published with them is accepted and
/// not delivered as it was. Messages to inboxes, which answer somebody's question, all arrive. At
/// most one message is held back; what is still held at the end is lost.
/// stator_sim_faults_total counts what happened. Thread-safe; `nats` and `metrics` outlive it.
std::unique_ptr<NatsConnection> make_lossy_connection(NatsConnection& nats,
                                                      const LinkFaults& faults, Metrics& metrics);

}  // namespace stator::kv_events
