// SPDX-License-Identifier: Apache-2.0
// A frontend's discovery of a large fleet: 10,000 instances in a folder or an etcd (STATOR_ETCD,
// host:port), 100 changes a second. How long from a join to a routable worker, and what it costs
// the frontend; the workers live in a process of their own. Sessions are stubs that open at once:
// connecting is not measured here.
// docs/benchmarks/runtime.md.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/discovery/etcd_discovery.h"
#include "stator/discovery/file_discovery.h"
#include "stator/net/shard.h"
#include "stator/session/worker_pool.h"

namespace stator::discovery {
namespace {

constexpr uint64_t kFleet = 10'000;
constexpr uint64_t kChanges = 1'000;  // joins and leaves in turn
constexpr Duration kPace = std::chrono::milliseconds(10);
constexpr int kQuietMs = 10'000;  // some renewals of all leases

class StubSession final : public session::WorkerSession {
 public:
  StubSession(WorkerId worker, net::Shard& shard, session::SessionEvents& events)
      : worker_(worker),
        opened_(shard.after(Duration::zero(), [this, &events] { events.on_opened(worker_); })) {}
  WorkerId worker() const override { return worker_; }
  void submit(inference::EngineRequest /*request*/) override {}
  void cancel(inference::RequestKey /*key*/, session::CancelReason /*reason*/) override {}
  void close() override { opened_.cancel(); }

 private:
  const WorkerId worker_;
  net::Timer opened_;
};

class StubConnector final : public session::Connector {
 public:
  std::unique_ptr<session::WorkerSession> open_session(const InstanceRecord& record,
                                                       net::Shard& shard,
                                                       session::SessionEvents& events) override {
    return std::make_unique<StubSession>(record.key.worker, shard, events);
  }
  std::unique_ptr<kv_events::EventFollower> follow_events(
      const InstanceRecord& /*record*/, net::Shard& /*shard*/,
      kv_events::KvEventsListener& /*listener*/) override {
    return nullptr;
  }
};

/// Notes when workers became routable.
class Arrivals final : public session::WorkerPoolListener, public session::SessionEvents {
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
  void on_rejected(WorkerId /*worker*/, inference::RequestKey /*key*/, Error /*error*/) override {}
  void on_accepted(WorkerId /*worker*/, inference::RequestKey /*key*/) override {}
  void on_step(WorkerId /*worker*/, inference::StepOutput /*output*/) override {}
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

// How the process of the workers is told what it is, and where it finds its line to the frontend's.
constexpr const char* kStoreVariable = "STATOR_BENCH_FLEET";
constexpr int kLine = 3;

struct Join {
  uint64_t worker = 0;  // 0: all of the first fleet are registered
  TimePoint at;
};

void send_join(const Join& join) {
  STATOR_ASSERT(::write(kLine, &join, sizeof(join)) == sizeof(join), "the frontend reads");
}

std::unique_ptr<Discovery> open_store(const std::string& store, const Clock& clock,
                                      Metrics& metrics) {
  constexpr std::string_view kFile = "file:";
  if (store.starts_with(kFile)) {
    return std::move(
        open_file_discovery({.root = store.substr(kFile.size())}, clock, metrics).value());
  }
  return std::move(open_etcd_discovery(parse_etcd_url(store).value(), clock, metrics).value());
}

/// All workers: this program again, told by kStoreVariable. Registers the fleet, waits for a byte,
/// makes the changes, ends with the line.
void run_workers(benchmark::State& state, const std::string& store) {
  SystemClock clock;
  Metrics metrics;
  auto discovery = open_store(store, clock, metrics);
  std::vector<std::unique_ptr<Registration>> fleet;
  const auto join = [&](uint64_t worker) {
    fleet.push_back(std::move(discovery->register_instance(make_record(worker)).value()));
  };
  for (uint64_t i = 1; i <= kFleet; ++i) {
    join(i);
  }
  send_join({});
  char go = 0;
  for (auto _ : state) {
    STATOR_ASSERT(::read(kLine, &go, 1) == 1, "the frontend is ready");
    TimePoint due = clock.now();
    for (uint64_t i = 0; i < kChanges; ++i, due += kPace) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(due - clock.now());
      ::poll(nullptr, 0, static_cast<int>(std::max<int64_t>(left.count(), 0)));
      if (i % 2 == 1) {
        fleet[i / 2].reset();
        continue;
      }
      const Join joined{kFleet + 1 + i / 2, clock.now()};
      join(joined.worker);
      send_join(joined);
    }
  }
  while (::read(kLine, &go, 1) > 0) {
  }
}
const bool kIsWorkers = [] {
  const char* store = std::getenv(kStoreVariable);  // NOLINT(concurrency-mt-unsafe): one thread
  if (store != nullptr) {
    benchmark::RegisterBenchmark("Workers", run_workers, std::string(store))->Iterations(1);
  }
  return store != nullptr;
}();

/// The process of the workers and the line to it.
class WorkersProcess {
 public:
  explicit WorkersProcess(const std::string& store) {
    std::array<int, 2> ends{};
    STATOR_ASSERT(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, "a line");
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], kLine);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    std::string name = "workers";
    std::string filter = "--benchmark_filter=^Workers";
    std::string variable = std::string(kStoreVariable) + "=" + store;
    const std::array<char*, 3> arguments = {name.data(), filter.data(), nullptr};
    const std::array<char*, 2> environment = {variable.data(), nullptr};
    STATOR_ASSERT(::posix_spawn(&process_, "/proc/self/exe", &files, nullptr, arguments.data(),
                                environment.data()) == 0,
                  "this program starts again");
    posix_spawn_file_actions_destroy(&files);
    ::close(ends[1]);
    line_ = ends[0];
  }
  WorkersProcess(const WorkersProcess&) = delete;
  WorkersProcess& operator=(const WorkersProcess&) = delete;
  ~WorkersProcess() {
    ::close(line_);
    ::waitpid(process_, nullptr, 0);
  }

  Join read_join() const {
    Join join;
    STATOR_ASSERT(::recv(line_, &join, sizeof(join), MSG_WAITALL) == sizeof(join), "workers live");
    return join;
  }
  void start_changes() const { STATOR_ASSERT(::write(line_, "", 1) == 1, "workers live"); }

 private:
  pid_t process_ = 0;
  int line_ = -1;
};

/// The CPU time is that of this process alone: one frontend shard and its discovery.
/// `quiet_percent` is what it takes while nothing changes and leases are renewed.
void run(benchmark::State& state, const std::string& store) {
  const WorkersProcess workers(store);
  workers.read_join();
  SystemClock clock;
  Metrics metrics;
  net::ShardSet shards(1, clock, metrics);
  shards.start();
  StubConnector connector;
  Arrivals arrivals(clock);
  const double cpu_at_start = cpu_seconds();
  auto frontend = open_store(store, clock, metrics);
  std::unique_ptr<session::WorkerPool> pool;
  STATOR_ASSERT(shards.shard(0).run_and_wait([&] {
    pool = std::make_unique<session::WorkerPool>(
        session::WorkerPoolOptions{},
        session::WorkerPool::Wiring{*frontend, connector, shards.shard(0), arrivals, arrivals},
        metrics);
  }),
                "the shard runs");
  arrivals.wait(kFleet);
  double cpu = cpu_seconds();
  state.counters["first_view_cpu_ms"] = 1e3 * (cpu - cpu_at_start);
  ::poll(nullptr, 0, kQuietMs);
  const double quiet = (cpu_seconds() - cpu) * 1e3 / kQuietMs;
  std::vector<double> joins;
  for (auto _ : state) {
    cpu = cpu_seconds();
    const TimePoint begun = clock.now();
    workers.start_changes();
    for (uint64_t i = 0; i < kChanges / 2; ++i) {
      const Join join = workers.read_join();
      arrivals.wait(kFleet + 1 + i);
      joins.push_back(
          std::chrono::duration<double, std::milli>(arrivals.at(WorkerId(join.worker)) - join.at)
              .count());
    }
    const double seconds = std::chrono::duration<double>(clock.now() - begun).count();
    cpu = cpu_seconds() - cpu;
    state.counters["cpu_percent"] = 100 * cpu / seconds;
    state.counters["cpu_us_per_change"] = 1e6 * (cpu - quiet * seconds) / kChanges;
    state.counters["changes_per_s"] = static_cast<double>(kChanges) / seconds;
  }
  state.counters["quiet_percent"] = 100 * quiet;
  std::ranges::sort(joins);
  state.counters["join_p50_ms"] = joins[joins.size() / 2];
  state.counters["join_p99_ms"] = joins[joins.size() * 99 / 100];
  STATOR_ASSERT(shards.shard(0).run_and_wait([&] { pool.reset(); }), "the shard runs");
  shards.stop();
}

void BM_FileDiscovery(benchmark::State& state) {
  const auto root = std::filesystem::temp_directory_path() / "stator-discovery-bench";
  run(state, "file:" + root.string());
  std::filesystem::remove_all(root);
}
BENCHMARK(BM_FileDiscovery)->Iterations(1)->UseRealTime();

void BM_EtcdDiscovery(benchmark::State& state) {
  const char* address = std::getenv("STATOR_ETCD");  // NOLINT(concurrency-mt-unsafe): one thread
  if (address == nullptr) {
    state.SkipWithError("STATOR_ETCD=host:port names no etcd");
    return;
  }
  run(state, "etcd://" + std::string(address));
}
BENCHMARK(BM_EtcdDiscovery)->Iterations(1)->UseRealTime();

}  // namespace
}  // namespace stator::discovery
