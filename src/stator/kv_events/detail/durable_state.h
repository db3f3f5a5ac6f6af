// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/kv/event_log.h"
#include "stator/kv_events/event_envelope.h"

namespace stator::kv_events::detail {

/// What the messages of a durable stream add up to: per worker its blocks as of its newest event. A
/// snapshot of it makes the messages before it superfluous. Pure, single-threaded.
///
///   STATOR_TRY(auto state, DurableState::decode(object));          // or an empty one
///   for (…) { state.apply(sequence, envelope); }                   // messages after watermark()
///   std::vector<EventReply> dump = state.dump(worker);             // what a newcomer needs
///
/// D1  A worker's blocks are exactly those its events up to `last_event_id` leave. One whose events
///     have a hole is incomplete: nothing is known of it until its next life.
/// D2  Applying a message again, or one of an earlier life, changes nothing.
/// D3  At most `blocks_max` blocks; what is beyond makes its worker incomplete.
class DurableState {
 public:
  static constexpr size_t kBlocksMax = size_t{64} << 20;

  explicit DurableState(size_t blocks_max = kBlocksMax) : blocks_max_(blocks_max) {}
  /// kCorrupt when it is no snapshot, or of a version nobody knows.
  static Result<DurableState> decode(std::string_view snapshot);
  std::string encode() const;

  void apply(uint64_t sequence, const kv_events::EventEnvelope& message);
  /// The message at `sequence` could not be read: whose it was is not known, so ids will tell.
  void skip(uint64_t sequence) { watermark_ = sequence; }
  /// Forgets workers, those that are gone.
  void keep(const std::function<bool(WorkerId)>& is_wanted);

  /// The stream's sequence up to which messages are in it.
  uint64_t watermark() const { return watermark_; }
  /// Its blocks as parts of an answer; empty when it is unknown or incomplete.
  std::vector<kv_events::EventReply> dump(WorkerId worker) const;
  size_t workers() const { return workers_.size(); }
  size_t incomplete() const;

 private:
  struct Worker {
    Incarnation incarnation;
    uint64_t last_id = 0;
    size_t blocks = 0;  // stored by events, an upper bound of what is held
    bool complete = true;
    std::unique_ptr<kv::EventLog> held;
  };
  static std::unique_ptr<kv::EventLog> make_log();
  Status load(const kv_events::EventReply& part);

  size_t blocks_max_;
  uint64_t watermark_ = 0;
  std::map<WorkerId, Worker> workers_;
};

}  // namespace stator::kv_events::detail
