// SPDX-License-Identifier: Apache-2.0
// A frontend's discovery of a large fleet: 10,000 instances in a folder or an etcd (STATOR_ETCD,
// host:port), 100 changes a second. How long from a join to a routable worker, and what it costs
// the frontend. Sessions are stubs that open at once: connecting is not measured here.
// docs/benchmarks/runtime.md.
#include <benchmark/benchmark.h>
#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/net/shard.h"
#include "stator/runtime/etcd_discovery.h"
#include "stator/runtime/file_discovery.h"
#include "stator/runtime/worker_pool.h"

namespace stator::runtime {
namespace {

constexpr uint64_t kFleet = 10'000;
constexpr uint64_t kChanges = 1'000;  // joins and leaves in turn, 10 ms apart

class StubSession final : public WorkerSession {
 public:
  StubSession(WorkerId worker, net::Shard& shard, SessionEvents& events)
      : worker_(worker),
        opened_(shard.after(Duration::zero(), [this, &events] { events.on_opened(worker_); })) {}
  WorkerId worker() const override { return worker_; }
  void submit(engine::EngineRequest /*request*/) override {}
  void cancel(engine::RequestKey /*key*/, CancelReason /*reason*/) override {}
  void close() override { opened_.cancel(); }

 private:
  const WorkerId worker_;
  net::Timer opened_;
};

class StubConnector final : public Connector {
 public:
  std::unique_ptr<WorkerSession> open_session(const InstanceRecord& record, net::Shard& shard,
                                              SessionEvents& events) override {
    return std::make_unique<StubSession>(record.key.worker, shard, events);
  }
  std::unique_ptr<EventFollower> follow_events(const InstanceRecord& /*record*/,
                                               net::Shard& /*shard*/,
                                               KvEventsListener& /*listener*/) override {
    return nullptr;
  }
};

/// Notes when workers became routable.
class Arrivals final : public WorkerPoolListener, public SessionEvents {
 public:
  explicit Arrivals(const Clock& clock) : clock_(clock) {}
  void on_synced() override {}
  void on_worker_added(const InstanceRecord& record) override {
    {
      const MutexLock lock(mutex_);
      arrived_[record.key.worker] = clock_.now();
    }
    ++count_;
    count_.notify_all();
  }
  void on_worker_updated(const InstanceRecord& /*record*/) override {}
  void on_worker_removed(WorkerId /*worker*/) override {}
  void on_rejected(WorkerId /*worker*/, engine::RequestKey /*key*/, Error /*error*/) override {}
  void on_accepted(WorkerId /*worker*/, engine::RequestKey /*key*/) override {}
  void on_step(WorkerId /*worker*/, engine::StepOutput /*output*/) override {}
  void on_draining(WorkerId /*worker*/) override {}
  void on_closed(WorkerId /*worker*/, Error /*error*/) override {}

  void wait(uint64_t count) {
    for (uint64_t seen = count_; seen < count; seen = count_) {
      count_.wait(seen);
    }
  }
  TimePoint at(WorkerId worker) {
    const MutexLock lock(mutex_);
    return arrived_.at(worker);
  }

 private:
  const Clock& clock_;
  Mutex mutex_;
  FlatMap<WorkerId, TimePoint> arrived_ STATOR_GUARDED_BY(mutex_);
  std::atomic<uint64_t> count_ = 0;
};

InstanceRecord make_record(uint64_t worker) {
  InstanceRecord record;
  record.key.worker = WorkerId(worker);
  record.incarnation = Incarnation(1);
  record.address = "127.0.0.1:1";
  record.model.name = "demo";
  return record;
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

/// `open` makes a view of one store: one for the frontend, one for all workers, whose CPU time is
/// counted, too.
template <typename Open>
void run(benchmark::State& state, const Open& open) {
  SystemClock clock;
  Metrics metrics;
  net::ShardSet shards(1, clock, metrics);
  shards.start();
  StubConnector connector;
  Arrivals arrivals(clock);
  auto workers = open(clock, metrics);
  std::vector<std::unique_ptr<Registration>> fleet;
  for (uint64_t i = 1; i <= kFleet; ++i) {
    fleet.push_back(std::move(workers->register_instance(make_record(i)).value()));
  }
  auto frontend = open(clock, metrics);
  std::unique_ptr<WorkerPool> pool;
  STATOR_ASSERT(shards.shard(0).run_and_wait([&] {
    pool = std::make_unique<WorkerPool>(
        WorkerPoolOptions{},
        WorkerPool::Wiring{*frontend, connector, shards.shard(0), arrivals, arrivals}, metrics);
  }),
                "the shard runs");
  arrivals.wait(kFleet);
  std::vector<double> joins;
  for (auto _ : state) {
    const double cpu = cpu_seconds();
    const TimePoint begun = clock.now();
    for (uint64_t i = 0; i < kChanges / 2; ++i) {
      const WorkerId worker(kFleet + 1 + i);
      ::poll(nullptr, 0, 10);
      const TimePoint joined = clock.now();
      fleet.push_back(std::move(workers->register_instance(make_record(worker.value())).value()));
      ::poll(nullptr, 0, 10);
      fleet[i].reset();
      arrivals.wait(kFleet + 1 + i);
      joins.push_back(
          std::chrono::duration<double, std::milli>(arrivals.at(worker) - joined).count());
    }
    const double seconds = std::chrono::duration<double>(clock.now() - begun).count();
    state.counters["cpu_percent"] = 100 * (cpu_seconds() - cpu) / seconds;
    state.counters["changes_per_s"] = static_cast<double>(kChanges) / seconds;
  }
  std::ranges::sort(joins);
  state.counters["join_p50_ms"] = joins[joins.size() / 2];
  state.counters["join_p99_ms"] = joins[joins.size() * 99 / 100];
  STATOR_ASSERT(shards.shard(0).run_and_wait([&] { pool.reset(); }), "the shard runs");
  shards.stop();
}

void BM_FileDiscovery(benchmark::State& state) {
  const auto root = std::filesystem::temp_directory_path() / "stator-discovery-bench";
  run(state, [&root](const Clock& clock, Metrics& metrics) {
    return std::move(open_file_discovery({.root = root}, clock, metrics).value());
  });
  std::filesystem::remove_all(root);
}
BENCHMARK(BM_FileDiscovery)->Iterations(1)->UseRealTime();

void BM_EtcdDiscovery(benchmark::State& state) {
  const char* address = std::getenv("STATOR_ETCD");  // NOLINT(concurrency-mt-unsafe): one thread
  if (address == nullptr) {
    state.SkipWithError("STATOR_ETCD=host:port names no etcd");
    return;
  }
  run(state, [address](const Clock& clock, Metrics& metrics) {
    EtcdOptions options;
    options.endpoints = {address};
    return std::move(open_etcd_discovery(options, clock, metrics).value());
  });
}
BENCHMARK(BM_EtcdDiscovery)->Iterations(1)->UseRealTime();

}  // namespace
}  // namespace stator::runtime
