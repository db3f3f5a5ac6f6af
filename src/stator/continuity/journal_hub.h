// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/continuity/journal_store.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/discovery/discovery.h"
#include "stator/net/shard.h"
#include "stator/net/tls_files.h"

namespace stator::continuity {

struct JournalHubConfig {
  bool enabled = false;
  std::string host = "127.0.0.1";  ///< address other frontends reach us at
  uint16_t port = 0;               ///< 0: any free one
  std::string tls_name;            ///< that others' certificates have; empty: their address
  JournalStore::Limits limits;
  Duration ack_timeout = std::chrono::milliseconds(50);  ///< then the copy is given up
};

/// A piece of a stream's journal; what `data` means is its owner's.
struct JournalPart {
  StreamId stream;
  JournalStore::Place place = JournalStore::Place::kEnd;
  std::string data;
};

/// Keeps copies of journals for other frontends, and has ours kept by them: what they acknowledged
/// is there when this process is not any more. Of its own streams it has one here, too: for clients
/// whose connection broke, and to make a copy elsewhere from at any time. They find each other
/// through discovery (component "frontend", endpoint "journals"). With TLS both sides show a
/// certificate, and only the allowed callers of `tls` are served.
///
///   hub->keep(part);
///   hub->append(*hub->choose_holder(stream), parts, shard, [](auto refused) { … });
///   hub->fetch(holder, stream, shard, [](auto parts) { … });
///
/// Thread-safe but for start and stop. Callbacks run on the given shard's loop, unless that stops
/// first.
class JournalHub {
 public:
  using HolderId = uint64_t;
  /// The streams that have no copy any more. An error: none of them has, for all we know.
  using Appended = std::function<void(Result<std::vector<StreamId>>& refused)>;
  /// kNotFound: nobody holds it.
  using Fetched = std::function<void(Result<std::vector<std::string>>& parts)>;

  virtual ~JournalHub() = default;
  static std::unique_ptr<JournalHub> create(const JournalHubConfig& config,
                                            std::optional<net::TlsFiles> tls, const Clock& clock,
                                            Metrics& metrics);

  /// Binds the port, joins discovery, which outlives stop(). kIo, also for a TLS file that cannot
  /// be read; errors of register_instance.
  virtual Status start(discovery::Discovery& discovery) = 0;
  /// Calls under way fail. Idempotent; before the shards go.
  virtual void stop() = 0;

  /// Another frontend that is well as far as we know, the same for the same stream as long as they
  /// are the same; none when we are alone.
  virtual std::optional<HolderId> choose_holder(StreamId stream) const = 0;
  virtual void append(HolderId holder, const std::vector<JournalPart>& parts, net::Shard& shard,
                      Appended done) = 0;
  /// What names this process as a holder.
  virtual HolderId own_id() const = 0;
  /// Of a stream of ours, here. Errors of JournalStore::append(), whose limits hold for these
  /// copies once more.
  virtual Status keep(JournalPart part) = 0;
  /// All parts that keep() was given; empty when they are not here any more.
  virtual std::vector<std::string> kept(StreamId stream) const = 0;
  virtual void fetch(HolderId holder, StreamId stream, net::Shard& shard, Fetched done) = 0;
};

}  // namespace stator::continuity
