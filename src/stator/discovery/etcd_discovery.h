// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/discovery/discovery.h"

namespace stator::discovery {

struct EtcdOptions {
  std::vector<std::string> endpoints;  ///< "host:port" of the members, at least one
  std::string root = "stator";         ///< first part of all keys: one cluster may serve several
  std::string username;                ///< empty: no login
  std::string password;
  bool tls = false;
  std::string ca_path;           ///< PEM; empty: the system's authorities
  std::string certificate_path;  ///< of the client, PEM; empty: none
  std::string key_path;
  Duration lease_ttl = std::chrono::seconds(10);
  Duration startup_timeout = std::chrono::seconds(120);  ///< for the first registration
  Duration call_timeout = std::chrono::seconds(3);
};

/// Reads "etcd://host:port[,host:port…][/root]" or "etcds://…" (TLS). kInvalidArgument says what is
/// wrong.
Result<EtcdOptions> parse_etcd_url(std::string_view url);

/// Discovery through an etcd v3 store (3.4 or newer). Keys are ROOT/v1/instances/ns/component/
/// endpoint/worker, values instance records; the keys of a process hang on one lease.
///
/// One thread watches, another keeps the lease and writes records, a third tells watches what
/// changed; a loop makes their calls. While the store is away the last view stays and nobody is
/// removed; the threads try for as long as the object lives, and its end waits a second at most for
/// the store. A lease that was lost, a key that was deleted and a store that was wiped are mended
/// by writing the own records again.
///
/// kIo when a TLS file cannot be read, kInvalidArgument without endpoints. Registering waits for
/// the store up to `startup_timeout` (kUnavailable). `clock` and `metrics` outlive the result.
Result<std::unique_ptr<Discovery>> open_etcd_discovery(EtcdOptions options, const Clock& clock,
                                                       Metrics& metrics);

}  // namespace stator::discovery
