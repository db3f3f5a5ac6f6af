// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/kv_events/jet_stream.h"

namespace stator::kv_events {

/// Objects larger than a message, in a bucket of a NATS server: NATS's own layout (a stream
/// `OBJ_bucket`, chunks, and a description of each object with its SHA-256), so that the `nats`
/// tool and clients of other languages see them.
///
///   STATOR_TRY(const auto state, objects.get("radix-state"));
///   STATOR_CHECK(objects.put("radix-state", bytes, state ? state->revision : 0));
///
/// Calls wait and fail as JetStream's do. Thread-safe as far as its JetStream is; `jet_stream`
/// outlives it.
class ObjectStore {
 public:
  struct Object {
    std::string bytes;
    uint64_t revision = 0;  ///< changes with every put
  };

  /// `bucket`: [A-Za-z0-9_-]+. `bytes_max`: of all chunks; an object may be half of it, since the
  /// old one goes when the new one is there.
  ObjectStore(JetStream& jet_stream, std::string bucket, uint64_t bytes_max)
      : jet_stream_(jet_stream), bucket_(std::move(bucket)), bytes_max_(bytes_max) {}

  /// Makes the bucket unless it is there.
  Status ensure();
  Status remove();
  /// Nothing when there is no such object. kCorrupt when its chunks do not give its digest.
  Result<std::optional<Object>> get(const std::string& name);
  /// Replaces the object of that revision, 0 = there must be none; kAlreadyExists when somebody
  /// else was first, and then nothing has changed.
  Status put(const std::string& name, std::string_view bytes, uint64_t revision);

  std::string stream() const { return "OBJ_" + bucket_; }

 private:
  std::string meta_subject(const std::string& name) const;
  std::string chunk_subject(const std::string& nuid) const;

  JetStream& jet_stream_;
  const std::string bucket_;
  const uint64_t bytes_max_;
};

}  // namespace stator::kv_events
