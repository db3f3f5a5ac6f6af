// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/engine/sim/sim_core.h"
#include "stator/perf/timing_model.h"
#include "stator/router/router.h"
#include "stator/simulator/arrivals.h"
#include "stator/simulator/prompt_blocks.h"
#include "stator/simulator/recorder.h"
#include "stator/simulator/trace_source.h"
#include "stator/simulator/wake_queue.h"

namespace stator::simulator {

/// A simulated fleet and how it is loaded.
struct ClusterConfig {
  uint32_t workers = 1;
  /// Above 0: prompts are computed by this many further workers, and handed over to `workers`.
  uint32_t prefill_workers = 0;
  engine::SimEngineConfig engine;
  engine::SimPasses passes = engine::SimPasses::kCompressed;
  router::RouterConfig router;
  uint64_t seed = 42;          ///< of the router's random choices
  double arrival_speedup = 1;  ///< the trace's times are divided by it
  uint32_t concurrency = 0;    ///< closed loop: so many requests at once, times ignored; 0 = open
  double handoff_bytes_per_token = 0;  ///< KV of one prompt token
  double handoff_bytes_per_second = 64e9;
  uint32_t gpus_per_worker = 1;
};

/// Discrete-event simulation of the production router in front of simulated engines.
/// Single-threaded and deterministic: the same trace and configuration give the same report, byte
/// for byte.
///
///   STATOR_TRY(auto cluster, Cluster::create(config, timing));
///   STATOR_CHECK(cluster->run(*trace, recorder));
///   Report report = recorder.make_report();
///
/// At one instant: passes that end (KV events, then tokens), hand-overs, arrivals, and then new
/// passes on workers with work, lowest first; until nothing happens at that instant any more.
class Cluster {
 public:
  /// kInvalidArgument for a configuration that makes no sense. `timing` outlives the cluster.
  static Result<std::unique_ptr<Cluster>> create(const ClusterConfig& config,
                                                 const perf::TimingModel& timing);

  /// Until every request has ended. Errors are the trace's. Once per cluster.
  Status run(TraceSource& trace, Recorder& recorder);

  /// Called now and then during run(), with the requests that have arrived.
  void set_progress(std::function<void(uint64_t arrived)> progress) {
    progress_ = std::move(progress);
  }
  /// Fills in what the report says about the configuration, and worker seconds.
  void describe(Report& report) const;
  uint32_t worker_count() const { return static_cast<uint32_t>(workers_.size()); }
  TimePoint now() const { return clock_.now(); }
  /// Requests inside; 0 when idle.
  uint64_t in_flight() const { return in_flight_; }
  /// Sum of the router's bookings; 0 when idle.
  int64_t booked() const;

 private:
  struct Worker {
    std::unique_ptr<engine::SimCore> core;
    uint32_t pool = 0;
    uint64_t events = 0;
    uint32_t waiting = 0;  // part of waiting_
    bool dirty = false;
  };
  /// Workers that do the same, with a router in front.
  struct Pool {
    std::unique_ptr<router::Router> router;
    std::shared_ptr<router::LoadBook> book;  // shared with leases
    uint32_t first = 0;                      // of its workers
    bool follows_events = false;
  };
  struct Live {
    RequestRecord record;
    router::LoadLease lease;
    PromptBlocks blocks;  // kept for the hand-over
    uint64_t answer_seed = 0;
    uint32_t told_tokens = 0;  // to the router
  };
  struct Handoff {
    TimePoint time{};
    uint64_t order = 0;
    uint32_t live = 0;
    friend auto operator<=>(const Handoff&, const Handoff&) = default;
  };

  Cluster(const ClusterConfig& config, const perf::TimingModel& timing);
  Status add_pool(uint32_t workers, engine::SimRole role);
  bool splits() const { return config_.prefill_workers > 0; }

  std::optional<TimePoint> next_time() const;
  void arrive();
  void dispatch(uint32_t live, uint32_t pool);
  void submit(uint32_t live, uint32_t worker);
  void finish_passes(uint32_t index);
  void tell_router(uint32_t index);
  void tell_requests(uint32_t index);
  void on_last_token(uint32_t live, uint32_t index);
  void end(uint32_t live, RequestStatus status);
  void touch(uint32_t worker);
  void start_passes();

  const ClusterConfig config_;
  const perf::TimingModel& timing_;
  SimClock clock_;
  std::vector<Pool> pools_;
  std::vector<Worker> workers_;
  WakeQueue wakes_;
  std::priority_queue<Handoff, std::vector<Handoff>, std::greater<>> handoffs_;
  std::vector<uint32_t> dirty_;

  std::vector<Live> lives_;
  std::vector<uint32_t> free_lives_;
  uint64_t in_flight_ = 0;
  uint64_t arrived_ = 0;
  uint64_t handoff_count_ = 0;
  uint64_t waiting_ = 0;  // in engines

  TraceSource* trace_ = nullptr;
  Recorder* recorder_ = nullptr;
  Arrivals* arrivals_ = nullptr;  // during run()
  TraceRequest request_;          // scratch
  engine::SimOutcome outcome_;    // scratch
  std::function<void(uint64_t)> progress_;
};

}  // namespace stator::simulator
