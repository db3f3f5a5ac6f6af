// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/services/indexer.h"
#include "stator/services/service_api.h"

namespace stator::services {

/// Addresses of other indexers, whose dumps fill ours when we start. Bounded. Thread-safe.
class PeerList {
 public:
  static constexpr size_t kPeersMax = 256;
  /// Addresses must begin with one of these.
  explicit PeerList(std::vector<std::string_view> schemes = {"http://", "https://"})
      : schemes_(std::move(schemes)) {}
  enum class Added : uint8_t { kNow, kBefore };
  /// kOverloaded; kInvalidArgument for another scheme.
  Result<Added> add(std::string url);
  Status remove(std::string_view url);
  /// Sorted.
  std::vector<std::string> all() const;

 private:
  const std::vector<std::string_view> schemes_;  // static text
  mutable Mutex mutex_;
  std::vector<std::string> urls_ STATOR_GUARDED_BY(mutex_);
};

/// Adds the endpoints of the indexer: /register, /unregister, /workers, /query, /query_by_hash,
/// /dump, /events, /register_peer, /deregister_peer, /peers, /reopen_logs. All arguments outlive
/// the api.
void add_indexer_endpoints(ServiceApi& api, Indexer& indexer, PeerList& peers);

/// POST /events alone.
void add_event_endpoint(ServiceApi& api, Indexer& indexer);

/// The answer of GET /dump.
std::string render_dump(const Indexer& indexer);
/// Applies the answer of a peer's GET /dump. Returns the number of events taken.
Result<size_t> apply_dump(Indexer& indexer, std::string_view json);

}  // namespace stator::services
