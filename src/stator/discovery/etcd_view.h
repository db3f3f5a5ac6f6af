// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/discovery/instance_record.h"
#include "stator/discovery/view_hub.h"

namespace stator::discovery {

/// The instances as an etcd store has told them: a snapshot, then changes. A pure core.
///
/// E1  What the store says is believed, except that a record which does not parse leaves the
///     previous one in place.
/// E2  A snapshot that lacks more than half of what was known is no proof that so many died: the
///     store may have been wiped, its leases lost. Those it lacks stay for `doubt_time`, or until
///     the store speaks of them again.
class EtcdView {
 public:
  struct Options {
    std::string prefix;  ///< of all keys, "stator/v1/instances/"
    Duration doubt_time = std::chrono::seconds(60);
  };
  /// A state of a store: revisions count within one cluster only.
  struct Position {
    uint64_t cluster = 0;
    int64_t revision = 0;
  };
  struct Entry {
    std::string_view key;
    std::string_view value;
  };

  explicit EtcdView(Options options) : options_(std::move(options)) {}

  /// Everything there is at `position`.
  void resync(Position position, std::span<const Entry> entries, TimePoint now);
  /// One change, then advance() to the revision of its response.
  void put(const Entry& entry);
  void remove(std::string_view key);
  void advance(int64_t revision) { position_.revision = std::max(position_.revision, revision); }
  /// Forgets those whose doubt has lasted too long. True if there were any.
  bool expire(TimePoint now);

  /// Whether a watch may go on after `position()`, now that the store is at `store`: not when it is
  /// another one, or has lost revisions we have seen.
  bool can_resume(Position store) const {
    return position_.revision > 0 && store.cluster == position_.cluster &&
           store.revision >= position_.revision;
  }
  Position position() const { return position_; }
  /// The value the store has under a key, as far as we know; empty: none.
  std::string_view find(std::string_view key) const;

  /// What has changed since the last call, oldest first.
  std::vector<InstanceChange> take_changes() { return std::exchange(changes_, {}); }
  bool changed() const { return !changes_.empty(); }
  size_t size() const { return known_.size(); }
  size_t doubtful() const { return doubtful_; }
  uint64_t bad_records() const { return bad_records_; }

 private:
  struct Known {
    std::string value;  // newest, parsed or not
    std::shared_ptr<const InstanceRecord> record;
    std::optional<TimePoint> doubted_since;
  };
  using KnownMap = std::map<std::string, Known, std::less<>>;
  void trust(Known& known);
  KnownMap::iterator forget(KnownMap::iterator known);

  const Options options_;
  Position position_;
  KnownMap known_;
  std::vector<InstanceChange> changes_;
  size_t doubtful_ = 0;
  uint64_t bad_records_ = 0;
};

}  // namespace stator::discovery
