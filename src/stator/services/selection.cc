// SPDX-License-Identifier: Apache-2.0
#include "stator/services/selection.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/router/replica_view.h"

namespace stator::services {
namespace {

using blocks::SequenceHash;

/// The indexer's index as a router's own. Workers come and go with the catalog.
class SharedIndex final : public router::KvIndex {
 public:
  explicit SharedIndex(std::shared_ptr<router::KvIndex> index) : index_(std::move(index)) {}
  void add_worker(WorkerKey worker, router::Source source) override {
    index_->add_worker(worker, source);
  }
  const std::atomic<router::Trust>* trust_of(WorkerKey worker) const override {
    return index_->trust_of(worker);
  }
  router::Applied apply(WorkerKey worker, const kv::KvEvent& event) override {
    return index_->apply(worker, event);
  }
  void on_routed(WorkerKey worker, std::span<const SequenceHash> sequences) override {
    index_->on_routed(worker, sequences);
  }
  void remove_worker(WorkerKey worker) override { index_->remove_worker(worker); }
  void find_longest_match(std::span<const SequenceHash> sequences,
                          std::vector<router::Overlap>& out) const override {
    index_->find_longest_match(sequences, out);
  }
  uint64_t holder_blocks() const override { return index_->holder_blocks(); }

 private:
  std::shared_ptr<router::KvIndex> index_;  // shared with the indexer
};

bool follows_events(const router::RouterConfig& config) {
  return config.index.kind == "chain" && config.cost.overlap_credit > 0;
}

std::vector<SlotLoad> loads_of(const router::Router& router) {
  std::vector<SlotLoad> loads;
  for (const router::WorkerTable::Worker& worker : router.workers()) {
    const router::LoadRow row = router.load_of(worker.key);
    loads.push_back({.worker = worker.key,
                     .prefill_tokens = static_cast<uint64_t>(row.prefill_tokens),
                     .decode_blocks = static_cast<uint64_t>(row.active_blocks),
                     .requests = static_cast<uint64_t>(row.active_requests)});
  }
  return loads;
}

WorkerRules rules_of(const router::RouterConfig& config) {
  return {.needs_events = follows_events(config),
          .needs_batched_tokens =
              config.wait.prefill_fraction >= 0 || config.reject.prefill_fraction >= 0};
}

}  // namespace

/// A request with its hashes, and the router's view of it. Must stay where it is made.
struct SelectionService::Prepared {
  uint32_t block_size = 0;
  uint32_t isl_tokens = 0;
  std::vector<SequenceHash> sequences;
  std::vector<SequenceHash> tracked;

  uint64_t blocks() const { return (uint64_t{isl_tokens} + block_size - 1) / block_size; }
  router::RouteRequest view(const SelectionRequest& request) const {
    return {.request_id = request.selection_id,
            .model = request.partition.model,
            .prompt_tokens = isl_tokens,
            .block_size = block_size,
            .sequences = sequences,
            .tracked = tracked,
            .constraints = {.pinned = request.pinned,
                            .pinned_rank = request.pinned_rank,
                            .allowed = request.allowed,
                            .required_taints = request.required_taints,
                            .preferred_taints = request.preferred_taints},
            .override = request.override,
            .expected_output_tokens = request.expected_output_tokens};
  }
};

SelectionService::SelectionService(SelectionConfig config, Indexer& indexer, const Clock& clock,
                                   Random random)
    : config_(std::move(config)),
      rules_(rules_of(config_.router)),
      indexer_(indexer),
      clock_(clock),
      random_(random),
      replay_(config_.replay),
      reservations_(config_.reservations) {}

void SelectionService::announce_to(MakeAnnouncer announcer) {
  announcer_ = std::move(announcer);
}

std::optional<router::LoadLease> SelectionService::book_for_replica(
    const router::ReplicaBooking& booking) {
  const MutexLock lock(mutex_);
  const auto partition = std::ranges::find(partitions_, booking.model,
                                           [](const auto& entry) { return entry.first.text(); });
  if (partition == partitions_.end() || partition->second->block_size != booking.block_size) {
    return std::nullopt;
  }
  const auto slot = partition->second->router->load_slot(booking.worker);
  if (!slot) {
    return std::nullopt;
  }
  partition->second->index->on_routed(booking.worker, booking.sequences);
  return partition->second->book->take(router::booking_of(booking, *slot));
}

// ── Workers ──

Result<SelectionService::Partition*> SelectionService::find(const PartitionName& name) const {
  const auto known = partitions_.find(name);
  if (known == partitions_.end()) {
    return Error(Code::kNotFound, fmt::format("no worker of model '{}', routing group '{}'",
                                              name.model, name.group));
  }
  return known->second.get();
}

Result<SelectionService::Partition*> SelectionService::open(const PartitionName& name,
                                                            uint32_t block_size) {
  auto known = partitions_.find(name);
  if (known == partitions_.end()) {
    auto made = std::make_unique<Partition>();
    made->block_size = block_size;
    made->book = router::LoadBook::make(clock_);
    if (announcer_) {
      made->book->announce_to(announcer_(name.text()));
    }
    STATOR_TRY(made->index, indexer_.index(name, block_size));
    STATOR_TRY(made->router,
               router::Router::create(config_.router, made->book, Random(random_.next()),
                                      std::make_unique<SharedIndex>(made->index)));
    known = partitions_.emplace(name, std::move(made)).first;
  }
  Partition& partition = *known->second;
  if (partition.block_size != block_size) {
    return Error(Code::kAlreadyExists, fmt::format("'{}' has blocks of {} tokens, not {}",
                                                   name.text(), partition.block_size, block_size));
  }
  return &partition;
}

Status SelectionService::enroll(const SelectionWorker& worker) {
  STATOR_TRY(Partition* const partition, open(worker.partition, worker.block_size));
  for (uint32_t i = 0; i < worker.dp_size; ++i) {
    const WorkerKey key{worker.id, worker.dp_start + i};
    partition->router->add_worker(key, worker.facts());
    partition->router->set_draining(key, worker.draining);
    const std::string endpoint = worker.events_endpoint(key.dp_rank);
    if (rules_.needs_events && !worker.announces_itself && !endpoint.empty()) {
      Status followed =
          indexer_.follow(worker.partition, {.worker = key,
                                             .endpoint = endpoint,
                                             .replay_endpoint = worker.replay_endpoint,
                                             .block_size = worker.block_size});
      if (!followed && followed.error().code() != Code::kAlreadyExists) {
        return std::move(followed.error());
      }
    }
  }
  return {};
}

void SelectionService::withdraw(const SelectionWorker& worker) {
  const auto known = partitions_.find(worker.partition);
  if (known == partitions_.end()) {
    return;
  }
  indexer_.unfollow(worker.partition, worker.id, std::nullopt)
      .ignore("a worker that was never schedulable is not followed");
  for (uint32_t i = 0; i < worker.dp_size; ++i) {
    known->second->router->remove_worker({worker.id, worker.dp_start + i});
  }
}

Result<std::string> SelectionService::write_worker(WorkerId id, const Fields& fields, Write write) {
  const MutexLock lock(mutex_);
  const auto known = workers_.find(id);
  if (write == Write::kPatch && known == workers_.end()) {
    return Error(Code::kNotFound, fmt::format("worker {} is not in the catalog", id.value()));
  }
  if (known == workers_.end() && workers_.size() >= config_.workers_max) {
    return Error(Code::kOverloaded, fmt::format("more than {} workers", config_.workers_max));
  }
  SelectionWorker worker;
  if (write == Write::kPatch) {
    worker = known->second;
  }
  worker.id = id;
  if (write == Write::kUpsert || fields.has("model_name") || fields.has("routing_group")) {
    STATOR_TRY(worker.partition, read_partition(fields, worker.partition.model));
  }
  STATOR_CHECK(merge(worker, fields));
  return replace(std::move(worker));
}

Status SelectionService::put_worker(SelectionWorker worker) {
  const MutexLock lock(mutex_);
  worker.announces_itself = true;
  if (!workers_.contains(worker.id) && workers_.size() >= config_.workers_max) {
    return Error(Code::kOverloaded, fmt::format("more than {} workers", config_.workers_max));
  }
  STATOR_CHECK(replace(std::move(worker)));
  return {};
}

Result<std::string> SelectionService::replace(SelectionWorker worker) {
  const auto known = workers_.find(worker.id);
  const bool ready = missing(worker, rules_).empty();
  if (const auto partition = partitions_.find(worker.partition);
      ready && partition != partitions_.end() &&
      partition->second->block_size != worker.block_size) {
    return Error(Code::kAlreadyExists,
                 fmt::format("'{}' has blocks of {} tokens, not {}", worker.partition.text(),
                             partition->second->block_size, worker.block_size));
  }
  if (known != workers_.end()) {
    const SelectionWorker& old = known->second;
    const bool moved = old.partition != worker.partition || old.dp_start != worker.dp_start ||
                       old.dp_size != worker.dp_size || old.block_size != worker.block_size ||
                       old.kv_events_endpoint != worker.kv_events_endpoint ||
                       old.kv_events_endpoints != worker.kv_events_endpoints || !ready;
    if (moved) {
      withdraw(old);
    }
  }
  if (ready) {
    if (Status enrolled = enroll(worker); !enrolled) {
      // Neither what it was nor a part of what it was to be may be chosen.
      withdraw(worker);
      workers_.erase(worker.id);
      return std::move(enrolled.error());
    }
  }
  std::string rendered = render(worker, rules_);
  workers_[worker.id] = std::move(worker);
  return rendered;
}

Result<std::string> SelectionService::remove_worker(WorkerId id) {
  const MutexLock lock(mutex_);
  const auto known = workers_.find(id);
  if (known == workers_.end()) {
    return Error(Code::kNotFound, fmt::format("worker {} is not in the catalog", id.value()));
  }
  withdraw(known->second);
  std::string rendered = render(known->second, rules_);
  workers_.erase(known);
  return rendered;
}

std::string SelectionService::render_workers(const PartitionFilter& filter) const {
  std::string out = "[";
  for (const auto& [id, worker] : workers_) {
    if (filter.matches(worker.partition)) {
      out += out.size() > 1 ? "," : "";
      out += render(worker, rules_);
    }
  }
  return out + "]";
}

std::string SelectionService::list_workers(const PartitionFilter& filter) const {
  const MutexLock lock(mutex_);
  return render_workers(filter);
}

SelectionService::Readiness SelectionService::readiness() const {
  const MutexLock lock(mutex_);
  Readiness readiness{.workers = render_workers({})};
  for (const auto& [id, worker] : workers_) {
    readiness.schedulable += missing(worker, rules_).empty() && !worker.draining ? 1 : 0;
  }
  return readiness;
}

// ── Choosing ──

Result<SelectionService::Prepared> SelectionService::prepare(
    const SelectionRequest& request) const {
  Prepared prepared;
  {
    const MutexLock lock(mutex_);
    STATOR_TRY(const Partition* const partition, find(request.partition));
    prepared.block_size = partition->block_size;
  }
  // Hashing a long prompt takes longer than choosing: not under the lock.
  prepared.isl_tokens = request.prompt.length(prepared.block_size);
  prepared.sequences = request.prompt.index_hashes(prepared.block_size);
  prepared.tracked = request.prompt.tracking_hashes(prepared.block_size);
  if (prepared.tracked.size() > prepared.blocks()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("sequence_hashes must be at most the {} blocks of the prompt's {} "
                             "tokens",
                             prepared.blocks(), prepared.isl_tokens));
  }
  return prepared;
}

SelectionAnswer SelectionService::describe(const SelectionRequest& request,
                                           const Prepared& prepared, WorkerKey worker,
                                           uint32_t prefill_tokens) const {
  SelectionAnswer answer{.selection_id = request.selection_id,
                         .partition = request.partition,
                         .worker = worker,
                         .block_size = prepared.block_size,
                         .overlap = {.instance = worker.worker},
                         .prefill_tokens = prefill_tokens,
                         .isl_tokens = prepared.isl_tokens,
                         .track_prefill = request.override.track_prefill_tokens.value_or(
                             config_.router.track_prefill_tokens),
                         .tracked = prepared.tracked};
  if (const auto known = workers_.find(worker.worker); known != workers_.end()) {
    answer.endpoint = known->second.endpoint;
  }
  const Partition& partition = *partitions_.at(request.partition);
  auto overlaps = partition.index->find_longest_match(prepared.sequences);
  std::erase_if(overlaps, [&](const auto& each) { return each.worker.worker != worker.worker; });
  if (std::ranges::find(overlaps, worker, &router::Overlap::worker) == overlaps.end()) {
    overlaps.push_back({.worker = worker});  // its rank is shown, with nothing
  }
  if (const auto slot = partition.router->load_slot(worker)) {
    std::vector<uint32_t> held;
    partition.book->read_held(prepared.tracked, held);
    answer.potential_blocks =
        static_cast<uint64_t>(partition.router->load_of(worker).active_blocks) + prepared.blocks() -
        held[*slot];
  }
  for (InstanceScore& score : score_instances(overlaps, prepared.block_size)) {
    answer.overlap = std::move(score);
  }
  return answer;
}

Result<SelectionAnswer> SelectionService::choose(const SelectionRequest& request,
                                                 const Prepared& prepared) {
  STATOR_TRY(Partition* const partition, find(request.partition));
  const router::RouteRequest view = prepared.view(request);
  STATOR_TRY(const auto readiness, partition->router->consider(view));
  if (readiness == router::Router::Readiness::kBusy) {
    return Error(Code::kOverloaded, "all workers are beyond router.queue_threshold, retry shortly");
  }
  const router::Selection selection = partition->router->select(view);
  return describe(request, prepared, selection.worker,
                  prepared.isl_tokens - selection.cached_tokens);
}

Result<SelectionAnswer> SelectionService::select(const SelectionRequest& request) {
  STATOR_TRY(const Prepared prepared, prepare(request));
  const MutexLock lock(mutex_);
  STATOR_TRY(SelectionAnswer answer, choose(request, prepared));
  if (!request.selection_id.empty()) {
    replay_.put(request.selection_id,
                {.partition = request.partition,
                 .worker = answer.worker,
                 .isl_tokens = prepared.isl_tokens,
                 .prefill_tokens = answer.prefill_tokens,
                 .sequences = prepared.sequences,
                 .tracked = prepared.tracked,
                 .expected_output_tokens = request.expected_output_tokens,
                 .track_prefill = answer.track_prefill,
                 .assume_kv_reuse =
                     request.override.assume_kv_reuse.value_or(config_.router.assume_kv_reuse)},
                clock_.now());
  }
  return answer;
}

std::string SelectionService::make_id() {
  const uint64_t high = random_.next();
  return fmt::format("{:016x}{:016x}", high, random_.next());
}

Result<SelectionAnswer> SelectionService::book(SelectionAnswer answer,
                                               const SelectionRequest& request,
                                               const Prepared& prepared) {
  if (answer.selection_id.empty()) {
    answer.selection_id = make_id();
  }
  if (reservations_.contains(answer.selection_id)) {
    return Error(Code::kAlreadyExists,
                 fmt::format("request '{}' is booked already", answer.selection_id));
  }
  STATOR_TRY(Partition* const partition, find(request.partition));
  STATOR_TRY(router::LoadLease lease,
             partition->router->book(answer.worker, prepared.view(request), answer.prefill_tokens));
  STATOR_CHECK(reservations_.add(answer.selection_id, std::move(lease), clock_.now()));
  return answer;
}

Result<SelectionAnswer> SelectionService::reserve(SelectionRequest request) {
  STATOR_TRY(const Prepared prepared, prepare(request));
  const MutexLock lock(mutex_);
  reservations_.expire(clock_.now());
  if (!request.selection_id.empty() && reservations_.contains(request.selection_id)) {
    return Error(Code::kAlreadyExists,
                 fmt::format("request '{}' is booked already", request.selection_id));
  }
  STATOR_TRY(SelectionAnswer answer, choose(request, prepared));
  return book(std::move(answer), request, prepared);
}

Result<SelectionAnswer> SelectionService::reserve_selected(const PartitionName& partition,
                                                           std::string_view id) {
  const MutexLock lock(mutex_);
  const SelectionRecord* record = replay_.find(id, clock_.now());
  if (record == nullptr || record->partition != partition) {
    return Error(Code::kNotFound,
                 fmt::format("selection '{}' is unknown, was booked or has expired", id));
  }
  STATOR_TRY(const Partition* const known, find(partition));
  SelectionRequest request{.partition = partition,
                           .selection_id = std::string(id),
                           .expected_output_tokens = record->expected_output_tokens};
  request.override.track_prefill_tokens = record->track_prefill;
  request.override.assume_kv_reuse = record->assume_kv_reuse;
  const Prepared prepared{.block_size = known->block_size,
                          .isl_tokens = record->isl_tokens,
                          .sequences = record->sequences,
                          .tracked = record->tracked};
  auto booked =
      book(describe(request, prepared, record->worker, record->prefill_tokens), request, prepared);
  if (booked) {
    replay_.erase(id);
  }
  return booked;
}

Result<SelectionAnswer> SelectionService::reserve_at(WorkerKey worker, SelectionRequest request) {
  STATOR_TRY(const Prepared prepared, prepare(request));
  if (request.prefill_tokens.value_or(0) > prepared.isl_tokens) {
    return Error(Code::kInvalidArgument,
                 fmt::format("effective_prefill_tokens must be at most the prompt's {} tokens",
                             prepared.isl_tokens));
  }
  const MutexLock lock(mutex_);
  SelectionAnswer answer = describe(request, prepared, worker, 0);
  uint64_t cached = 0;
  for (const auto& [rank, tokens] : answer.overlap.ranks) {
    cached = rank == worker.dp_rank ? tokens : cached;
  }
  const auto computed =
      static_cast<uint32_t>(prepared.isl_tokens - std::min<uint64_t>(cached, prepared.isl_tokens));
  answer.prefill_tokens = request.prefill_tokens.value_or(computed);
  return book(std::move(answer), request, prepared);
}

// ── Bookings ──

Status SelectionService::mark_prefill_completed(std::string_view id) {
  const MutexLock lock(mutex_);
  return reservations_.mark_prefill_completed(id);
}

Status SelectionService::add_output_block(std::string_view id, std::optional<double> weight) {
  const MutexLock lock(mutex_);
  return reservations_.add_output_block(id, weight);
}

Status SelectionService::free(std::string_view id) {
  const MutexLock lock(mutex_);
  return reservations_.remove(id);
}

// ── Inspection ──

std::vector<PartitionLoads> SelectionService::loads(const PartitionFilter& filter) const {
  const MutexLock lock(mutex_);
  reservations_.expire(clock_.now());
  std::vector<PartitionLoads> all;
  for (const auto& [name, partition] : partitions_) {
    if (filter.matches(name)) {
      all.push_back({name, loads_of(*partition->router)});
    }
  }
  return all;
}

Result<std::vector<SlotLoad>> SelectionService::potential_loads(const SelectionRequest& request) {
  STATOR_TRY(const Prepared prepared, prepare(request));
  const MutexLock lock(mutex_);
  STATOR_TRY(const Partition* const partition, find(request.partition));
  std::vector<SlotLoad> loads = loads_of(*partition->router);
  std::vector<uint32_t> held;
  partition->book->read_held(prepared.tracked, held);
  const auto overlaps = partition->index->find_longest_match(prepared.sequences);
  for (size_t i = 0; i < loads.size(); ++i) {
    const auto overlap = std::ranges::find(overlaps, loads[i].worker, &router::Overlap::worker);
    const uint64_t cached =
        overlap == overlaps.end() ? 0 : uint64_t{overlap->blocks} * prepared.block_size;
    loads[i].prefill_tokens +=
        prepared.isl_tokens - std::min<uint64_t>(cached, prepared.isl_tokens);
    loads[i].decode_blocks += prepared.blocks() - held[partition->router->workers()[i].slot];
  }
  return loads;
}

Result<std::string> SelectionService::overlap_scores(const SelectionRequest& request) {
  STATOR_TRY(const Prepared prepared, prepare(request));
  const MutexLock lock(mutex_);
  STATOR_TRY(const Partition* const partition, find(request.partition));
  const auto found = partition->index->find_longest_match(prepared.sequences);
  std::vector<router::Overlap> overlaps;
  for (const router::WorkerTable::Worker& worker : partition->router->workers()) {
    const auto known = std::ranges::find(found, worker.key, &router::Overlap::worker);
    overlaps.push_back(known == found.end() ? router::Overlap{.worker = worker.key} : *known);
  }
  return render_overlaps(overlaps, {.block_size = prepared.block_size,
                                    .prompt_blocks = prepared.sequences.size(),
                                    .cost = router::apply(config_.router.cost, request.override)});
}

}  // namespace stator::services
