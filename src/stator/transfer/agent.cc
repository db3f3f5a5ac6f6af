// SPDX-License-Identifier: Apache-2.0
#include "stator/transfer/agent.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "stator/core/log.h"
#include "stator/transfer/plugins.h"
#include "stator/transfer/wire.h"

namespace stator::transfer {
namespace {

constexpr std::array<std::string_view, 5> kTypes = {"shm", "cma", "tcp", "posix", "obj"};
constexpr size_t kStridedMax = size_t{1} << 24;
/// Between two looks at the clock while spinning.
constexpr int kPauses = 16;
constexpr double kRateWeight = 0.25;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Bytes that are copied in the time for sure: 1 GB/s.
uint64_t copied_within(Duration time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

}  // namespace

Agent::Agent(std::string name, const AgentOptions& options, Clock& clock, Metrics& metrics)
    : name_(std::move(name)),
      options_(options),
      clock_(clock),
      random_(Random::from_entropy()),
      metrics_(metrics),
      bytes_(metrics.counter("stator_transfer_bytes_total", "bytes moved")),
      dropped_(metrics.counter("stator_transfer_notifications_dropped_total",
                               "notifications that nobody read in time")) {
  epoch_ = random_.next();
  for (uint32_t i = 0; i < std::max(1U, options_.threads); ++i) {
    threads_.emplace_back("transfer", [this] { work(); });
  }
}

Agent::~Agent() {
  std::vector<std::unique_ptr<Backend>> backends;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    for (const auto& [id, transfer] : transfers_) {
      transfer->canceled = true;
    }
    work_.notify_all();
  }
  for (net::Thread& thread : threads_) {
    thread.join();
  }
  {
    const MutexLock lock(mutex_);
    backends = std::move(backends_);
  }
  backends.clear();  // their threads may still ask allows()
}

std::vector<std::string> Agent::backend_types() {
  std::vector<std::string> types(kTypes.begin(), kTypes.end());
  std::ranges::move(Plugins::of_this_process().names(), std::back_inserter(types));
  return types;
}

std::unique_ptr<Backend> Agent::make_backend(std::string_view type, const Params& params,
                                             std::string& cause) {
  if (type == "tcp") {
    return make_tcp_backend(*this, params, clock_, cause);
  }
  if (type == "shm") {
    return make_shm_backend(*this, params, clock_, cause);
  }
  if (type == "cma") {
    return make_cma_backend(*this, params, clock_, cause);
  }
  if (type == "posix") {
    return make_posix_backend(params, cause);
  }
  if (type == "obj") {
    return make_obj_backend(params, clock_, metrics_, cause);
  }
  const auto* const table = Plugins::of_this_process().find(type);
  return table == nullptr ? nullptr : make_plugin_backend(*table, *this, params, clock_, cause);
}

Outcome Agent::create_backend(std::string_view type, const Params& params) {
  std::string cause;
  auto made = make_backend(type, params, cause);
  if (made == nullptr && cause.empty()) {
    return Outcome::kNotFound;
  }
  if (made == nullptr) {
    log::error("transfer", "a backend does not start", {{"backend", type}, {"reason", cause}});
    return Outcome::kBackend;
  }
  const MutexLock lock(mutex_);
  for (const Region& region : regions_) {
    if (const Outcome attached = made->attach(region.type, region.desc);
        attached != Outcome::kSuccess) {
      return attached;
    }
  }
  backends_.push_back(std::move(made));
  return Outcome::kSuccess;
}

/// Tells the backends of a range: all of them, or none.
Outcome Agent::attach(MemType type, const Desc& range) {
  for (size_t i = 0; i < backends_.size(); ++i) {
    const Outcome attached = backends_[i]->attach(type, range);
    if (attached != Outcome::kSuccess) {
      for (size_t done = 0; done < i; ++done) {
        backends_[done]->detach(type, range);
      }
      return attached;
    }
  }
  return Outcome::kSuccess;
}

std::span<std::byte> Agent::allocate(size_t bytes) {
  auto arena = memory::Arena::create({.bytes = bytes,
                                      .huge_pages = memory::HugePages::kAdviseWhenLarge,
                                      .sharing = memory::Sharing::kMemfd,
                                      .name = "stator-transfer"});
  if (!arena) {
    return {};
  }
  const MutexLock lock(mutex_);
  arenas_.push_back(std::make_unique<memory::Arena>(std::move(*arena)));
  return arenas_.back()->bytes().first(bytes);
}

Outcome Agent::register_mem(MemType type, std::span<const Desc> ranges) {
  const MutexLock lock(mutex_);
  for (const Desc& range : ranges) {
    if (range.len == 0 || range.addr + range.len < range.addr) {
      return Outcome::kInvalidParam;
    }
  }
  const size_t before = regions_.size();
  for (const Desc& range : ranges) {
    if (const Outcome attached = attach(type, range); attached != Outcome::kSuccess) {
      for (; regions_.size() > before; regions_.pop_back()) {
        for (const auto& backend : backends_) {
          backend->detach(type, regions_.back().desc);
        }
      }
      return attached;
    }
    Region region{.type = type, .desc = range};
    for (size_t i = 0; i < region.key.size(); i += 8) {
      const uint64_t word = random_.next();
      std::memcpy(region.key.data() + i, &word, sizeof word);
    }
    for (const auto& arena : arenas_) {
      const auto base = reinterpret_cast<uint64_t>(arena->bytes().data());
      const Region whole{.desc = {.addr = base, .len = arena->bytes().size()}};
      if (type == MemType::kDram && whole.covers({range.addr, range.len, 0})) {
        region.shared_fd = arena->descriptor();
        region.shared_offset = range.addr - base;
      }
    }
    regions_.push_back(region);
  }
  return Outcome::kSuccess;
}

Outcome Agent::register_named(MemType type, std::string_view meta, uint64_t& dev) {
  const MutexLock lock(mutex_);
  for (const auto& backend : backends_) {
    if (backend->supports(MemType::kDram, type) && !backend->supports_remote()) {
      const Outcome opened = backend->open(type, meta, dev);
      if (opened == Outcome::kSuccess) {
        regions_.push_back({.type = type, .desc = {.addr = 0, .len = UINT64_MAX, .dev = dev}});
      }
      return opened;
    }
  }
  return Outcome::kNotSupported;
}

Outcome Agent::deregister_mem(MemType type, std::span<const Desc> ranges) {
  const MutexLock lock(mutex_);
  for (const Desc& range : ranges) {
    const auto found = std::ranges::find_if(regions_, [&](const Region& region) {
      return region.type == type && region.desc == range;
    });
    if (found == regions_.end()) {
      return Outcome::kNotFound;
    }
    regions_.erase(found);
    for (const auto& backend : backends_) {
      backend->detach(type, range);
    }
  }
  return Outcome::kSuccess;
}

std::optional<uint64_t> Agent::query_mem(MemType type, uint64_t dev) {
  const MutexLock lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& backend : backends_) {
    if (backend->supports(MemType::kDram, type) && backend->query(dev, bytes)) {
      return bytes;
    }
  }
  return std::nullopt;
}

Metadata Agent::describe(std::vector<Region> regions, bool connection) const {
  Metadata metadata{.agent = name_, .epoch = epoch_, .backends = {}, .regions = std::move(regions)};
  for (const auto& backend : backends_) {
    if (connection && backend->supports_remote()) {
      metadata.backends.push_back(
          {.type = std::string(backend->type()), .connection = backend->connection()});
    }
  }
  return metadata;
}

std::string Agent::local_md() const {
  const MutexLock lock(mutex_);
  std::vector<Region> regions;
  std::ranges::copy_if(regions_, std::back_inserter(regions), [](const Region& region) {
    return region.type == MemType::kDram || region.type == MemType::kVram;
  });
  return encode(describe(std::move(regions), true));
}

Outcome Agent::local_partial_md(MemType type, std::span<const Desc> ranges, bool connection,
                                std::string& blob) const {
  const MutexLock lock(mutex_);
  std::vector<Region> regions;
  for (const Desc& range : ranges) {
    const auto found = std::ranges::find_if(regions_, [&](const Region& region) {
      return region.type == type && region.desc == range;
    });
    if (found == regions_.end()) {
      return Outcome::kNotFound;
    }
    regions.push_back(*found);
  }
  Metadata part = describe(std::move(regions), connection);
  part.partial = true;
  blob = encode(part);
  return Outcome::kSuccess;
}

/// Adds what `part` has and `into`, of the same life, has not.
void Agent::merge(Metadata& into, Metadata&& part) const {
  for (Metadata::Backend& backend : part.backends) {
    const auto known = std::ranges::find(into.backends, backend.type, &Metadata::Backend::type);
    if (known == into.backends.end()) {
      into.backends.push_back(std::move(backend));
    } else {
      *known = std::move(backend);
    }
  }
  for (const Region& region : part.regions) {
    if (std::ranges::find(into.regions, region.key, &Region::key) == into.regions.end()) {
      into.regions.push_back(region);
    }
  }
}

Outcome Agent::load_remote_md(std::string_view blob, std::string& peer) {
  auto metadata = decode_metadata(blob);
  if (!metadata) {
    return Outcome::kMismatch;
  }
  if (metadata->agent == name_) {
    return Outcome::kInvalidParam;
  }
  const MutexLock lock(mutex_);
  Peer loaded{.metadata = std::move(*metadata), .connected = {}};
  const auto before = peers_.find(loaded.metadata.agent);
  if (loaded.metadata.partial && before != peers_.end() &&
      before->second.metadata.epoch == loaded.metadata.epoch) {
    Metadata whole = before->second.metadata;
    merge(whole, std::move(loaded.metadata));
    loaded.metadata = std::move(whole);
  }
  for (const auto& backend : backends_) {
    for (const Metadata::Backend& theirs : loaded.metadata.backends) {
      if (theirs.type == backend->type() &&
          backend->connect(loaded.metadata, theirs.connection) == Outcome::kSuccess) {
        loaded.connected[theirs.type] = true;
      }
    }
  }
  if (loaded.connected.empty()) {
    return Outcome::kBackend;
  }
  peer = loaded.metadata.agent;
  peers_.insert_or_assign(peer, std::move(loaded));
  return Outcome::kSuccess;
}

Outcome Agent::invalidate_remote_md(std::string_view peer) {
  const MutexLock lock(mutex_);
  const auto found = peers_.find(peer);
  if (found == peers_.end()) {
    return Outcome::kNotFound;
  }
  for (const auto& backend : backends_) {
    backend->disconnect(peer);
  }
  peers_.erase(found);
  return Outcome::kSuccess;
}

bool Agent::knows(std::string_view peer) const {
  const MutexLock lock(mutex_);
  return peers_.contains(peer);
}

const Region* Agent::find_region(std::span<const Region> regions, MemType type,
                                 const Desc& range) const {
  const auto found = std::ranges::find_if(
      regions, [&](const Region& region) { return region.type == type && region.covers(range); });
  return found == regions.end() ? nullptr : &*found;
}

Outcome Agent::prep_list(std::string_view owner, MemType type, std::span<const Desc> ranges,
                         ListId& list) {
  const MutexLock lock(mutex_);
  auto made = std::make_shared<List>();
  made->owner = owner == name_ ? std::string() : std::string(owner);
  made->type = type;
  made->ranges.assign(ranges.begin(), ranges.end());
  std::span<const Region> regions = regions_;
  if (!made->owner.empty()) {
    const auto peer = peers_.find(owner);
    if (peer == peers_.end()) {
      return Outcome::kNotFound;
    }
    regions = peer->second.metadata.regions;
  }
  const bool remote = !made->owner.empty();
  made->region_of.reserve(remote ? ranges.size() : 0);
  const Region* last = nullptr;  // mostly the next range is in the same one
  for (const Desc& range : ranges) {
    if (last == nullptr || !last->covers(range)) {
      last = find_region(regions, type, range);
      if (last == nullptr) {
        return Outcome::kNotFound;  // A1
      }
      if (remote) {
        made->regions.push_back(*last);
      }
    }
    if (remote) {
      made->region_of.push_back(static_cast<uint32_t>(made->regions.size() - 1));
    }
  }
  list = ++last_id_;
  lists_.emplace(list, std::move(made));
  return Outcome::kSuccess;
}

Outcome Agent::prep_strided(std::string_view owner, MemType type, std::span<const StridedDesc> runs,
                            ListId& list) {
  std::vector<Desc> ranges;
  for (const StridedDesc& run : runs) {
    if (ranges.size() + run.count > kStridedMax) {
      return Outcome::kInvalidParam;
    }
    for (uint64_t i = 0; i < run.count; ++i) {
      ranges.push_back({.addr = run.addr + i * run.stride, .len = run.len, .dev = run.dev});
    }
  }
  return prep_list(owner, type, ranges, list);
}

void Agent::release_list(ListId list) {
  const MutexLock lock(mutex_);
  lists_.erase(list);
}

size_t Agent::list_size(ListId list) const {
  const MutexLock lock(mutex_);
  const auto found = lists_.find(list);
  return found == lists_.end() ? 0 : found->second->ranges.size();
}

/// The first of the agent's backends, in the order they were made, that does it.
Backend* Agent::choose(MemType local, MemType remote, std::string_view peer) {
  for (const auto& backend : backends_) {
    if (!backend->supports(local, remote)) {
      continue;
    }
    if (peer.empty()) {
      if (!backend->supports_remote() || remote == MemType::kDram) {
        return backend.get();
      }
      continue;
    }
    const auto found = peers_.find(peer);
    if (found != peers_.end() && found->second.connected.contains(backend->type())) {
      return backend.get();
    }
  }
  return nullptr;
}

Outcome Agent::make_xfer(const Wanted& wanted, TransferId& transfer) {
  const MutexLock lock(mutex_);
  const auto local = lists_.find(wanted.local);
  const auto remote = lists_.find(wanted.remote);
  if (local == lists_.end() || remote == lists_.end() || !local->second->owner.empty() ||
      wanted.local_indices.size() != wanted.remote_indices.size()) {
    return Outcome::kInvalidParam;
  }
  const List& from = *local->second;
  const List& to = *remote->second;
  auto made = std::make_shared<Transfer>();
  made->op = wanted.op;
  made->local_type = from.type;
  made->remote_type = to.type;
  made->peer = to.owner;
  made->remote = remote->second;
  made->notification = wanted.notification;
  made->deadline = wanted.deadline > Duration::zero() ? wanted.deadline : options_.deadline;
  made->pairs.reserve(wanted.local_indices.size());
  for (size_t i = 0; i < wanted.local_indices.size(); ++i) {
    const uint32_t l = wanted.local_indices[i];
    const uint32_t r = wanted.remote_indices[i];
    if (l >= from.ranges.size() || r >= to.ranges.size() ||
        from.ranges[l].len != to.ranges[r].len) {
      return Outcome::kInvalidParam;
    }
    made->pairs.push_back(
        {.local = from.ranges[l],
         .remote = to.ranges[r],
         .remote_region = to.regions.empty() ? nullptr : &to.regions[to.region_of[r]]});
    made->telemetry.bytes += from.ranges[l].len;
  }
  made->telemetry.descriptors = made->pairs.size();
  made->backend = choose(from.type, to.type, to.owner);
  if (made->backend == nullptr) {
    return Outcome::kNotSupported;
  }
  made->copies = made->backend->only_copies();
  transfer = ++last_id_;
  transfers_.emplace(transfer, std::move(made));
  return Outcome::kSuccess;
}

Outcome Agent::post(TransferId id) {
  MutexLock lock(mutex_);
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) {
    return Outcome::kNotFound;
  }
  const std::shared_ptr<Transfer> transfer = found->second;
  if (transfer->outcome == Outcome::kInProgress) {
    return Outcome::kRepostActive;
  }
  if (!transfer->peer.empty() && !peers_.contains(transfer->peer)) {
    return Outcome::kNotFound;
  }
  if (queue_.size() >= options_.posted_max || stopping_) {
    return Outcome::kNotAllowed;
  }
  transfer->canceled = false;
  transfer->outcome = Outcome::kInProgress;
  if (transfer->copies && transfer->telemetry.bytes <= options_.inline_bytes && queue_.empty()) {
    lock.unlock();  // waking a thread would take longer
    run_unlocked(*transfer);
    return transfer->outcome;
  }
  queue_.push_back(transfer);
  ++queued_;
  work_.notify_one();
  return Outcome::kInProgress;
}

/// A transfer that follows another closely finds its thread awake.
void Agent::spin_for_work() const {
  const TimePoint until = clock_.now() + options_.spin;
  while (queued_.load(std::memory_order_relaxed) == 0 && clock_.now() < until) {
    for (int i = 0; i < kPauses; ++i) {
      pause_cpu();
    }
  }
}

void Agent::work() {
  bool rested = true;
  MutexLock lock(mutex_);
  while (true) {
    if (queue_.empty()) {
      if (stopping_) {
        return;
      }
      if (!rested) {
        lock.unlock();
        spin_for_work();
        lock.lock();
        rested = true;
        continue;
      }
      work_.wait(lock);
      continue;
    }
    const std::shared_ptr<Transfer> transfer = std::move(queue_.front());
    queue_.pop_front();
    --queued_;
    rested = false;
    lock.unlock();
    run_unlocked(*transfer);
    lock.lock();
  }
}

void Agent::run_unlocked(Transfer& transfer) {
  run(transfer);
  if (options_.news) {
    options_.news();
  }
  const MutexLock lock(mutex_);
  done_.notify_all();
}

void Agent::run(Transfer& transfer) {
  const TimePoint begin = clock_.now();
  Ended ended;
  if (transfer.canceled) {
    ended.outcome = Outcome::kCanceled;
  } else {
    ended = transfer.backend->run({.op = transfer.op,
                                   .local_type = transfer.local_type,
                                   .remote_type = transfer.remote_type,
                                   .pairs = transfer.pairs,
                                   .peer = transfer.peer,
                                   .notification = transfer.notification,
                                   .deadline = begin + transfer.deadline,
                                   .canceled = &transfer.canceled});
  }
  if (ended.outcome == Outcome::kSuccess) {
    bytes_.add(transfer.telemetry.bytes);
  }
  const MutexLock lock(mutex_);
  transfer.telemetry.seconds = std::chrono::duration<double>(clock_.now() - begin).count();
  if (ended.outcome == Outcome::kSuccess && transfer.telemetry.seconds > 0) {
    const double rate = static_cast<double>(transfer.telemetry.bytes) / transfer.telemetry.seconds;
    double& mean = bytes_per_second_[transfer.backend];
    mean = mean == 0 ? rate : mean + ((rate - mean) * kRateWeight);
  }
  transfer.cause = std::move(ended.cause);
  transfer.outcome = ended.outcome;
}

Outcome Agent::status(TransferId id) const {
  const MutexLock lock(mutex_);
  const auto found = transfers_.find(id);
  return found == transfers_.end() ? Outcome::kNotFound : found->second->outcome.load();
}

Outcome Agent::wait(TransferId id, Duration most) {
  const TimePoint until = clock_.now() + most;
  MutexLock lock(mutex_);
  while (true) {
    const auto found = transfers_.find(id);
    if (found == transfers_.end()) {
      return Outcome::kNotFound;
    }
    const std::shared_ptr<Transfer> transfer = found->second;
    const Duration left = until - clock_.now();
    if (transfer->outcome != Outcome::kInProgress || left <= Duration::zero()) {
      return transfer->outcome;
    }
    const auto queued = transfer->copies && transfer->telemetry.bytes <= copied_within(left)
                            ? std::ranges::find(queue_, transfer)
                            : queue_.end();
    if (queued != queue_.end()) {
      queue_.erase(queued);
      --queued_;
      lock.unlock();
      run_unlocked(*transfer);
      lock.lock();
      continue;
    }
    done_.wait_for(lock, left);
  }
}

Outcome Agent::release(TransferId id) {
  const MutexLock lock(mutex_);
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) {
    return Outcome::kNotFound;
  }
  if (found->second->outcome == Outcome::kInProgress) {
    found->second->canceled = true;
    return Outcome::kInProgress;
  }
  transfers_.erase(found);
  return Outcome::kSuccess;
}

std::optional<Duration> Agent::estimate(TransferId id) const {
  const MutexLock lock(mutex_);
  const auto found = transfers_.find(id);
  const auto rate = found == transfers_.end() ? bytes_per_second_.end()
                                              : bytes_per_second_.find(found->second->backend);
  if (rate == bytes_per_second_.end() || rate->second <= 0) {
    return std::nullopt;
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
      static_cast<double>(found->second->telemetry.bytes) / rate->second));
}

std::string Agent::backend_of(TransferId id) const {
  const MutexLock lock(mutex_);
  const auto found = transfers_.find(id);
  return found == transfers_.end() ? std::string() : std::string(found->second->backend->type());
}

std::optional<Telemetry> Agent::telemetry(TransferId id) const {
  const MutexLock lock(mutex_);
  const auto found = transfers_.find(id);
  if (found == transfers_.end() || found->second->outcome != Outcome::kSuccess) {
    return std::nullopt;
  }
  return found->second->telemetry;
}

std::string Agent::cause(TransferId id) const {
  const MutexLock lock(mutex_);
  const auto found = transfers_.find(id);
  return found == transfers_.end() ? std::string("no such transfer") : found->second->cause;
}

bool Agent::allows(const RemoteKey& key, const Desc& range) const {
  const MutexLock lock(mutex_);
  const auto found = std::ranges::find(regions_, key, &Region::key);
  return found != regions_.end() && found->type == MemType::kDram && key != RemoteKey{} &&
         found->covers(range);
}

void Agent::deliver(std::string peer, std::string message) {
  {
    const MutexLock lock(mutex_);
    if (notifications_.size() >= options_.notifications_max) {
      notifications_.pop_front();
      dropped_.add();
    }
    notifications_.emplace_back(std::move(peer), std::move(message));
  }
  if (options_.news) {
    options_.news();
  }
}

std::map<std::string, std::vector<std::string>> Agent::notifications() {
  const MutexLock lock(mutex_);
  std::map<std::string, std::vector<std::string>> out;
  for (auto& [peer, message] : notifications_) {
    out[peer].push_back(std::move(message));
  }
  notifications_.clear();
  return out;
}

Outcome Agent::gen_notification(std::string_view peer, std::string_view message) {
  Backend* chosen = nullptr;
  {
    const MutexLock lock(mutex_);
    chosen = choose(MemType::kDram, MemType::kDram, peer);
  }
  return chosen == nullptr || peer.empty() ? Outcome::kNotFound : chosen->notify(peer, message);
}

}  // namespace stator::transfer
