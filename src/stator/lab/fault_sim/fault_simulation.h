// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/frontend/model_assets.h"
#include "stator/lab/fault_sim/fault_plan.h"

namespace stator::fault_sim {

/// What an undisturbed cluster answers to each body: the oracle.
using References = std::map<std::string, std::string>;

struct Options {
  uint64_t seed = 1;
  FaultSet faults = FaultSet::all();
  /// A deliberate bug, to see that the simulation notices: one worker runs another model.
  bool impostor = false;
  std::function<void(std::string_view)> print;  ///< gets every line of the log; may be empty
};

/// What came of a run.
struct Outcome {
  uint64_t log_hash = 0;
  std::vector<std::string> violations;  ///< empty: all invariants held
  uint32_t requests = 0;
  uint32_t exact = 0;    ///< answered as by an undisturbed cluster
  uint32_t refused = 0;  ///< with a typed error
  uint32_t gone = 0;     ///< the client left or its frontend died
  uint64_t moves = 0;    ///< to other workers
  uint64_t resumed = 0;  ///< streams that went on at another frontend
  uint64_t queued = 0;   ///< that waited in a router's queue
  uint64_t heard = 0;    ///< bookings, first tokens and ends that routers heard of each other
  uint64_t unheard = 0;  ///< times that some of it was missing or came twice
  uint64_t stale = 0;    ///< deltas of given-up attempts that were dropped
  uint64_t messages = 0;
  double virtual_s = 0;
};

/// A cluster of frontends, workers and a store under faults, all from one seed: production's shard
/// service, router, queue, journal, breakers, sessions, queues, schedulers, index and views, on
/// virtual time and a virtual network.
///
/// Checked all the time (numbers of the invariants in docs/reference/fault_simulation.md):
///   1  every request ends exactly once, and within kPatience of the last fault's end;
///   2  what a client sees is what an undisturbed cluster answers, or a typed error; in a strict
///      plan there are no errors either;
///   3  leases sum up to what runs, and to nothing in the end; engines are idle then;
///   4  views, sessions and the index of every frontend agree with the truth in the end;
///   5  nothing is told to a client that has left;
///   7  routers that hear of each other's bookings agree on them in the end;
///   6  a client that comes back to another frontend gets the rest, unless its copy may be lost.
class FaultSimulation {
 public:
  /// Reads the demo model; answers every body once without faults.
  static Result<std::unique_ptr<FaultSimulation>> create(const std::string& model_dir);
  /// Any number of times, from any one thread at a time.
  Outcome run(const Options& options) const;

  static constexpr Duration kPatience = std::chrono::seconds(120);

 private:
  FaultSimulation() = default;
  std::shared_ptr<const frontend::ModelAssets> assets_;  // shared with frontends' catalogs
  std::vector<std::string> bodies_;
  References references_;
};

}  // namespace stator::fault_sim
