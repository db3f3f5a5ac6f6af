// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/net/tls_files.h"
#include "stator/router/load_lease.h"
#include "stator/router/replica_log.h"
#include "stator/router/router.h"

namespace stator::router {

/// Tells other processes what this one's routers booked, and books here what theirs did, so that
/// several routers over the same workers do not all choose the one that looks idle to each.
///
/// They ask each other over gRPC what is new, and are answered as soon as there is something; the
/// next question follows after `interval`. Who is silent for `expiry` has no load any more. As long
/// as there are others, their load is reported as stale. With TLS both sides show a certificate;
/// the allowed callers of `tls` are who may ask, and the others' names are their addresses or
/// `config.tls_name`.
///
///   auto hub = ReplicaHub::create(config, tls, clock, metrics);
///   router->announce_to(hub->announcer("model"));
///   STATOR_CHECK(hub->start({.book = …, .peers = …}));  …  hub->stop();
///
/// Thread-safe but for start and stop. One loop of its own asks and answers.
class ReplicaHub {
 public:
  struct Peer {
    uint64_t key = 0;     ///< the same peer has the same; ours is left out
    std::string address;  ///< "host:port"
  };
  /// All called on the hub's loop; what they use outlives stop().
  struct Wiring {
    /// Books another's request; none while its worker is not known here.
    std::function<std::optional<router::LoadLease>(const router::ReplicaBooking& booking)> book;
    /// Whom to ask, looked at once a second.
    std::function<std::vector<Peer>()> peers;
    /// Told once a second whether there are others, whose newest load is unknown. May be empty.
    std::function<void(bool stale)> on_stale;
  };

  virtual ~ReplicaHub() = default;
  static std::unique_ptr<ReplicaHub> create(const router::ReplicaConfig& config,
                                            std::optional<net::TlsFiles> tls, const Clock& clock,
                                            Metrics& metrics);

  /// Names this process to the others: 1 … 2^53 − 1.
  virtual uint64_t router_id() const = 0;
  /// What a model's router tells its bookings to. Lives as long as anybody holds it.
  virtual std::shared_ptr<router::LoadAnnouncer> announcer(const std::string& model) = 0;
  /// Binds the port. kIo, also for a TLS file that cannot be read.
  virtual Status listen() = 0;
  /// "host:port", after listen().
  virtual std::string address() const = 0;
  /// After listen(), once.
  virtual void start(Wiring wiring) = 0;
  /// Idempotent.
  virtual void stop() = 0;
};

}  // namespace stator::router
