// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "stator/core/random.h"
#include "stator/net/virtual_time.h"
#include "stator/runtime/journal_hub.h"
#include "stator/runtime/virtual/virtual_network.h"

namespace stator::runtime {

class VirtualJournalHub;

/// Who keeps journals in a simulated cluster: what discovery and gRPC are to production. Outlives
/// its hubs.
class VirtualJournals {
 public:
  /// A dead hub is still listed for so long, as its lease is.
  static constexpr Duration kListed = std::chrono::seconds(2);

  VirtualJournals(net::VirtualTime& time, VirtualNetwork& network, Random random)
      : time_(time), network_(network), random_(random) {}
  VirtualJournals(const VirtualJournals&) = delete;
  VirtualJournals& operator=(const VirtualJournals&) = delete;

 private:
  friend class VirtualJournalHub;
  struct Listed {
    NodeId node = 0;
    VirtualJournalHub* hub = nullptr;  // null: dead
    TimePoint until = TimePoint::max();
  };
  /// Null while it is dead, or `from` and it do not reach each other.
  VirtualJournalHub* reach(NodeId from, JournalHub::HolderId holder) const;
  bool lists(JournalHub::HolderId holder) const;
  Duration draw_latency();

  net::VirtualTime& time_;
  VirtualNetwork& network_;
  Random random_;
  std::map<JournalHub::HolderId, Listed> listed_;
  JournalHub::HolderId last_id_ = 0;
};

/// One life of a frontend's hub: production's store of copies, on virtual time and network. Calls
/// whose message or answer is lost end with their deadline.
class VirtualJournalHub final : public JournalHub {
 public:
  VirtualJournalHub(VirtualJournals& journals, NodeId node, const JournalHubConfig& config);
  VirtualJournalHub(const VirtualJournalHub&) = delete;
  VirtualJournalHub& operator=(const VirtualJournalHub&) = delete;
  ~VirtualJournalHub() override;

  Status start(Discovery& /*discovery*/) override { return {}; }
  void stop() override {}
  std::optional<HolderId> choose_holder(StreamId stream) const override;
  HolderId own_id() const override { return id_; }
  Status keep(JournalPart part) override;
  std::vector<std::string> kept(StreamId stream) const override { return own_.read(stream); }
  void append(HolderId holder, const std::vector<JournalPart>& parts, net::Shard& shard,
              Appended done) override;
  void fetch(HolderId holder, StreamId stream, net::Shard& shard, Fetched done) override;

 private:
  template <typename Answer>
  void call(HolderId holder, Duration deadline, net::Shard& shard,
            std::function<Answer(VirtualJournalHub&)> ask, std::function<void(Answer&)> done);
  Result<std::vector<StreamId>> take(const std::vector<JournalPart>& parts);
  Result<std::vector<std::string>> read(StreamId stream) const;

  VirtualJournals& journals_;
  const NodeId node_;
  const JournalHubConfig config_;
  HolderId id_ = 0;
  JournalStore store_;
  JournalStore own_;  // our streams'
  std::map<HolderId, TimePoint> unwell_until_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // what is on its way asks for it
};

}  // namespace stator::runtime
