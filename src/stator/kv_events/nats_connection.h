// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "stator/core/metrics.h"
#include "stator/core/result.h"

namespace stator::kv_events {

/// Gets the messages of one subscription, on a thread of the NATS library, one at a time.
class NatsListener {
 public:
  virtual ~NatsListener() = default;
  /// The views live until it returns. `reply` is where an answer is expected; empty: none is.
  virtual void on_message(std::string_view subject, std::string_view payload,
                          std::string_view reply) = 0;
};

struct NatsConfig {
  std::string url;  ///< nats://[user:password@]host:port[,…], tls://…
  std::string client_name = "stator";
};

/// A process's connection to a NATS server. Comes up by itself whenever there is one, for ever;
/// while there is none, messages are refused rather than kept: who publishes has its own bounded
/// history. Delivery is at most once, in order per publisher.
///
///   STATOR_TRY(auto nats, NatsConnection::open({.url = "nats://127.0.0.1:4222"}, metrics));
///   auto subscription = nats->subscribe("orders.>", listener);
///   nats->publish("orders.new", payload);
///
/// Thread-safe. Bounds: kPendingMessagesMax and kPendingBytesMax wait for a listener, then new ones
/// are dropped and counted (stator_events_nats_dropped_total).
class NatsConnection {
 public:
  static constexpr int kPendingMessagesMax = 64 * 1024;
  static constexpr int kPendingBytesMax = 64 << 20;

  /// kInvalidArgument for a URL that cannot be one. A server need not be there yet.
  static Result<std::unique_ptr<NatsConnection>> open(const NatsConfig& config, Metrics& metrics);
  virtual ~NatsConnection() = default;

  virtual bool connected() const = 0;
  /// What the server takes in one message, in bytes; 1 MiB until it has told.
  virtual size_t payload_bytes_max() const = 0;
  /// kUnavailable without a server; kTooLarge beyond payload_bytes_max.
  virtual Status publish(std::string_view subject, std::string_view payload,
                         std::string_view reply = {}) = 0;
  /// Waits until the server has taken all that was published and subscribed, at most 2 s.
  virtual Status flush() = 0;

  /// Until destroyed, after which the listener is not called. Not from within its own callback.
  class Subscription {
   public:
    virtual ~Subscription() = default;
  };
  virtual Result<std::unique_ptr<Subscription>> subscribe(const std::string& subject,
                                                          NatsListener& listener) = 0;
  /// A subject nobody else has, to get answers on.
  virtual std::string make_inbox() = 0;

  /// The library's own connection, for JetStream.
  virtual void* handle() = 0;
};

}  // namespace stator::kv_events
