// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/random.h"
#include "stator/core/result.h"
#include "stator/engine/sim/sim_core.h"
#include "stator/engine/sim/sim_ranks.h"
#include "stator/lab/simulator/arrivals.h"
#include "stator/lab/simulator/planner.h"
#include "stator/lab/simulator/prompt_blocks.h"
#include "stator/lab/simulator/recorder.h"
#include "stator/lab/simulator/router_group.h"
#include "stator/lab/simulator/trace_source.h"
#include "stator/lab/simulator/transfers.h"
#include "stator/lab/simulator/wake_queue.h"
#include "stator/perf/timing_model.h"

namespace stator::simulator {

/// A simulated fleet and how it is loaded.
struct ClusterConfig {
  uint32_t workers = 1;
  /// Above 0: prompts are computed by this many further workers, and handed over to `workers`.
  uint32_t prefill_workers = 0;
  engine::SimEngineConfig engine;
  engine::SimPasses passes = engine::SimPasses::kCompressed;
  router::RouterConfig router;
  uint32_t router_replicas = 1;  ///< that take turns with the requests; see RouterGroup
  uint64_t seed = 42;            ///< of the routers' random choices
  double arrival_speedup = 1;    ///< the trace's times are divided by it
  uint32_t concurrency = 0;      ///< closed loop: so many requests at once, times ignored; 0 = open
  double handoff_bytes_per_token = 0;  ///< KV of one prompt token
  double handoff_bytes_per_second = 64e9;
  /// Hand-overs at once share the links of both workers, so the one that decodes is chosen before
  /// the hand-over; without, each has the bandwidth to itself and the choice is made after it.
  bool shared_links = false;
  uint32_t gpus_per_worker = 1;
  Duration startup_time{};             ///< of workers that are added or restarted
  std::vector<ScalingStep> fail_at{};  ///< times, and the numbers of the workers that die then
  Duration time_between_failures{};    ///< of a worker, on average, exponential; 0 = none
  Duration restart_after{};            ///< until a dead worker starts again; 0 = never
  uint32_t migration_limit = 3;        ///< workers a request may lose and still go on elsewhere
};

/// Discrete-event simulation of the production router in front of simulated engines.
/// Single-threaded and deterministic: the same trace and configuration give the same report, byte
/// for byte.
///
///   STATOR_TRY(auto cluster, Cluster::create(config, timing));
///   STATOR_CHECK(cluster->run(*trace, recorder));
///   Report report = recorder.make_report();
///
/// At one instant: passes that end (KV events, then tokens), hand-overs, what befalls the fleet
/// (deaths, workers that are ready, the planner), what routers hear of each other, arrivals,
/// requests in the routers' queues that may go, and then new passes on workers with work, lowest
/// first; until nothing happens at that instant any more.
///
/// A worker with data-parallel ranks is one engine (SimRanks) and as many targets of the router.
///
/// A worker that dies takes its cache and the pass under way with it. Its requests go on at another
/// worker with the tokens they have, at most migration_limit times, and fail after that.
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
  /// Asked from its first() time on, as long as there are requests.
  void set_planner(std::unique_ptr<Planner> planner) { planner_ = std::move(planner); }
  /// Fills in what the report says about the configuration, and worker seconds.
  void describe(Report& report) const;
  uint32_t worker_count() const { return static_cast<uint32_t>(workers_.size()); }
  TimePoint now() const { return clock_.now(); }
  /// Requests inside; 0 when idle.
  uint64_t in_flight() const { return in_flight_; }
  /// Sum of the routers' bookings; 0 when idle.
  int64_t booked() const;

 private:
  enum class State : uint8_t { kStarting, kReady, kDraining, kGone };
  struct Worker {
    std::unique_ptr<engine::SimRanks> engine;  // null: it is not there
    uint32_t pool = 0;
    State state = State::kReady;
    uint32_t life = 0;             // how often it has started
    std::vector<uint64_t> events;  // told, by rank
    engine::SimCore::Load load;    // part of its pool's
    uint32_t inbound = 0;          // hand-overs on their way to it
    bool dirty = false;
  };
  /// Workers that do the same, with their routers in front.
  struct Pool {
    std::unique_ptr<RouterGroup> routers;
    engine::SimEngineConfig engine;
    bool follows_events = false;
    FlatMap<RouterGroup::Id, uint32_t> queued;                    // to lives_
    std::deque<std::pair<TimePoint, RouterGroup::Id>> deadlines;  // of queued, and stale
    uint32_t starting = 0, ready = 0, draining = 0;
    uint64_t waiting = 0, running = 0, blocks_in_use = 0;  // in engines
    unsigned __int128 worker_time = 0;                     // provisioned, in worker nanoseconds
  };
  struct Live {
    RequestRecord record;
    router::LoadLease lease;
    PromptBlocks blocks;  // kept for the hand-over, and where workers may die
    uint64_t answer_seed = 0;
    uint32_t carried = 0;      // tokens of the answer that came with it to its present attempt
    uint32_t told_tokens = 0;  // to the router
    TimePoint last_token{};
    double priority = 0;
    uint32_t strict_priority = 0;
    uint32_t rank = 0;     // of its worker
    uint32_t handoff = 0;  // the one under way without shared links; else 0
  };
  struct Handoff {
    TimePoint time{};
    uint32_t order = 0;
    uint32_t live = 0;
    friend auto operator<=>(const Handoff&, const Handoff&) = default;
  };
  enum class Fate : uint8_t { kDies, kStarts, kIsReady };
  struct FleetEvent {
    TimePoint time{};
    uint64_t order = 0;
    uint32_t worker = 0;
    Fate fate = Fate::kDies;
    std::optional<uint32_t> life;  // it concerns; absent: any
    friend auto operator<=>(const FleetEvent&, const FleetEvent&) = default;
  };

  Cluster(const ClusterConfig& config, const perf::TimingModel& timing);
  Status add_pool(uint32_t workers, engine::SimRole role);
  bool splits() const { return config_.prefill_workers > 0; }
  bool keeps_blocks() const {
    return !config_.fail_at.empty() || config_.time_between_failures > Duration::zero();
  }
  uint32_t prompt_of(const Live& live) const { return live.record.input_tokens + live.carried; }

  // What happens when (cluster.cc).
  std::optional<TimePoint> next_time();
  void pass_time(TimePoint until);
  void arrive();
  void dispatch(uint32_t live, uint32_t pool);
  void place(uint32_t live, uint32_t pool, router::Decision decision);
  void refuse(uint32_t live, const Error& error);
  void hear_of_each_other();
  void empty_queues();
  void give_up_queues();
  void submit(uint32_t live, uint32_t worker);
  void finish_passes(uint32_t index);
  void tell_router(uint32_t index, uint32_t rank);
  void tell_requests(uint32_t index);
  void on_first_token(uint32_t live);
  void on_last_token(uint32_t live, uint32_t index);
  void finish_handoffs();
  void end(uint32_t live, RequestStatus status);
  void touch(uint32_t worker);
  void start_passes();

  // What befalls the fleet (cluster_fleet.cc).
  void add_worker(uint32_t pool, Duration startup);
  void schedule(Duration delay, uint32_t worker, Fate fate, bool this_life_only);
  void meet_fates();
  void start_worker(uint32_t worker, Duration startup);
  void make_ready(uint32_t worker);
  void kill_worker(uint32_t worker);
  void drop_worker(uint32_t worker);
  void note_load(uint32_t worker, const engine::SimCore::Load& load);
  void migrate(uint32_t live, uint32_t tokens, TimePoint last_token);
  void plan();
  void scale(uint32_t pool, uint32_t number);
  PoolView view(uint32_t pool) const;

  const ClusterConfig config_;
  const perf::TimingModel& timing_;
  SimClock clock_;
  Random random_;  // of failures
  std::vector<Pool> pools_;
  std::vector<Worker> workers_;
  WakeQueue wakes_;
  std::priority_queue<Handoff, std::vector<Handoff>, std::greater<>> handoffs_;
  Transfers transfers_;
  std::priority_queue<FleetEvent, std::vector<FleetEvent>, std::greater<>> fates_;
  uint64_t fate_count_ = 0;
  std::vector<uint32_t> dirty_;
  std::unique_ptr<Planner> planner_;
  std::optional<TimePoint> plan_at_;
  FleetView seen_;  // by the planner: sums up to then

  std::vector<Live> lives_;
  std::vector<uint32_t> free_lives_;
  uint64_t in_flight_ = 0;
  uint64_t arrived_ = 0;
  uint32_t handoff_count_ = 0;
  uint64_t deaths_ = 0;

  TraceSource* trace_ = nullptr;
  Recorder* recorder_ = nullptr;
  Arrivals* arrivals_ = nullptr;             // during run()
  TraceRequest request_;                     // scratch
  engine::SimOutcome outcome_;               // scratch
  std::vector<engine::SimCore::Lost> lost_;  // scratch
  std::function<void(uint64_t)> progress_;
};

}  // namespace stator::simulator
