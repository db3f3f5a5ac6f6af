// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "stator/continuity/journal_hub.h"
#include "stator/core/random.h"
#include "stator/lab/fault_sim/virtual_network.h"
#include "stator/net/virtual_time.h"

namespace stator::fault_sim {

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
  VirtualJournalHub* reach(NodeId from, continuity::JournalHub::HolderId holder) const;
  bool lists(continuity::JournalHub::HolderId holder) const;
  Duration draw_latency();

  net::VirtualTime& time_;
  VirtualNetwork& network_;
  Random random_;
  std::map<continuity::JournalHub::HolderId, Listed> listed_;
  continuity::JournalHub::HolderId last_id_ = 0;
};

/// One life of a frontend's hub: production's store of copies, on virtual time and network. Calls
/// whose message or answer is lost end with their deadline.
class VirtualJournalHub final : public continuity::JournalHub {
 public:
  VirtualJournalHub(VirtualJournals& journals, NodeId node,
                    const continuity::JournalHubConfig& config);
  VirtualJournalHub(const VirtualJournalHub&) = delete;
  VirtualJournalHub& operator=(const VirtualJournalHub&) = delete;
  ~VirtualJournalHub() override;

  Status start(discovery::Discovery& /*discovery*/) override { return {}; }
  void stop() override {}
  std::optional<HolderId> choose_holder(continuity::StreamId stream) const override;
  HolderId own_id() const override { return id_; }
  Status keep(continuity::JournalPart part) override;
  std::vector<std::string> kept(continuity::StreamId stream) const override {
    return own_.read(stream);
  }
  void append(HolderId holder, const std::vector<continuity::JournalPart>& parts, net::Shard& shard,
              Appended done) override;
  void fetch(HolderId holder, continuity::StreamId stream, net::Shard& shard,
             Fetched done) override;

 private:
  template <typename Answer>
  void call(HolderId holder, Duration deadline, net::Shard& shard,
            std::function<Answer(VirtualJournalHub&)> ask, std::function<void(Answer&)> done);
  Result<std::vector<continuity::StreamId>> take(const std::vector<continuity::JournalPart>& parts);
  Result<std::vector<std::string>> read(continuity::StreamId stream) const;

  VirtualJournals& journals_;
  const NodeId node_;
  const continuity::JournalHubConfig config_;
  HolderId id_ = 0;
  continuity::JournalStore store_;
  continuity::JournalStore own_;  // our streams'
  std::map<HolderId, TimePoint> unwell_until_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // what is on its way asks for it
};

}  // namespace stator::fault_sim
