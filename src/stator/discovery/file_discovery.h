// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/discovery/discovery.h"

namespace stator::discovery {

struct FileDiscoveryOptions {
  /// Shared by all processes of a deployment on this host; made if absent, for this user alone.
  /// Records are files below `root`/instances.
  std::filesystem::path root;
  /// A record whose owner has not touched it for this long is stale and is removed by whoever
  /// notices. Owners touch every third of it.
  Duration lease_ttl = std::chrono::seconds(10);
};

/// Discovery through a watched folder: one host, no service. Records appear by atomic rename, live
/// as long as their modification time moves, and are removed at shutdown. One thread of its own
/// watches (inotify), touches and sweeps, so a busy event loop never loses a lease.
///
/// Staleness is judged by this process's monotonic clock: a file whose time has not moved for the
/// TTL. So a stepped wall clock removes nobody. A file already old when first seen is not listed
/// until it moves, so the records of a killed former life are not routed to. kIo names the folder
/// when it cannot be made or watched.
///
/// Whoever writes a record becomes a worker, so only this user and root may: a folder that is not
/// theirs alone is refused (kInvalidArgument), a record of another user is ignored, logged and
/// counted. `clock` and `metrics` outlive the result.
Result<std::unique_ptr<Discovery>> open_file_discovery(FileDiscoveryOptions options,
                                                       const Clock& clock, Metrics& metrics);

}  // namespace stator::discovery
