// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/core/result.h"
#include "stator/router/replica_log.h"

namespace stator::router::v1 {
class PullResponse;
}

namespace stator::router {

// ReplicaUpdate ↔ stator.router.v1.PullResponse. decode(encode(x)) == x.

void encode(const router::ReplicaUpdate& update, router::v1::PullResponse& out);
/// kCorrupt for an event without content, a block size of 0, or more blocks than the prompt has.
Result<router::ReplicaUpdate> decode(const router::v1::PullResponse& message);

}  // namespace stator::router
