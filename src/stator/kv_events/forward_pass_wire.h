// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/engine/api/forward_pass.h"

// Forward passes as they travel over a broker: a MessagePack map with the field names that Dynamo's
// planner reads (schema version 1), in the envelope that KV events have. Pure.

namespace stator::kv_events {

/// One message of a worker.
struct ForwardPassMessage {
  WorkerId worker;
  Incarnation incarnation;
  uint64_t sequence = 0;  ///< of this publisher's messages, from 0
  int64_t published_at_ms = 0;
  engine::ForwardPass pass;
  friend bool operator==(const ForwardPassMessage&, const ForwardPassMessage&) = default;
};
std::string encode(const ForwardPassMessage& message);
/// Trusts nothing. kCorrupt for what cannot be read, or says that tokens belong to no request;
/// kUnsupported for another version of the record.
Result<ForwardPassMessage> decode_forward_pass(std::string_view bytes);

}  // namespace stator::kv_events
