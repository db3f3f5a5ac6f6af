// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/discovery/instance_record.h"
#include "stator/net/shard.h"

namespace stator::discovery {

/// Which instances: empty fields match everything. Whole names only, never prefixes of them.
struct InstanceQuery {
  std::string namespace_name;  ///< ends with '*': all that begin so
  std::string component;
  std::string endpoint;
  bool matches(const InstanceKey& key) const;
};

/// Told what changes, on the loop of the shard given to `watch`.
class DiscoveryListener {
 public:
  virtual ~DiscoveryListener() = default;
  /// Everything known at the start has been delivered: from now on "no instance" is a fact.
  virtual void on_synced() = 0;
  virtual void on_added(const InstanceRecord& record) = 0;
  /// Same key and incarnation, new content.
  virtual void on_updated(const InstanceRecord& record) = 0;
  /// The record is gone, which is no proof that the worker is. A new life of a worker is a removal,
  /// then an addition.
  virtual void on_removed(const InstanceRecord& last) = 0;
};

/// Keeps a record published; withdraws it when destroyed. Any thread.
class Registration {
 public:
  virtual ~Registration() = default;
  /// Replaces the content; key and incarnation must stay (kInvalidArgument).
  virtual Status update(InstanceRecord record) = 0;
};

/// Ends a watch when destroyed, after which the listener is not called again. Destroy it on the
/// watch's loop.
class Watch {
 public:
  virtual ~Watch() = default;
};

/// Who is there. Backends: in memory (memory_discovery.h), watched files (file_discovery.h), etcd
/// (etcd_discovery.h).
///
/// D1  A watch sees a snapshot, on_synced, then changes: no gap, no duplicate, per-key order.
/// D2  One round of changes delivers all removals before any addition.
/// D3  A slow listener costs no memory: rounds it did not see are merged into the next one.
/// D4  While the store is unreachable the last view stays; nothing is removed for lack of an
/// answer.
///
/// All methods are thread-safe. The object must outlive its registrations and watches.
class Discovery {
 public:
  virtual ~Discovery() = default;
  /// Identical content again is fine. kAlreadyExists for other content under the key, unless the
  /// new incarnation is higher: then the old life is dead and is replaced. kInvalidArgument, kIo.
  virtual Result<std::unique_ptr<Registration>> register_instance(InstanceRecord record) = 0;
  virtual std::vector<InstanceRecord> list(const InstanceQuery& query) = 0;
  virtual std::unique_ptr<Watch> watch(InstanceQuery query, net::Shard& shard,
                                       DiscoveryListener& listener) = 0;
};

}  // namespace stator::discovery
