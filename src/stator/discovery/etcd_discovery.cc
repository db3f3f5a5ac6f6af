// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/etcd_discovery.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <optional>
#include <utility>

#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/core/random.h"
#include "stator/discovery/detail/discovery_metrics.h"
#include "stator/discovery/detail/etcd_client.h"
#include "stator/discovery/detail/record_registration.h"
#include "stator/discovery/etcd_view.h"
#include "stator/discovery/view_hub.h"
#include "stator/net/backoff.h"
#include "stator/net/thread.h"

namespace stator::discovery {
namespace {

namespace pb = etcdserverpb;
using namespace std::chrono_literals;
using detail::EtcdClient;

constexpr std::string_view kLogTarget = "discovery";
constexpr Duration kRetryMin = 250ms;
constexpr Duration kRetryMax = 5s;
constexpr Duration kWriteRetry = 500ms;
constexpr Duration kIdle = 1s;
// Processes that lost their leases together do not come back together.
constexpr Duration kLostLeaseJitter = 1s;
// Changes that come closer together than this reach watchers together.
constexpr Duration kPublishPace = 10ms;

struct EtcdMetrics : detail::DiscoveryMetrics {
  explicit EtcdMetrics(Metrics& metrics)
      : detail::DiscoveryMetrics(metrics),
        doubtful(metrics.gauge("stator_runtime_discovery_doubtful_instances",
                               "of them, those a store lost together with most others")),
        store_up(metrics.gauge("stator_runtime_discovery_store_up",
                               "1 while the discovery store answers")) {}
  Gauge doubtful;
  Gauge store_up;
};

/// Calls to the store are made without the lock. What waits for the store is bounded by the
/// registrations of this process.
class EtcdDiscovery final : public Discovery, public detail::RecordKeeper {
 public:
  EtcdDiscovery(EtcdOptions options, std::unique_ptr<detail::EtcdClient> client, const Clock& clock,
                Metrics& metrics)
      : options_(std::move(options)),
        prefix_(options_.root + "/v1/instances/"),
        clock_(clock),
        metrics_(metrics),
        client_(std::move(client)),
        view_({.prefix = prefix_}) {
    if (sync()) {
      publish();  // the first view, so that "no instance" is a fact from the start
    }
    keeper_ = net::Thread("etcd-lease", [this] { keep(); });
    teller_ = net::Thread("etcd-tell", [this] { tell(); });
    watcher_ = net::Thread("etcd-watch", [this] { follow(); });
  }
  EtcdDiscovery(const EtcdDiscovery&) = delete;
  EtcdDiscovery& operator=(const EtcdDiscovery&) = delete;
  ~EtcdDiscovery() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    client_->interrupt();
    watcher_.join();
    keeper_.join();
    teller_.join();
    if (lease_.id != 0 && store_up_) {
      client_->revoke(lease_.id).ignore("the lease runs out by itself");
    }
  }

  Result<std::unique_ptr<Registration>> register_instance(InstanceRecord record) override;
  std::vector<InstanceRecord> list(const InstanceQuery& query) override { return hub_.list(query); }
  std::unique_ptr<Watch> watch(InstanceQuery query, net::Shard& shard,
                               DiscoveryListener& listener) override {
    return hub_.watch(std::move(query), shard, listener);
  }

  Status update(InstanceRecord record) override STATOR_EXCLUDES(mutex_);
  void withdraw(const InstanceKey& key, Incarnation incarnation) override STATOR_EXCLUDES(mutex_);

 private:
  struct Owned {
    Incarnation incarnation;
    std::string content;
    bool written = false;
  };

  std::string key_of(const InstanceKey& key) const { return prefix_ + key.to_string(); }
  void note(const Status& status) STATOR_EXCLUDES(mutex_);
  void wait(Duration time) STATOR_EXCLUDES(mutex_);
  Status check_free(const std::string& key, const InstanceRecord& record);

  // The keeper.
  void keep() STATOR_EXCLUDES(mutex_);
  Duration keep_lease(TimePoint now) STATOR_EXCLUDES(mutex_);
  Duration renew(TimePoint now);
  Duration grant();
  Duration write_records() STATOR_EXCLUDES(mutex_);

  // The teller, which never waits for the store. What waits for it is bounded by the instances.
  void tell() STATOR_EXCLUDES(mutex_);
  void publish() STATOR_EXCLUDES(mutex_);

  // The watcher.
  void follow() STATOR_EXCLUDES(mutex_);
  bool sync() STATOR_EXCLUDES(mutex_);
  bool is_stopping() STATOR_EXCLUDES(mutex_);
  /// kEnd when the watch cannot go on. On the client's loop.
  EtcdClient::Watching apply(const pb::WatchResponse& response) STATOR_EXCLUDES(mutex_);
  void mend(const std::string& key, Owned& owned) STATOR_REQUIRES(mutex_);

  const EtcdOptions options_;
  const std::string prefix_;
  const Clock& clock_;
  const EtcdMetrics metrics_;
  const std::unique_ptr<detail::EtcdClient> client_;
  ViewHub hub_;

  Random random_ = Random::from_entropy();  // the keeper's
  detail::EtcdClient::Lease lease_;         // the keeper's, then the destructor's
  TimePoint lease_due_{};                   // the keeper's
  TimePoint lease_answered_{};              // the keeper's
  uint64_t bad_records_ = 0;                // the teller's, before it starts the constructor's

  Mutex mutex_;
  std::condition_variable_any changed_;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  bool unread_ STATOR_GUARDED_BY(mutex_) = true;   // the watcher must read everything again
  bool wanted_ STATOR_GUARDED_BY(mutex_) = false;  // something is to be written
  EtcdView view_ STATOR_GUARDED_BY(mutex_);
  std::map<std::string, Owned> owned_ STATOR_GUARDED_BY(mutex_);  // by key
  int64_t lease_id_ STATOR_GUARDED_BY(mutex_) = 0;
  std::string last_error_ STATOR_GUARDED_BY(mutex_);
  std::atomic<bool> store_up_{true};
  net::Thread keeper_;
  net::Thread watcher_;
  net::Thread teller_;
};

void EtcdDiscovery::note(const Status& status) {
  const bool up = status.has_value();
  metrics_.store_up.set(up ? 1 : 0);
  if (!up) {
    metrics_.errors.add();
    const MutexLock lock(mutex_);
    last_error_ = status.error().message();
  }
  if (store_up_.exchange(up) != up) {
    if (up) {
      log::info(kLogTarget, "the store answers again");
    } else {
      log::warn(kLogTarget, "the store does not answer; the last view stays",
                {{"error", status.error().message()}});
    }
  }
}

void EtcdDiscovery::wait(Duration time) {
  MutexLock lock(mutex_);
  if (!stopping_) {
    changed_.wait_for(lock, time);
  }
}

// Registrations

Status EtcdDiscovery::check_free(const std::string& key, const InstanceRecord& record) {
  STATOR_TRY(const std::string present, client_->get(key));
  if (present.empty()) {
    return {};
  }
  const auto other = parse_instance_record(present);
  return other ? detail::check_free(*other, record) : Status();
}

Result<std::unique_ptr<Registration>> EtcdDiscovery::register_instance(InstanceRecord record) {
  STATOR_CHECK(validate(record));
  const std::string key = key_of(record.key);
  const TimePoint give_up = clock_.now() + options_.startup_timeout;
  net::Backoff backoff(kRetryMin, kRetryMax);
  Status free = check_free(key, record);
  while (!free && free.error().code() == Code::kUnavailable && clock_.now() < give_up) {
    note(free);
    wait(backoff.next());
    free = check_free(key, record);
  }
  STATOR_CHECK(std::move(free), "registering with the discovery store");
  auto registration = std::make_unique<detail::RecordRegistration>(*this, record);
  MutexLock lock(mutex_);
  owned_[key] = {.incarnation = record.incarnation, .content = to_json(record)};
  wanted_ = true;
  changed_.notify_all();
  while (!owned_.at(key).written) {
    const Duration left = give_up - clock_.now();
    if (left <= Duration::zero()) {
      owned_.erase(key);
      return Error(Code::kUnavailable,
                   fmt::format("the discovery store took no registration: {}", last_error_));
    }
    changed_.wait_for(lock, left);
  }
  return registration;
}

Status EtcdDiscovery::update(InstanceRecord record) {
  const MutexLock lock(mutex_);
  const auto owned = owned_.find(key_of(record.key));
  if (owned == owned_.end() || owned->second.incarnation != record.incarnation) {
    return Error(Code::kNotFound,
                 fmt::format("{} is not registered here any more", record.key.to_string()));
  }
  owned->second.content = to_json(record);
  owned->second.written = false;
  wanted_ = true;
  changed_.notify_all();
  return {};
}

void EtcdDiscovery::withdraw(const InstanceKey& key, Incarnation incarnation) {
  const std::string name = key_of(key);
  int64_t lease = 0;
  {
    const MutexLock lock(mutex_);
    const auto owned = owned_.find(name);
    if (owned == owned_.end() || owned->second.incarnation != incarnation) {
      return;
    }
    owned_.erase(owned);
    lease = lease_id_;
  }
  if (lease != 0 && store_up_) {
    client_->remove_own(name, lease).ignore("the key goes with its lease");
  }
}

// The keeper: lease, own records

void EtcdDiscovery::keep() {
  while (true) {
    const TimePoint now = clock_.now();
    Duration next = std::min(kIdle, keep_lease(now));
    if (lease_.id != 0) {
      next = std::min(next, write_records());
    }
    MutexLock lock(mutex_);
    if (!wanted_ && !stopping_) {
      changed_.wait_for(lock, std::max(next, Duration(1ms)),
                        [this]() STATOR_REQUIRES(mutex_) { return wanted_ || stopping_; });
    }
    if (stopping_) {
      return;
    }
  }
}

Duration EtcdDiscovery::keep_lease(TimePoint now) {
  bool needed = false;
  {
    const MutexLock lock(mutex_);
    needed = !owned_.empty();
    wanted_ = false;
  }
  if (!needed) {
    return kIdle;
  }
  if (now >= lease_due_) {
    lease_due_ = now + (lease_.id == 0 ? grant() : renew(now));
  }
  return lease_due_ - now;
}

/// Returns when to call again; so does the next one.
Duration EtcdDiscovery::grant() {
  auto granted = client_->grant(options_.lease_ttl);
  note(granted ? Status() : Status(granted.error().clone()));
  if (!granted) {
    return kWriteRetry;
  }
  lease_ = *granted;
  lease_answered_ = clock_.now();
  const MutexLock lock(mutex_);
  lease_id_ = lease_.id;
  for (auto& [key, owned] : owned_) {
    owned.written = false;  // whatever lease they hung on is not ours any more
  }
  return lease_.ttl / 3;
}

Duration EtcdDiscovery::renew(TimePoint now) {
  const auto answer = client_->keep_alive(lease_.id);
  const bool gone =
      answer ? answer->ttl <= Duration::zero() : answer.error().code() == Code::kNotFound;
  if (gone) {
    metrics_.leases_lost.add();
    log::warn(kLogTarget, "the lease was lost, registering again");
    lease_ = {};
    return Duration(static_cast<int64_t>(random_.below(kLostLeaseJitter.count())));
  }
  note(answer ? Status() : Status(answer.error().clone()));
  if (answer) {
    lease_answered_ = now;
    return answer->ttl / 3;
  }
  const Duration left = lease_answered_ + lease_.ttl - now;
  return std::clamp(left / 2, kRetryMin, std::max(kRetryMin, lease_.ttl / 3));
}

Duration EtcdDiscovery::write_records() {
  std::vector<std::pair<std::string, std::string>> unwritten;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, owned] : owned_) {
      if (!owned.written) {
        unwritten.emplace_back(key, owned.content);
      }
    }
  }
  for (const auto& [key, content] : unwritten) {
    const Status put = client_->put(key, content, lease_.id);
    note(put);
    if (!put) {
      if (put.error().code() == Code::kNotFound) {
        lease_ = {};  // the lease is gone
        lease_due_ = clock_.now();
      }
      return kWriteRetry;
    }
    const MutexLock lock(mutex_);
    const auto owned = owned_.find(key);
    if (owned != owned_.end() && owned->second.content == content) {
      owned->second.written = true;
      changed_.notify_all();
    }
  }
  return kIdle;
}

// The teller: what the view became, to those who watch it

void EtcdDiscovery::tell() {
  while (true) {
    {
      MutexLock lock(mutex_);
      view_.expire(clock_.now());
      while (!stopping_ && !view_.changed()) {
        changed_.wait_for(lock, kIdle);
        view_.expire(clock_.now());
      }
      if (stopping_) {
        return;
      }
    }
    publish();
    MutexLock lock(mutex_);
    changed_.wait_for(lock, kPublishPace, [this]() STATOR_REQUIRES(mutex_) { return stopping_; });
  }
}

void EtcdDiscovery::publish() {
  std::vector<InstanceChange> changes;
  {
    const MutexLock lock(mutex_);
    changes = view_.take_changes();
    metrics_.doubtful.set(static_cast<double>(view_.doubtful()));
    metrics_.bad_records.add(view_.bad_records() - bad_records_);
    bad_records_ = view_.bad_records();
  }
  hub_.apply(std::move(changes));
  metrics_.instances.set(static_cast<double>(hub_.size()));
}

// The watcher

bool EtcdDiscovery::is_stopping() {
  const MutexLock lock(mutex_);
  return stopping_;
}

void EtcdDiscovery::follow() {
  net::Backoff backoff(kRetryMin, kRetryMax);
  while (!is_stopping()) {
    if (!sync()) {
      wait(backoff.next());
      continue;
    }
    backoff.reset();
    int64_t from = 0;
    {
      const MutexLock lock(mutex_);
      from = view_.position().revision + 1;
    }
    bool began = false;
    const Status watched = client_->watch(prefix_, from, [&](const pb::WatchResponse& response) {
      began = true;
      return apply(response);
    });
    if (watched || is_stopping()) {
      continue;
    }
    note(Error(Code::kUnavailable, fmt::format("the watch ended: {}", watched.error().message())));
    if (!began) {
      wait(backoff.next());
    }
  }
}

/// Brings the view up to date, reading everything only if changes since then cannot be had.
bool EtcdDiscovery::sync() {
  bool unread = false;
  {
    const MutexLock lock(mutex_);
    unread = unread_;
  }
  const auto position_of = [](const pb::RangeResponse& response) {
    return EtcdView::Position{response.header().cluster_id(), response.header().revision()};
  };
  if (!unread) {
    auto asked = client_->range(prefix_, detail::EtcdClient::Wanted::kPosition);
    note(asked ? Status() : Status(asked.error().clone()));
    if (!asked) {
      return false;
    }
    const MutexLock lock(mutex_);
    if (view_.can_resume(position_of(*asked))) {
      return true;
    }
  }
  auto all = client_->range(prefix_, detail::EtcdClient::Wanted::kAll);
  note(all ? Status() : Status(all.error().clone()));
  if (!all) {
    return false;
  }
  std::vector<EtcdView::Entry> entries;
  entries.reserve(static_cast<size_t>(all->kvs_size()));
  for (const pb::KeyValue& kv : all->kvs()) {
    entries.push_back({kv.key(), kv.value()});
  }
  const MutexLock lock(mutex_);
  if (view_.position().revision > 0) {
    metrics_.resyncs.add();
  }
  view_.resync(position_of(*all), entries, clock_.now());
  unread_ = false;
  for (auto& [key, owned] : owned_) {
    mend(key, owned);
  }
  changed_.notify_all();
  return true;
}

EtcdClient::Watching EtcdDiscovery::apply(const pb::WatchResponse& response) {
  const MutexLock lock(mutex_);
  if (response.canceled()) {
    unread_ = true;  // compacted away, or whatever the store's reason: start over
    return EtcdClient::Watching::kEnd;
  }
  for (const pb::Event& event : response.events()) {
    if (event.type() == pb::Event::DELETE) {
      view_.remove(event.kv().key());
    } else {
      view_.put({event.kv().key(), event.kv().value()});
    }
    view_.advance(event.kv().mod_revision());
  }
  if (response.events().empty()) {
    if (!response.created()) {
      view_.advance(response.header().revision());  // progress: nothing happened until then
    }
    return EtcdClient::Watching::kGoOn;
  }
  for (const pb::Event& event : response.events()) {  // as it is after all of them
    if (const auto own = owned_.find(event.kv().key()); own != owned_.end()) {
      mend(own->first, own->second);
    }
  }
  changed_.notify_all();
  return EtcdClient::Watching::kGoOn;
}

/// An own record that the store lacks is written again: the lease ran out, somebody deleted it, or
/// the store was wiped.
void EtcdDiscovery::mend(const std::string& key, Owned& owned) {
  if (!owned.written || view_.find(key) == owned.content) {
    return;
  }
  const auto other = parse_instance_record(view_.find(key));
  if (other && other->incarnation > owned.incarnation) {
    return;  // a newer life has it
  }
  metrics_.leases_lost.add();
  owned.written = false;
  wanted_ = true;
}

}  // namespace

Result<EtcdOptions> parse_etcd_url(std::string_view url) {
  EtcdOptions options;
  const auto refuse = [&](std::string_view why) {
    return Error(Code::kInvalidArgument,
                 fmt::format("'{}': {}; write etcd://host:port[,host:port…][/root]", url, why));
  };
  std::string_view rest = url;
  if (rest.starts_with("etcds://")) {
    options.tls = true;
    rest.remove_prefix(8);
  } else if (rest.starts_with("etcd://")) {
    rest.remove_prefix(7);
  } else {
    return refuse("it does not begin with etcd:// or etcds://");
  }
  if (const size_t slash = rest.find('/'); slash != std::string_view::npos) {
    options.root = rest.substr(slash + 1);
    rest = rest.substr(0, slash);
    if (options.root.empty() || options.root.ends_with('/')) {
      return refuse("the root is empty or ends with a slash");
    }
  }
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view endpoint = rest.substr(0, comma);
    const size_t colon = endpoint.rfind(':');
    const std::string_view port =
        colon == std::string_view::npos ? std::string_view() : endpoint.substr(colon + 1);
    if (colon == 0 || port.empty() || port.find_first_not_of("0123456789") != port.npos) {
      return refuse("an endpoint is not host:port");
    }
    options.endpoints.emplace_back(endpoint);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (options.endpoints.empty()) {
    return refuse("it names no endpoint");
  }
  return options;
}

Result<std::unique_ptr<Discovery>> open_etcd_discovery(EtcdOptions options, const Clock& clock,
                                                       Metrics& metrics) {
  STATOR_TRY(auto client, detail::EtcdClient::create(options, metrics));
  return std::make_unique<EtcdDiscovery>(std::move(options), std::move(client), clock, metrics);
}

}  // namespace stator::discovery
