// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"

namespace stator::kv_events {

/// Told what an engine's socket brings. On the thread of the ZmqSources, which it must not block.
class EngineBatchListener {
 public:
  virtual ~EngineBatchListener() = default;
  /// The next payload of this rank's publisher, in its order and without holes since the last
  /// reset.
  virtual void on_batch(uint32_t rank, std::string_view payload) = 0;
  /// All that came from this rank is void: the engine restarted, or messages are lost for good.
  virtual void on_reset(uint32_t rank) = 0;
};

struct ZmqSourceConfig {
  /// Where rank 0 publishes. Rank r is at port + r; `inproc` and `ipc` names get `_dp{r}`. An
  /// address with `*` is bound here, for publishers that connect.
  std::string endpoint;
  /// Where rank 0 answers replays; empty: nowhere, and lost messages void what was known.
  std::string replay_endpoint;
  std::string topic;  ///< prefix of the topics to take
  uint32_t dp_ranks = 1;
  Duration replay_timeout = std::chrono::seconds(2);  ///< without an answer; then it asks again
  uint32_t replay_attempts = 5;
  /// Without a message for this long, it asks whether the newest one was lost.
  Duration quiet_check = std::chrono::seconds(1);
};

/// The endpoint of one rank. kInvalidArgument if it has no port to count from, or none is left.
Result<std::string> rank_endpoint(std::string_view endpoint, uint32_t rank);

/// Subscriptions to the event publishers of engines, over ZeroMQ, all on one side thread: vLLM's
/// protocol, which SGLang and others share. A message is topic, number, payload; lost ones are
/// asked for at the replay endpoint; a new connection or a number that goes back leads to a
/// comparison with what the publisher remembers (detail/replay_cursor.h has the states).
///
///   STATOR_TRY(auto sources, ZmqSources::start(clock, metrics));
///   STATOR_TRY(auto subscription, sources->subscribe({.endpoint = "tcp://10.0.0.7:5557"}, feed));
///
/// Bounds: kReceiveMax messages of at most kMessageBytesMax wait in a socket, then ZeroMQ drops new
/// ones at the publisher, which shows here as a gap. Reconnects by itself, for ever.
class ZmqSources {
 public:
  static constexpr int kReceiveMax = 10'000;
  static constexpr int64_t kMessageBytesMax = int64_t{64} << 20;

  static Result<std::unique_ptr<ZmqSources>> start(const Clock& clock, Metrics& metrics);
  virtual ~ZmqSources() = default;

  /// Follows all ranks until destroyed, after which the listener is not called. Destroy it on any
  /// thread but that of the listener, and before the ZmqSources.
  class Subscription {
   public:
    virtual ~Subscription() = default;
  };
  /// Any thread. kInvalidArgument for an endpoint that ZeroMQ does not take.
  virtual Result<std::unique_ptr<Subscription>> subscribe(const ZmqSourceConfig& config,
                                                          EngineBatchListener& listener) = 0;
};

}  // namespace stator::kv_events
