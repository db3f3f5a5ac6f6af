// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/stream_follower.h"

#include <utility>

#include "stator/core/log.h"

namespace stator::kv_events {

StreamFollower::StreamFollower(Setup setup, net::Shard& shard, KvEventsListener& listener)
    : setup_(std::move(setup)), shard_(shard), assembler_(setup_.worker, listener) {
  connect();
}

void StreamFollower::connect() {
  stream_ = setup_.open(assembler_.incarnation(), assembler_.resume_from(), *this);
}

Status StreamFollower::on_chunk(EventsChunk chunk) {
  Status taken = assembler_.take(std::move(chunk));
  if (taken.has_value()) {
    backoff_.reset();
  } else {
    setup_.rejected_messages.add();
  }
  return taken;
}

void StreamFollower::on_ended(std::string reason) {
  log::debug("kv_events", "event stream ended",
             {{"worker", setup_.worker.value()}, {"reason", reason}});
  assembler_.interrupted();
  retry_ = shard_.after(backoff_.next(), [this] {
    setup_.reconnects.add();
    connect();
  });
}

}  // namespace stator::kv_events
