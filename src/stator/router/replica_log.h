// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/flat_map.h"
#include "stator/core/ids.h"

namespace stator::router {

/// What another router must know about one booking of ours. Output blocks are not told: they would
/// cost a message each and matter little.
struct ReplicaBooking {
  uint64_t request = 0;  ///< unique within the router that booked it
  std::string model;
  WorkerKey worker;
  uint32_t prompt_tokens = 0;
  uint32_t prefill_tokens = 0;
  uint32_t block_size = 16;
  std::optional<uint32_t> expected_output_tokens;
  bool prefill_completed = false;
  std::vector<blocks::SequenceHash> sequences;
  friend bool operator==(const ReplicaBooking&, const ReplicaBooking&) = default;
};

struct ReplicaPrefillCompleted {
  uint64_t request = 0;
  friend bool operator==(const ReplicaPrefillCompleted&, const ReplicaPrefillCompleted&) = default;
};
struct ReplicaFree {
  uint64_t request = 0;
  friend bool operator==(const ReplicaFree&, const ReplicaFree&) = default;
};

/// AddRequest, MarkPrefillCompleted or Free, numbered densely from 1 by the router that sends it.
struct ReplicaEvent {
  uint64_t sequence = 0;
  std::variant<ReplicaBooking, ReplicaPrefillCompleted, ReplicaFree> data;
};

/// What all live bookings add up to, whatever the order they came in.
struct ReplicaDigest {
  uint64_t count = 0;
  uint64_t prefill_tokens = 0;  ///< of those whose prompt is not computed
  uint64_t checksum = 0;        ///< sum over hashes of (request, worker, state)
  friend bool operator==(const ReplicaDigest&, const ReplicaDigest&) = default;

  void add(const ReplicaBooking& booking);
  void remove(const ReplicaBooking& booking);
};

/// One answer to a replica that asks for what is new.
struct ReplicaUpdate {
  uint64_t router_id = 0;  ///< of the sender
  uint64_t sequence = 0;   ///< of its newest event; `digest` is the state after it
  ReplicaDigest digest;
  bool is_snapshot = false;  ///< `bookings` are all there are; else `events` follow what was asked
  std::vector<ReplicaBooking> bookings;
  std::vector<ReplicaEvent> events;
};

/// The sending side: our own bookings and the events that led there. A pure core, one thread at a
/// time.
///
/// R1  Sequences are dense from 1. The ring holds the newest events, at most events_max.
/// R2  A reader whose place is not in the ring, or beyond the end, gets a snapshot.
/// R3  An update never holds more than `update_max` events, nor more than `update_hashes_max`
///     hashes (but at least one event); the reader comes again.
/// R4  Live bookings have at most `hashes_max` hashes together, and so do the ring's: a snapshot
///     fits into one message, 8 bytes a hash and about 100 a booking.
class ReplicaLog {
 public:
  struct Limits {
    size_t events_max = 65'536;
    size_t update_max = 4096;
    size_t update_hashes_max = 512 << 10;
    size_t bookings_max = 128 << 10;  ///< further ones are not told to anybody
    size_t hashes_max = 4 << 20;      ///< the same
  };
  explicit ReplicaLog(uint64_t router_id) : ReplicaLog(router_id, Limits()) {}
  ReplicaLog(uint64_t router_id, Limits limits) : router_id_(router_id), limits_(limits) {}

  /// Takes the booking and gives it its number; 0 at a bound.
  uint64_t add(ReplicaBooking booking);
  /// Unknown ones, and 0, are ignored.
  void mark_prefill_completed(uint64_t request);
  void free(uint64_t request);

  /// What follows `from_sequence`, the last event the reader has.
  ReplicaUpdate read(uint64_t from_sequence) const;

  uint64_t router_id() const { return router_id_; }
  uint64_t sequence() const { return sequence_; }
  const ReplicaDigest& digest() const { return digest_; }

 private:
  void append(decltype(ReplicaEvent::data) data);
  static size_t hashes_of(const ReplicaEvent& event);

  const uint64_t router_id_;
  const Limits limits_;
  uint64_t next_request_ = 1;
  uint64_t sequence_ = 0;
  std::deque<ReplicaEvent> ring_;
  size_t ring_hashes_ = 0;
  FlatMap<uint64_t, ReplicaBooking> live_;
  size_t live_hashes_ = 0;
  ReplicaDigest digest_;
};

}  // namespace stator::router
