// SPDX-License-Identifier: Apache-2.0
#include "stator/transfer/agent.h"

#include <algorithm>
#include <array>

#include "stator/core/log.h"
#include "stator/core/random.h"
#include "stator/transfer/plugins.h"
#include "stator/transfer/wire.h"

namespace stator::transfer {
namespace {

constexpr std::array<std::string_view, 5> kTypes = {"shm", "cma", "tcp", "posix", "obj"};
/// Ranges that a list of runs is written out to, where no registration holds a run as a whole.
constexpr size_t kStridedMax = size_t{1} << 24;

}  // namespace

Agent::Agent(std::string name, const AgentOptions& options, Clock& clock, Metrics& metrics)
    : name_(std::move(name)),
      options_(options),
      clock_(clock),
      epoch_(Random::from_entropy().next()),
      metrics_(metrics),
      dropped_(metrics.counter("stator_transfer_notifications_dropped_total",
                               "notifications that nobody read in time")),
      registered_bytes_(
          metrics.gauge("stator_transfer_registered_bytes", "memory that peers may be told of")),
      movers_({.threads = options.threads,
               .posted_max = options.posted_max,
               .spin = options.spin,
               .news = options.news},
              clock, metrics) {}

Agent::~Agent() {
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, transfer] : transfers_) {
      transfer->canceled = true;
    }
  }
  movers_.stop();
  std::vector<std::unique_ptr<Backend>> backends;
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
  for (const Region& region : registered_.all()) {
    if (const Outcome attached = made->attach(region.type, region.desc);
        attached != Outcome::kSuccess) {
      return attached;
    }
  }
  backends_.push_back(std::move(made));
  return Outcome::kSuccess;
}

std::span<std::byte> Agent::allocate(size_t bytes) {
  const MutexLock lock(mutex_);
  return registered_.allocate(bytes);
}

Outcome Agent::register_mem(MemType type, std::span<const Desc> ranges) {
  for (const Desc& range : ranges) {
    if (range.len == 0 || range.addr + range.len < range.addr) {
      return Outcome::kInvalidParam;
    }
  }
  std::vector<std::pair<Backend*, Desc>> told;
  Outcome outcome = Outcome::kSuccess;
  {
    const MutexLock lock(mutex_);
    for (const Desc& range : ranges) {
      for (const auto& backend : backends_) {
        outcome = outcome == Outcome::kSuccess ? backend->attach(type, range) : outcome;
        if (outcome == Outcome::kSuccess) {
          told.emplace_back(backend.get(), range);
        }
      }
    }
    if (outcome == Outcome::kSuccess) {
      registered_.add(type, ranges);
      registered_bytes_.set(static_cast<double>(registered_.memory_bytes()));
      return outcome;
    }
  }
  for (const auto& [backend, range] : told) {
    backend->detach(type, range);
  }
  return outcome;
}

Outcome Agent::register_named(MemType type, std::string_view meta, uint64_t& dev) {
  const MutexLock lock(mutex_);
  for (const auto& backend : backends_) {
    if (backend->supports(MemType::kDram, type) && !backend->supports_remote()) {
      const Outcome opened = backend->open(type, meta, dev);
      if (opened == Outcome::kSuccess) {
        const Desc whole{.addr = 0, .len = UINT64_MAX, .dev = dev};
        registered_.add(type, {&whole, 1});
      }
      return opened;
    }
  }
  return Outcome::kNotSupported;
}

Outcome Agent::deregister_mem(MemType type, std::span<const Desc> ranges) {
  std::vector<Backend*> backends;
  {
    const MutexLock lock(mutex_);
    for (const Desc& range : ranges) {
      if (registered_.find(type, range) == nullptr) {
        return Outcome::kNotFound;
      }
    }
    for (const Desc& range : ranges) {
      registered_.remove(type, range);
    }
    registered_bytes_.set(static_cast<double>(registered_.memory_bytes()));
    for (const auto& backend : backends_) {
      backends.push_back(backend.get());  // an agent's backends stay as long as it does
    }
  }
  // Without the lock: who writes there now on behalf of a peer may want it first.
  for (Backend* const backend : backends) {
    for (const Desc& range : ranges) {
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
  return encode(describe(registered_.memory(), true));
}

Outcome Agent::local_partial_md(MemType type, std::span<const Desc> ranges, bool connection,
                                std::string& blob) const {
  const MutexLock lock(mutex_);
  std::vector<Region> regions;
  for (const Desc& range : ranges) {
    const Region* const found = registered_.find(type, range);
    if (found == nullptr) {
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
void Agent::merge(Metadata& into, Metadata&& part) {
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
    refused(Outcome::kMismatch);
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
  sort_regions(loaded.metadata.regions);
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

/// Nothing: it is not known.
std::optional<std::span<const Region>> Agent::regions_of(std::string_view owner) const {
  if (owner.empty()) {
    return registered_.all();
  }
  const auto peer = peers_.find(owner);
  return peer == peers_.end()
             ? std::nullopt
             : std::optional(std::span<const Region>(peer->second.metadata.regions));
}

Outcome Agent::prep_list(std::string_view owner, MemType type, std::span<const Desc> ranges,
                         ListId& list) {
  auto made = std::make_shared<RangeList>(std::string(owner == name_ ? kSelf : owner), type);
  const MutexLock lock(mutex_);
  const auto regions = regions_of(made->owner());
  if (!regions || !made->add(ranges, *regions)) {
    return Outcome::kNotFound;  // A1
  }
  list = ++last_id_;
  lists_.emplace(list, std::move(made));
  return Outcome::kSuccess;
}

Outcome Agent::prep_strided(std::string_view owner, MemType type, std::span<const StridedDesc> runs,
                            ListId& list) {
  uint64_t count = 0;
  for (const StridedDesc& run : runs) {
    if (__builtin_add_overflow(count, run.count, &count) || count > UINT32_MAX) {
      return Outcome::kInvalidParam;  // indices have 32 bits
    }
  }
  auto made = std::make_shared<RangeList>(std::string(owner == name_ ? kSelf : owner), type);
  {
    const MutexLock lock(mutex_);
    const auto regions = regions_of(made->owner());
    if (!regions) {
      return Outcome::kNotFound;
    }
    if (std::ranges::all_of(runs,
                            [&](const StridedDesc& run) { return made->add_run(run, *regions); })) {
      list = ++last_id_;
      lists_.emplace(list, std::move(made));
      return Outcome::kSuccess;
    }
  }
  if (count > kStridedMax) {
    return Outcome::kInvalidParam;
  }
  std::vector<Desc> ranges;  // a run may go through several registrations
  ranges.reserve(count);
  for (const StridedDesc& run : runs) {
    for (uint64_t i = 0; i < run.count; ++i) {
      ranges.push_back({.addr = run.addr + i * run.stride, .len = run.len, .dev = run.dev});
    }
  }
  return prep_list(owner, type, ranges, list);
}

Agent::SharedList Agent::find_list(ListId list) const {
  const auto found = lists_.find(list);
  return found == lists_.end() ? nullptr : found->second;
}

void Agent::release_list(ListId list) {
  const MutexLock lock(mutex_);
  lists_.erase(list);
}

size_t Agent::list_size(ListId list) const {
  const MutexLock lock(mutex_);
  const SharedList found = find_list(list);
  return found == nullptr ? 0 : found->size();
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

/// Checks the pairs of a transfer, whose backend is known, and cuts it into parts.
Outcome Agent::pair_up(Transfer& transfer, uint64_t inline_bytes) {
  const Pairs pairs = transfer.pairs();
  const bool one_by_one = transfer.backend->moves_one_by_one();
  const uint64_t part_bytes = one_by_one                        ? 1
                              : transfer.backend->only_copies() ? Movers::kPartBytes
                                                                : UINT64_MAX;
  Transfer::Part part;
  uint64_t in_part = 0;
  const auto end_part = [&](size_t end) {
    if (end > part.begin) {
      part.end = end;
      transfer.parts.push_back(part);
    }
    part.begin = end;
    in_part = 0;
  };
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Pair pair = pairs[i];
    const uint64_t len = pair.local.len;
    if (len != pair.remote.len) {
      return Outcome::kInvalidParam;
    }
    transfer.bytes += len;
    if (len > part_bytes && !one_by_one) {  // alone, and in pieces
      end_part(i);
      for (uint64_t at = 0; at < len; at += part_bytes) {
        transfer.parts.push_back(
            {.begin = i, .end = i + 1, .at = at, .len = std::min(part_bytes, len - at)});
      }
      part.begin = i + 1;
      continue;
    }
    in_part += len;
    if (in_part >= part_bytes) {
      end_part(i + 1);
    }
  }
  if (part_bytes == UINT64_MAX || (transfer.bytes <= inline_bytes && !one_by_one)) {
    transfer.parts.clear();
    return Outcome::kSuccess;
  }
  end_part(pairs.size());
  return Outcome::kSuccess;
}

Outcome Agent::make_xfer(const Wanted& wanted, TransferId& transfer) {
  auto made = std::make_shared<Transfer>();
  made->op = wanted.op;
  made->notification = wanted.notification;
  made->deadline = wanted.deadline > Duration::zero() ? wanted.deadline : options_.deadline;
  {
    const MutexLock lock(mutex_);
    made->local = find_list(wanted.local);
    made->remote = find_list(wanted.remote);
    if (made->local == nullptr || made->remote == nullptr || !made->local->owner().empty()) {
      return Outcome::kInvalidParam;
    }
    made->backend = choose(made->local->type(), made->remote->type(), made->remote->owner());
  }
  const bool all = wanted.all;
  made->all = all;
  made->descriptors = all ? made->local->size() : wanted.local_indices.size();
  if (made->descriptors != (all ? made->remote->size() : wanted.remote_indices.size())) {
    return Outcome::kInvalidParam;
  }
  for (size_t i = 0; i < (all ? 0 : made->descriptors); ++i) {
    if (wanted.local_indices[i] >= made->local->size() ||
        wanted.remote_indices[i] >= made->remote->size()) {
      return Outcome::kInvalidParam;
    }
  }
  if (!all) {
    made->local_indices.assign(wanted.local_indices.begin(), wanted.local_indices.end());
    made->remote_indices.assign(wanted.remote_indices.begin(), wanted.remote_indices.end());
  }
  if (made->backend == nullptr) {
    return Outcome::kNotSupported;
  }
  if (const Outcome paired = pair_up(*made, options_.inline_bytes); paired != Outcome::kSuccess) {
    return paired;
  }
  const MutexLock lock(mutex_);
  transfer = ++last_id_;
  transfers_.emplace(transfer, std::move(made));
  return Outcome::kSuccess;
}

SharedTransfer Agent::find(TransferId id) const {
  const MutexLock lock(mutex_);
  const auto found = transfers_.find(id);
  return found == transfers_.end() ? nullptr : found->second;
}

Outcome Agent::post(TransferId id) {
  SharedTransfer transfer;
  {
    const MutexLock lock(mutex_);
    const auto found = transfers_.find(id);
    if (found == transfers_.end()) {
      return Outcome::kNotFound;
    }
    transfer = found->second;
    const std::string& peer = transfer->remote->owner();
    if (!peer.empty() && !peers_.contains(peer)) {
      return Outcome::kNotFound;
    }
  }
  return movers_.post(transfer);
}

Outcome Agent::status(TransferId id) const {
  const SharedTransfer transfer = find(id);
  return transfer == nullptr ? Outcome::kNotFound : transfer->outcome.load();
}

Outcome Agent::wait(TransferId id, Duration most) {
  const SharedTransfer transfer = find(id);
  return transfer == nullptr ? Outcome::kNotFound : movers_.wait(transfer, most);
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
  const SharedTransfer transfer = find(id);
  const double rate = transfer == nullptr ? 0 : movers_.rate(*transfer);
  if (rate <= 0) {
    return std::nullopt;
  }
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(static_cast<double>(transfer->bytes) / rate));
}

std::string Agent::backend_of(TransferId id) const {
  const SharedTransfer transfer = find(id);
  return transfer == nullptr ? std::string() : std::string(transfer->backend->type());
}

std::optional<Telemetry> Agent::telemetry(TransferId id) const {
  const SharedTransfer transfer = find(id);
  if (transfer == nullptr || transfer->outcome != Outcome::kSuccess) {
    return std::nullopt;
  }
  return movers_.telemetry(*transfer);
}

std::string Agent::cause(TransferId id) const {
  const SharedTransfer transfer = find(id);
  return transfer == nullptr ? std::string("no such transfer") : movers_.ended(*transfer).cause;
}

std::optional<size_t> Agent::failed_range(TransferId id) const {
  const SharedTransfer transfer = find(id);
  if (transfer == nullptr || transfer->outcome >= Outcome::kSuccess ||
      transfer->outcome == Outcome::kNotPosted) {
    return std::nullopt;
  }
  return movers_.ended(*transfer).failed_pair;
}

bool Agent::allows(const RemoteKey& key, const Desc& range) const {
  const MutexLock lock(mutex_);
  return registered_.allows(key, range);
}

void Agent::refused(Outcome why) {
  metrics_
      .counter("stator_transfer_refused_total",
               "messages of peers that were refused: forged keys, ranges not registered, another "
               "life of the agent, malformed",
               {{"reason", std::string(to_string(why))}})
      .add();
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
