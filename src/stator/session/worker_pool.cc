// SPDX-License-Identifier: Apache-2.0
#include "stator/session/worker_pool.h"

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "stator/core/assert.h"
#include "stator/core/log.h"
#include "stator/net/backoff.h"

namespace stator::session {
namespace {

constexpr std::string_view kLogTarget = "session::pool";

/// What is known of workers, as gauges. A worker that is forgotten is counted as gone.
enum class Standing : uint8_t { kActive, kUnlisted, kUnreachable };

struct PoolMetrics {
  explicit PoolMetrics(Metrics& metrics)
      : by_standing{gauge(metrics, "active"), gauge(metrics, "unlisted"),
                    gauge(metrics, "unreachable")},
        gone(metrics.counter("stator_runtime_pool_workers_gone_total",
                             "workers forgotten: neither in discovery nor connected any more")),
        reconnects(metrics.counter("stator_runtime_reconnects_total",
                                   "sessions opened again after a loss")) {}
  void move(std::optional<Standing> from, std::optional<Standing> to) const {
    if (from) {
      by_standing[static_cast<size_t>(*from)].add(-1);
    }
    if (to) {
      by_standing[static_cast<size_t>(*to)].add(1);
    }
  }

  std::array<Gauge, 3> by_standing;
  Counter gone;
  Counter reconnects;

 private:
  static Gauge gauge(Metrics& metrics, std::string_view state) {
    return metrics.gauge("stator_runtime_pool_workers",
                         "workers by shard: active, unlisted (connected, but no longer in "
                         "discovery), unreachable (in discovery without a session)",
                         {{"state", std::string(state)}});
  }
};

}  // namespace

/// All on the loop. A session is never destroyed inside its own callback: it is parked until the
/// next turn.
class WorkerPool::Impl final : public discovery::DiscoveryListener, public SessionEvents {
 public:
  Impl(WorkerPoolOptions options, Wiring wiring, Metrics& metrics)
      : options_(std::move(options)), wiring_(wiring), metrics_(metrics) {}

  void start() {
    STATOR_ASSERT(wiring_.shard.on_loop(), "a worker pool lives on its shard's loop");
    watch_ = wiring_.discovery.watch(options_.query, wiring_.shard, *this);
  }

  void stop() {
    watch_.reset();
    for (auto& [worker, entry] : workers_) {
      metrics_.move(entry.counted, std::nullopt);
    }
    workers_.clear();
    parked_.clear();
  }

  WorkerSession* find_session(WorkerId worker) {
    const auto found = workers_.find(worker);
    return found == workers_.end() || !found->second.up ? nullptr : found->second.session.get();
  }

  const discovery::InstanceRecord* find_record(WorkerId worker) const {
    const auto found = workers_.find(worker);
    return found == workers_.end() ? nullptr : &found->second.record;
  }

  // DiscoveryListener

  void on_synced() override { wiring_.listener.on_synced(); }

  void on_added(const discovery::InstanceRecord& record) override {
    const WorkerId worker = record.key.worker;
    auto [found, fresh] = workers_.try_emplace(worker, record, options_);
    Entry& entry = found->second;
    entry.listed = true;
    count(entry);
    if (fresh) {
      connect(entry);
    } else if (record.incarnation != entry.record.incarnation) {
      replace(entry, record);
    } else {
      entry.record = record;  // listed again while its session lived on
      if (entry.up) {
        wiring_.listener.on_worker_updated(record);
      }
    }
  }

  void on_updated(const discovery::InstanceRecord& record) override {
    const auto found = workers_.find(record.key.worker);
    if (found == workers_.end()) {
      return;
    }
    found->second.record = record;
    if (found->second.up) {
      wiring_.listener.on_worker_updated(record);
    }
  }

  void on_removed(const discovery::InstanceRecord& last) override {
    const auto found = workers_.find(last.key.worker);
    if (found == workers_.end() || found->second.record.incarnation != last.incarnation) {
      return;
    }
    found->second.listed = false;
    count(found->second);
    if (!found->second.up) {  // P2: a live one stays until its connection ends
      drop(found);
    }
  }

  // SessionEvents

  void on_opened(WorkerId worker) override {
    Entry& entry = workers_.at(worker);
    entry.backoff.reset();
    entry.up = true;
    entry.loss_logged = false;
    count(entry);
    if (options_.kv_events != nullptr && entry.follower == nullptr) {
      entry.follower =
          wiring_.connector.follow_events(entry.record, wiring_.shard, *options_.kv_events);
    }
    wiring_.listener.on_worker_added(entry.record);
    wiring_.events.on_opened(worker);
  }

  void on_closed(WorkerId worker, Error error) override {
    const auto found = workers_.find(worker);
    Entry& entry = found->second;
    // Once per loss: attempts to reach it again fail every few seconds.
    const bool news = entry.up || !entry.loss_logged;
    (news ? log::info : log::debug)(kLogTarget, entry.up ? "worker lost" : "worker not reached",
                                    {{"worker", entry.record.key.to_string()},
                                     {"address", entry.record.address},
                                     {"reason", error.message()}});
    entry.loss_logged = true;
    park(std::move(entry.session));
    if (entry.up) {
      take_down(entry, std::move(error));
    }
    if (!entry.listed) {
      drop(found);
      return;
    }
    entry.retry = wiring_.shard.after(entry.backoff.next(), [this, worker] {
      metrics_.reconnects.add();
      connect(workers_.at(worker));
    });
  }

  void on_load(WorkerId worker, const engine::LoadReport& load) override {
    wiring_.events.on_load(worker, load);
  }
  void on_rejected(WorkerId worker, inference::RequestKey key, Error error) override {
    wiring_.events.on_rejected(worker, key, std::move(error));
  }
  void on_accepted(WorkerId worker, inference::RequestKey key) override {
    wiring_.events.on_accepted(worker, key);
  }
  void on_step(WorkerId worker, inference::StepOutput output) override {
    wiring_.events.on_step(worker, std::move(output));
  }
  void on_draining(WorkerId worker) override { wiring_.events.on_draining(worker); }

 private:
  struct Entry {
    Entry(const discovery::InstanceRecord& record_in, const WorkerPoolOptions& options)
        : record(record_in), backoff(options.reconnect_min, options.reconnect_max) {}
    discovery::InstanceRecord record;
    bool listed = true;
    bool up = false;           // added at the listener
    bool loss_logged = false;  // since it was up last
    std::optional<Standing> counted;
    std::unique_ptr<WorkerSession> session;
    std::unique_ptr<kv_events::EventFollower> follower;
    net::Backoff backoff;
    net::Timer retry;
  };
  // Not a hash map: callbacks hold references to entries while others come and go.
  using Workers = std::map<WorkerId, Entry>;

  void connect(Entry& entry) {
    entry.session = wiring_.connector.open_session(entry.record, wiring_.shard, *this);
  }

  /// A new life under the id: whatever was in flight at the old one is lost.
  void replace(Entry& entry, const discovery::InstanceRecord& record) {
    park(std::move(entry.session));
    if (entry.up) {
      take_down(entry, Error(Code::kDisconnected, "the worker has been restarted"));
    }
    entry.retry.cancel();
    entry.record = record;
    connect(entry);
  }

  void take_down(Entry& entry, Error error) {
    const WorkerId worker = entry.record.key.worker;
    entry.up = false;
    entry.follower.reset();  // the next one starts with a snapshot
    count(entry);
    wiring_.events.on_closed(worker, std::move(error));
    wiring_.listener.on_worker_removed(worker);
  }

  /// After every change of `listed` or `up`.
  void count(Entry& entry) const {
    const Standing now = !entry.up      ? Standing::kUnreachable
                         : entry.listed ? Standing::kActive
                                        : Standing::kUnlisted;
    metrics_.move(std::exchange(entry.counted, now), now);
  }

  void drop(Workers::iterator entry) {
    metrics_.move(entry->second.counted, std::nullopt);
    metrics_.gone.add();
    park(std::move(entry->second.session));
    workers_.erase(entry);
  }

  /// Closes a session and keeps it until its own callbacks have returned and callers have let go of
  /// it.
  void park(std::unique_ptr<WorkerSession> session) {
    if (session == nullptr) {
      return;
    }
    session->close();
    parked_.push_back(std::move(session));
    unpark_ = wiring_.shard.after(Duration::zero(), [this] { parked_.clear(); });
  }

  const WorkerPoolOptions options_;
  const Wiring wiring_;
  const PoolMetrics metrics_;
  std::unique_ptr<discovery::Watch> watch_;
  Workers workers_;
  std::vector<std::unique_ptr<WorkerSession>> parked_;  // until the next turn
  net::Timer unpark_;
};

WorkerPool::WorkerPool(WorkerPoolOptions options, Wiring wiring, Metrics& metrics)
    : impl_(std::make_unique<Impl>(std::move(options), wiring, metrics)) {
  impl_->start();
}

WorkerPool::~WorkerPool() {
  impl_->stop();
}

WorkerSession* WorkerPool::find_session(WorkerId worker) {
  return impl_->find_session(worker);
}

const discovery::InstanceRecord* WorkerPool::find_record(WorkerId worker) const {
  return impl_->find_record(worker);
}

}  // namespace stator::session
