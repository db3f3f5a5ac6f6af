// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stator/continuity/journal_hub.h"
#include "stator/core/flat_map.h"
#include "stator/net/shard.h"

namespace stator::frontend {

/// Brings the journals of a shard's streams to those who keep copies: all parts for one holder in
/// one message, the next one when that is acknowledged. What waits is bounded by what the streams
/// produce within JournalHubConfig::ack_timeout. Home loop: the shard's.
class StreamCopies : public std::enable_shared_from_this<StreamCopies> {
 public:
  using HolderId = continuity::JournalHub::HolderId;
  /// Names a stream on this shard; never reused.
  using Serial = uint64_t;

  class Owner {
   public:
    virtual ~Owner() = default;
    /// The copy has the oldest part of the stream that it lacked.
    virtual void on_copied(Serial serial) = 0;
    /// The stream has no copy any more. Nothing more comes for it.
    virtual void on_copy_lost(Serial serial) = 0;
  };
  StreamCopies(continuity::JournalHub& hub, net::Shard& shard, Owner& owner)
      : hub_(hub), shard_(shard), owner_(&owner) {}

  void append(HolderId holder, Serial serial, continuity::JournalPart part);
  /// Sends what append() has gathered, where nothing is under way.
  void flush();
  /// The owner goes; nothing is told any more.
  void close() { owner_ = nullptr; }

 private:
  struct Line {
    std::vector<continuity::JournalPart> parts;
    std::vector<Serial> serials;  // of `parts`
    std::vector<Serial> sent;     // under way; empty: nothing is
    std::vector<continuity::StreamId> sent_streams;
  };
  void send(HolderId holder, Line& line);
  void on_answer(HolderId holder, Result<std::vector<continuity::StreamId>>& refused);

  continuity::JournalHub& hub_;
  net::Shard& shard_;
  Owner* owner_;
  FlatMap<HolderId, std::unique_ptr<Line>> lines_;  // of holders with something to bring
};

}  // namespace stator::frontend
