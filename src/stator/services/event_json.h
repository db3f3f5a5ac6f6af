// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/kv/event.h"

namespace stator::json {
class Value;
class Writer;
}  // namespace stator::json

namespace stator::services {

/// One KV event with the worker it belongs to, in the JSON of the reference system:
///   {"worker_id":7,"storage_tier":"device","event":{"event_id":42,"dp_rank":0,"data":{"stored":
///    {"parent_hash":null,"start_position":null,"blocks":[{"block_hash":1,"tokens_hash":2}]}}}}
/// with "removed":{"block_hashes":[…]} or "cleared" instead.
struct WorkerEvent {
  WorkerKey worker;
  kv::KvEvent event;
  friend bool operator==(const WorkerEvent&, const WorkerEvent&) = default;
};

void write_event(json::Writer& json, const WorkerEvent& event);

/// Unknown fields are ignored; kInvalidArgument names what is wrong.
Result<WorkerEvent> read_event(const json::Value& value);

}  // namespace stator::services
