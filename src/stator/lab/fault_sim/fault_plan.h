// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/random.h"
#include "stator/core/result.h"

namespace stator::fault_sim {

/// What can go wrong.
enum class Fault : uint8_t {
  kCrash,         ///< a worker dies at some frame's border and stays dead for seconds
  kRestart,       ///< the same, but its next life is there at once, under the old address
  kDrain,         ///< a worker leaves in peace, handing over what it cannot finish
  kHang,          ///< a worker's engine stops making steps
  kFreeze,        ///< a worker's process stops (SIGSTOP), then goes on
  kSlow,          ///< a worker computes many times slower
  kPartition,     ///< nothing passes between a frontend and a worker
  kOneWay,        ///< nothing passes one way
  kDelay,         ///< messages take long, and unequally long
  kDrop,          ///< single messages are lost, as no sane carrier does
  kDuplicate,     ///< single messages come twice
  kReorder,       ///< single messages are overtaken
  kCorrupt,       ///< noise arrives instead of a message
  kSkew,          ///< a worker's clocks jump by an hour and run wrong
  kStoreDown,     ///< discovery does not answer
  kStoreWipe,     ///< discovery is empty, another cluster
  kStoreCompact,  ///< what watches still needed is gone
  kLeaseLoss,     ///< all leases are revoked
  kStoreCut,      ///< a frontend or worker does not reach discovery
  kEventLoss,     ///< streams of KV events break, what was on its way is lost; over a broker:
                  ///< messages are lost, late or come twice
  kFrontend,      ///< a frontend dies and starts again
  kCopyCut,       ///< frontends do not reach each other
  kReplicaLoss,   ///< what routers tell each other is lost, late or comes twice
  kClient,        ///< clients leave
};
inline constexpr size_t kFaultCount = 24;
std::string_view to_string(Fault fault);

/// Which kinds happen in a run.
class FaultSet {
 public:
  static FaultSet all() { return FaultSet(~0U >> (32 - kFaultCount)); }
  FaultSet() = default;
  explicit FaultSet(uint32_t bits) : bits_(bits) {}
  /// "crash,partition", or "all", or "none". kInvalidArgument lists the names.
  static Result<FaultSet> parse(std::string_view names);
  bool has(Fault fault) const { return (bits_ >> static_cast<uint32_t>(fault) & 1) != 0; }
  void add(Fault fault) { bits_ |= 1U << static_cast<uint32_t>(fault); }
  std::vector<Fault> list() const;
  bool empty() const { return bits_ == 0; }

 private:
  uint32_t bits_ = 0;
};

/// One fault of a run.
struct PlannedFault {
  Duration at{};
  Duration lasts{};
  Fault fault = Fault::kCrash;
  uint32_t worker = 0;
  uint32_t frontend = 0;
  uint64_t amount = 0;  ///< frames until a crash; else per mille, or whatever the kind needs
};

/// The cluster and its faults, all from one seed.
struct Plan {
  uint32_t workers = 3;
  uint32_t frontends = 1;
  uint32_t requests = 40;
  std::string router_mode = "kv";
  /// Worker 0 never fails and limits are generous: then no request may fail either.
  bool strict = true;
  /// Requests wait in the routers' queues while every worker computes prompts; they come in bursts,
  /// from several tenants.
  bool queued = false;
  std::string queue_order = "fcfs";
  uint32_t wait_tokens = 0;  ///< prompt tokens that a worker may have to compute, then it is busy
  /// Frontends keep copies of each other's streams, and clients come back for the rest.
  bool resumable = false;
  /// Routers tell each other what they booked.
  bool replicas = false;
  /// KV events travel over a broker instead of streams.
  bool event_plane = false;
  /// No copy may be lost: one frontend dies at most, and once.
  bool copies_safe() const;
  std::vector<PlannedFault> faults;
};

/// Faults begin within kFaultsEnd of the start.
inline constexpr Duration kFaultsEnd = std::chrono::seconds(12);
Plan make_plan(FaultSet kinds, Random& random);

}  // namespace stator::fault_sim
