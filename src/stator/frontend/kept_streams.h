// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/continuity/journal_hub.h"
#include "stator/core/flat_map.h"
#include "stator/frontend/active_request.h"
#include "stator/frontend/frontend_metrics.h"
#include "stator/frontend/prepare_job.h"
#include "stator/frontend/stream_copies.h"
#include "stator/frontend/stream_gate.h"
#include "stator/net/shard.h"

namespace stator::frontend {

/// The journals of a shard's running streams: every accepted step goes to a copy here and to one at
/// another frontend, and what it wrote leaves when that has it (StreamGate). Copies that are lost
/// are made anew. Home loop: the shard's.
///
/// K1  A request with a `copy` is in `kept_` under its serial.
class KeptStreams final : public StreamCopies::Owner {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    /// The answer has left, and waited for its copy only.
    virtual void on_copied(ActiveRequest& active) = 0;
  };
  KeptStreams(continuity::JournalHub& hub, net::Shard& shard, FrontendMetrics& metrics,
              Owner& owner);
  ~KeptStreams() override { copies_->close(); }

  /// Null for answers that no other frontend could go on with; else `copy` is for begin().
  std::unique_ptr<StreamGate> open(net::HttpExchange& exchange, const GenerationPlan& plan,
                                   const PrepareJob& job, std::optional<StreamCopy>& copy);
  void begin(ActiveRequest& active, const StreamCopy& copy, const PrepareJob& job);
  /// The choice's output grows, what it wrote leaves when it may.
  Progress advance(ActiveRequest& active, ChoiceRun& run, const inference::Delta& delta,
                   const inference::StepOutput& output);
  /// Brings a request to where its journal ends. kCorrupt: it makes no sense.
  Status replay(ActiveRequest& active, const continuity::StreamJournal& journal);
  void forget(const ActiveRequest& active);
  /// Sends what advance() has gathered.
  void flush() { copies_->flush(); }
  /// Streams whose journal is only here get a copy elsewhere as soon as another frontend is there
  /// to keep it; once a second or so.
  void renew(TimePoint now);

  void on_copied(StreamCopies::Serial serial) override;
  void on_copy_lost(StreamCopies::Serial serial) override;

 private:
  bool bring(ActiveRequest& active, continuity::JournalStore::Place place, std::string data);
  bool copy_step(ActiveRequest& active, const ChoiceRun& run, const inference::Delta& delta,
                 const inference::StepOutput& output, uint32_t known_tokens);
  size_t bring_all(StreamCopies::Serial serial, std::vector<std::string> parts);
  void lose_last(ActiveRequest& active);
  void look_whether_done(ActiveRequest& active);

  continuity::JournalHub& hub_;
  net::Shard& shard_;
  FrontendMetrics& metrics_;
  Owner& owner_;
  FlatMap<StreamCopies::Serial, ActiveRequest*> kept_;
  StreamCopies::Serial last_serial_ = 0;
  const std::shared_ptr<StreamCopies> copies_;  // shared with its calls
};

}  // namespace stator::frontend
