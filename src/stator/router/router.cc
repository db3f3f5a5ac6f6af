// SPDX-License-Identifier: Apache-2.0
#include "stator/router/router.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "stator/router/index/chain_index.h"

namespace stator::router {
namespace {

/// What a block that only a shared cache has counts, where one is asked and nothing else is said.
constexpr double kSharedMultiplier = 0.5;

// Where pricing all (8 ns each) begins to take longer than finding the cheapest.
constexpr size_t kNarrowFleetMin = 256;

/// Of a receipt; loads are never negative.
uint32_t whole(double load) {
  return static_cast<uint32_t>(std::min(load, 4294967295.0));
}

}  // namespace

bool BusyThresholds::exceeded(const LoadRow& load, const WorkerFacts& facts,
                              double tolerance) const {
  // What the reference assumes of a worker that did not say.
  constexpr double kBatchedTokensUnknown = 10'000'000;
  const double batched =
      facts.max_num_batched_tokens > 0 ? facts.max_num_batched_tokens : kBatchedTokensUnknown;
  return (prefill_tokens >= 0 && load.prefill_tokens > tolerance * prefill_tokens) ||
         (prefill_fraction >= 0 && load.prefill_tokens > tolerance * prefill_fraction * batched) ||
         (kv_fraction >= 0 && facts.total_kv_blocks > 0 &&
          load.active_blocks > tolerance * kv_fraction * facts.total_kv_blocks);
}

int32_t tier_of(uint32_t strict_priority, double priority) {
  if (strict_priority > 0) {
    return static_cast<int32_t>(std::min<uint32_t>(strict_priority, BrownOut::kTierMax));
  }
  return priority < 0 ? BrownOut::kTierMin : 0;
}

std::string_view describe(Refusal refusal) {
  static constexpr std::array<std::string_view, kRefusalCount> kNames = {
      "no_workers",  "pinned_unknown", "pin_missing", "all_filtered",
      "pinned_busy", "all_busy",       "brown_out"};
  return kNames[static_cast<size_t>(refusal)];
}

Result<std::unique_ptr<Router>> Router::create(const RouterConfig& config,
                                               std::shared_ptr<LoadBook> book, Random random,
                                               std::unique_ptr<KvIndex> index) {
  const CostConfig& cost = config.cost;
  for (const double weight :
       {cost.overlap_credit, cost.overlap_credit_decay, cost.prefill_load_scale,
        cost.active_request_weight, cost.host_weight, cost.disk_weight, cost.shared_multiplier,
        cost.temperature, cost.accelerator_weight, cost.residents_weight, cost.ttft_target_ms}) {
    if (!std::isfinite(weight) || weight < 0) {
      return Error(Code::kInvalidArgument, "router weights must be finite and not negative");
    }
  }
  const PolicyInfo* info = find_policy(config.mode);
  if (info == nullptr) {
    return Error(Code::kInvalidArgument, fmt::format("router mode '{}' is not one of {}",
                                                     config.mode, fmt::join(policy_names(), ", ")));
  }
  if (index == nullptr) {
    STATOR_TRY(index, ChainIndex::create({.bytes_max = config.index.bytes_max}));
  }
  return std::unique_ptr<Router>(
      new Router(*info, config, std::move(book), random, std::move(index)));
}

Router::Router(const PolicyInfo& info, const RouterConfig& config, std::shared_ptr<LoadBook> book,
               Random random, std::unique_ptr<KvIndex> index)
    : info_(info),
      policy_(info.make()),
      config_(config),
      book_(std::move(book)),
      random_(random),
      index_(std::move(index)),
      sessions_(config.sessions) {}

LoadSlot Router::add_worker(WorkerKey worker, WorkerFacts facts) {
  if (WorkerTable::Worker* known = table_.find(worker)) {
    known->facts = std::move(facts);
    const LoadSlot slot = known->slot;
    table_.set_draining(worker, false);
    return slot;
  }
  const bool kv_events = facts.kv_events;
  if (table_.all().size() == kNarrowFleetMin && policy_->rises_with_load()) {
    book_->keep_grid();
  }
  const LoadSlot slot = book_->add_worker();
  table_.add(worker, slot, std::move(facts));
  index_->add_worker(worker, kv_events ? Source::kEvents : Source::kDecisions);
  table_.find(worker)->trust = index_->trust_of(worker);
  return slot;
}

void Router::remove_worker(WorkerKey worker) {
  if (const auto slot = table_.remove(worker)) {
    book_->remove_worker(*slot);
  }
  index_->remove_worker(worker);
}

void Router::set_draining(WorkerKey worker, bool draining) {
  table_.set_draining(worker, draining);
}

std::vector<WorkerKey> Router::ranks_from(WorkerKey first) const {
  const auto all = table_.all();
  std::vector<WorkerKey> ranks;
  for (auto at = std::ranges::lower_bound(all, first, {}, &WorkerTable::Worker::key);
       at != all.end() && at->key.worker == first.worker; ++at) {
    ranks.push_back(at->key);
  }
  return ranks;
}

std::optional<LoadSlot> Router::load_slot(WorkerKey worker) const {
  const auto position = table_.position(worker);
  return position ? std::optional(table_.all()[*position].slot) : std::nullopt;
}

LoadRow Router::load_of(WorkerKey worker) const {
  LoadRow row;
  if (const auto slot = load_slot(worker)) {
    book_->read(std::span(&*slot, 1), std::span(&row, 1));
  }
  return row;
}

Applied Router::apply(WorkerKey worker, const kv::KvEvent& event) {
  // Events of a worker that already left must not leave blocks behind that nobody will remove.
  return table_.position(worker) ? index_->apply(worker, event) : Applied::kUnknownBlock;
}

Error Router::refuse(Refusal refusal, Code code, std::string message) {
  last_refusal_ = refusal;
  return {code, std::move(message)};
}

Error Router::nobody(const RouteRequest& request) {
  const auto& pinned = request.constraints.pinned;
  const auto& rank = request.constraints.pinned_rank;
  const size_t count = table_.all().size();
  if (pinned && std::ranges::none_of(table_.all(), [&](const auto& worker) {
        return worker.key.worker == *pinned;
      })) {
    return refuse(Refusal::kPinnedUnknown, Code::kNotFound,
                  fmt::format("worker {} named by the request does not serve model '{}'",
                              pinned->value(), request.model));
  }
  if (rank && count > 0 && std::ranges::none_of(table_.all(), [&](const auto& worker) {
        return worker.key.dp_rank == *rank && (!pinned || worker.key.worker == *pinned);
      })) {
    return refuse(Refusal::kPinnedUnknown, Code::kNotFound,
                  fmt::format("dp_rank {} named by the request does not exist at {} of model '{}'",
                              *rank, pinned ? "the worker" : "any worker", request.model));
  }
  if (count == 0) {
    return refuse(
        Refusal::kNoWorkers, Code::kUnavailable,
        fmt::format("no worker serves model '{}' right now, retry shortly", request.model));
  }
  const bool can_take_work = !table_.ready().workers.empty();
  if (can_take_work && request.constraints.excluded.empty()) {
    return refuse(Refusal::kAllFiltered, Code::kUnavailable,
                  fmt::format("none of the {} workers of model '{}' meets what the request demands "
                              "(worker, allowed workers, required taints)",
                              count, request.model));
  }
  return refuse(Refusal::kAllFiltered, Code::kUnavailable,
                fmt::format("all {} workers of model '{}' are draining or failed, retry shortly",
                            count, request.model));
}

Error Router::refuse_busy(const RouteRequest& request) {
  const bool pinned = request.constraints.pinned.has_value();
  const Refusal refusal =
      pinned ? Refusal::kPinnedBusy : (brown_out_ ? Refusal::kBrownOut : Refusal::kAllBusy);
  return refuse(
      refusal, Code::kOverloaded,
      fmt::format("{} of model '{}' {} beyond the busy thresholds{}, retry shortly",
                  pinned ? "the worker named by the request" : "all workers", request.model,
                  pinned ? "is" : "are", brown_out_ ? " for requests of this priority" : ""));
}

bool Router::drop_busy(int32_t tier) {
  const double tolerance = config_.brown_out.tolerance(tier);
  const double most = config_.brown_out.tolerance(BrownOut::kTierMax);
  size_t kept = 0;
  WorkerTable::Rows left;
  brown_out_ = false;
  for (size_t i = 0; i < rows_->workers.size(); ++i) {
    const WorkerTable::Worker& worker = table_.all()[rows_->workers[i]];
    if (!config_.reject.exceeded(load_[i], worker.facts, tolerance)) {
      load_[kept++] = load_[i];
      left.push(rows_->workers[i], worker);
    } else {
      brown_out_ = brown_out_ || !config_.reject.exceeded(load_[i], worker.facts, most);
    }
  }
  own_rows_ = std::move(left);
  rows_ = &own_rows_;
  load_.resize(kept);
  eligible_ = kept;
  return kept > 0;
}

void Router::read_load(const BusyThresholds& wait) {
  // Nobody looks at the load of a large fleet that takes turns; the receipt reads what it shows.
  const bool reads_load = policy_->needs().load || config_.reject.any() || wait.any() ||
                          table_.all().size() <= kReceiptFleetMax;
  load_.resize(reads_load ? rows_->slots.size() : 0);
  book_->read(std::span(rows_->slots).first(load_.size()), load_);
}

Result<Router::Readiness> Router::consider(const RouteRequest& request) {
  if (policy_->needs_pin() && !request.constraints.pinned) {
    return refuse(
        Refusal::kPinMissing, Code::kInvalidArgument,
        "router mode 'direct' needs the worker: set the header x-stator-worker-instance-id");
  }
  book_->age_rates();
  rows_ = &table_.ready();
  if (!request.constraints.none()) {
    table_.filter(request.constraints, own_rows_);
    rows_ = &own_rows_;
  }
  if (rows_->workers.empty()) {
    return nobody(request);
  }
  narrows_ = narrows(request);
  load_.clear();
  const BusyThresholds& wait = wait_of(request);
  if (!narrows_) {
    read_load(wait);
  }
  eligible_ = rows_->workers.size();
  if (config_.reject.any() && !drop_busy(request.tier)) {
    return refuse_busy(request);
  }
  if (wait.any()) {
    for (size_t i = 0; i < load_.size(); ++i) {
      if (!wait.exceeded(load_[i], table_.all()[rows_->workers[i]].facts)) {
        return Readiness::kReady;
      }
    }
    return Readiness::kBusy;
  }
  return Readiness::kReady;
}

std::optional<size_t> Router::find_row(WorkerKey worker) const {
  const auto position = table_.position(worker);
  if (!position || rows_->workers.size() == table_.all().size()) {
    return position;
  }
  const auto at = std::ranges::lower_bound(rows_->workers, *position);
  return at == rows_->workers.end() || *at != *position
             ? std::nullopt
             : std::optional(static_cast<size_t>(at - rows_->workers.begin()));
}

std::span<const Overlap> Router::find_overlaps(const RouteRequest& request,
                                               const PolicyNeeds& needs) {
  if (!needs.overlap || request.sequences.empty()) {
    return {};
  }
  if (request.overlaps != nullptr) {
    return *request.overlaps;
  }
  index_->find_longest_match(request.sequences, overlaps_);
  return overlaps_;
}

void Router::read_columns(const RouteRequest& request, const PolicyNeeds& needs,
                          std::span<const Overlap> overlaps) {
  const size_t count = rows_->workers.size();
  overlap_blocks_.assign(needs.overlap ? count : 0, 0);
  lower_tiers_.clear();
  for (const Overlap& overlap : overlaps) {
    const auto row = find_row(overlap.worker);
    if (!row) {
      continue;
    }
    overlap_blocks_[*row] = overlap.blocks;
    const LowerTiers tiers{.host_blocks = overlap.host_blocks,
                           .disk_blocks = overlap.disk_blocks + overlap.external_blocks};
    if (tiers.host_blocks + tiers.disk_blocks > 0) {
      lower_tiers_.resize(count);
      lower_tiers_[*row] = tiers;
    }
  }
  held_blocks_.assign(needs.held ? count : 0, 0);
  if (needs.held && request.override.assume_kv_reuse.value_or(config_.assume_kv_reuse)) {
    book_->read_held(request.tracked.empty() ? request.sequences : request.tracked, depths_);
    for (size_t i = 0; i < count; ++i) {
      held_blocks_[i] = depths_[rows_->slots[i]];
    }
  }
  if (needs.rates) {
    rates_.resize(count);
    book_->read_rates(rows_->slots, rates_);
  }
  taint_factors_.clear();
  if (!request.constraints.preferred_taints.empty()) {
    for (const uint32_t worker : rows_->workers) {
      taint_factors_.push_back(
          taint_factor(table_.all()[worker].facts.taints, request.constraints.preferred_taints));
    }
  }
  costs_.assign(policy_->prices() ? count : 0, 0);
}

uint32_t Router::overlap_of(size_t row) const {
  return overlap_blocks_.empty() ? 0 : overlap_blocks_[row];
}

/// A block in a slower tier saves only a part of its prefill.
uint32_t Router::cached_tokens_of(const RouteRequest& request, size_t row) const {
  CostInputs inputs{.device_overlap = static_cast<double>(overlap_of(row))};
  if (!lower_tiers_.empty()) {
    inputs.host_extension = lower_tiers_[row].host_blocks;
    inputs.disk_extension = lower_tiers_[row].disk_blocks;
  }
  const double tokens = cached_tokens(config_.cost, inputs, {.block_size = request.block_size});
  return static_cast<uint32_t>(std::min<double>(request.prompt_tokens, tokens));
}

Router::Outlook Router::look_ahead(const RouteRequest& request) {
  constexpr PolicyNeeds kNeeds{.overlap = true, .rates = true};
  read_columns(request, kNeeds, find_overlaps(request, kNeeds));
  Outlook outlook;
  double best_ms = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < rates_.size(); ++i) {
    const uint32_t cached = cached_tokens_of(request, i);
    outlook.cached_tokens = std::max(outlook.cached_tokens, cached);
    best_ms = std::min(best_ms, rates_[i].ttft_base_ms + double{rates_[i].ttft_ms_per_token} *
                                                             (request.prompt_tokens - cached));
  }
  outlook.first_token = std::chrono::duration_cast<Duration>(
      std::chrono::duration<double, std::milli>(std::min(best_ms, 3.6e6)));
  return outlook;
}

Booking Router::make_booking(const RouteRequest& request, const WorkerTable::Worker& worker,
                             uint32_t prefill_tokens) const {
  Booking booking{
      .slot = worker.slot,
      .prompt_tokens = request.prompt_tokens,
      .block_size = request.block_size,
      .prefill_tokens = std::min(prefill_tokens, request.prompt_tokens),
      .prompt = request.tracked.empty() ? request.sequences : request.tracked,
      .expected_output_tokens = request.expected_output_tokens,
      .shares_prefix = request.override.assume_kv_reuse.value_or(config_.assume_kv_reuse),
      .worker = worker.key};
  if (!request.override.track_prefill_tokens.value_or(config_.track_prefill_tokens)) {
    booking.prefill_tokens = 0;
  }
  if (!request.holds_blocks) {
    booking.prompt_tokens = 0;
    booking.prompt = {};
  }
  if (config_.prefill_load_model == "learned") {
    const WorkerRates::Rates rates = book_->rates_of(booking.slot);
    booking.predicted_prefill =
        std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(
            rates.ttft_base_ms + double{rates.ttft_ms_per_token} * booking.prefill_tokens));
  }
  return booking;
}

inline ReceiptCandidate Router::make_candidate(size_t row, const LoadRow& load) const {
  const WorkerTable::Worker& worker = table_.all()[rows_->workers[row]];
  const LowerTiers tiers = lower_tiers_.empty() ? LowerTiers{} : lower_tiers_[row];
  return {.worker = worker.key,
          .overlap_blocks = overlap_of(row),
          .host_blocks = tiers.host_blocks,
          .disk_blocks = tiers.disk_blocks,
          .active_prefill_tokens = whole(load.prefill_tokens),
          .active_blocks = whole(load.active_blocks),
          .active_requests = whole(load.active_requests),
          .cost = costs_.empty() ? 0 : costs_[row],
          .trust = worker.trust == nullptr ? Trust::kExact
                                           : worker.trust->load(std::memory_order_relaxed)};
}

std::vector<ReceiptCandidate> Router::make_candidates(const RouteRequest& request,
                                                      size_t chosen) const {
  std::vector<ReceiptCandidate> candidates;
  const auto all = table_.all();
  if (all.size() <= kReceiptFleetMax) {
    candidates.reserve(all.size());
    size_t row = 0;
    for (uint32_t i = 0; i < all.size(); ++i) {
      if (row < rows_->workers.size() && rows_->workers[row] == i) {
        candidates.push_back(make_candidate(row, load_[row]));
        ++row;
        continue;
      }
      const Exclusion why = WorkerTable::exclusion(all[i], request.constraints);
      candidates.push_back(
          {.worker = all[i].key, .excluded = why == Exclusion::kNone ? Exclusion::kBusy : why});
    }
    return candidates;
  }
  candidates.reserve(kReceiptCandidatesMax);
  const auto add = [&](size_t row) {
    LoadRow load;
    if (load_.empty()) {  // the decision did not look
      book_->read(std::span(&rows_->slots[row], 1), std::span(&load, 1));
    } else {
      load = load_[row];
    }
    candidates.push_back(make_candidate(row, load));
  };
  add(chosen);
  // The cheapest others, in one pass: the most expensive of those kept is on top of the heap.
  std::vector<std::pair<double, size_t>> cheapest;
  cheapest.reserve(kReceiptCandidatesMax);
  for (size_t i = 0; i < costs_.size(); ++i) {
    const bool full = cheapest.size() == kReceiptCandidatesMax - 1;
    if ((full && costs_[i] >= cheapest.front().first) || i == chosen) {
      continue;
    }
    if (full) {
      std::ranges::pop_heap(cheapest);
      cheapest.pop_back();
    }
    cheapest.emplace_back(costs_[i], i);
    std::ranges::push_heap(cheapest);
  }
  std::ranges::sort(cheapest);
  for (const auto& [cost, row] : cheapest) {
    add(row);
  }
  return candidates;
}

Choice Router::choose(const RouteRequest& request, const PolicyRequest& shape) {
  if (sessions_.enabled() && !request.session.empty()) {
    const auto session = sessions_.find(request.session, book_->now());
    const auto row = session == nullptr ? std::nullopt : find_row(session->worker);
    if (row) {
      return {*row, "where its session is"};
    }
  }
  const Choice choice = policy_->choose({.request = shape,
                                         .workers = table_.all(),
                                         .rows = rows_->workers,
                                         .kv_blocks = rows_->kv_blocks,
                                         .key_hashes = rows_->key_hashes,
                                         .load = load_,
                                         .overlap_blocks = overlap_blocks_,
                                         .lower_tiers = lower_tiers_,
                                         .held_blocks = held_blocks_,
                                         .rates = rates_,
                                         .taint_factors = taint_factors_,
                                         .costs = costs_},
                                        random_);
  return load_stale_ && !request.constraints.pinned ? spread(choice) : choice;
}

/// Power of two among the near-equal: what looks cheapest to one router looks so to all.
Choice Router::spread(Choice choice) {
  if (costs_.size() < 2) {
    return choice;
  }
  const double limit = nearly_equal(costs_[choice.row]);
  std::vector<size_t> near;
  for (size_t row = 0; row < costs_.size(); ++row) {
    if (costs_[row] <= limit) {
      near.push_back(row);
    }
  }
  if (near.size() < 2) {
    return choice;
  }
  const size_t one = near[random_.next() % near.size()];
  const size_t other = near[random_.next() % near.size()];
  return {costs_[other] < costs_[one] ? other : one,
          "one of the nearly cheapest: other routers' load is not fresh"};
}

PolicyRequest Router::shape_of(const RouteRequest& request) const {
  PolicyRequest shape{
      .shape = {.prompt_tokens = request.prompt_tokens,
                .block_size = request.block_size,
                .track_prefill =
                    request.override.track_prefill_tokens.value_or(config_.track_prefill_tokens)},
      .prompt_blocks = (request.prompt_tokens + request.block_size - 1) / request.block_size,
      .sequences = request.sequences,
      .expected_output_tokens = request.expected_output_tokens.value_or(0),
      .shared_blocks = request.shared_blocks,
      .cost = router::apply(config_.cost, request.override)};
  if (request.shared_blocks > 0 && shape.cost.shared_multiplier == 0 &&
      !request.override.shared_multiplier) {
    shape.cost.shared_multiplier = kSharedMultiplier;
  }
  if (request.constraints.pinned) {
    shape.cost.temperature = 0;  // between the ranks of one worker there is nothing to explore
  }
  return shape;
}

Selection Router::choose_among_rows(const RouteRequest& request, const PolicyRequest& shape,
                                    std::span<const Overlap> overlaps) {
  read_columns(request, policy_->needs(), overlaps);
  const bool pinned = request.constraints.pinned.has_value();
  if (pinned) {
    taint_factors_.clear();
  }
  const Choice choice = choose(request, shape);
  return {.worker = table_.all()[rows_->workers[choice.row]].key,
          .overlap_blocks = overlap_of(choice.row),
          .cached_tokens = cached_tokens_of(request, choice.row),
          .reason = pinned ? "named by the request" : choice.reason,
          .temperature = shape.cost.temperature,
          .row = choice.row};
}

/// Small fleets are priced in less time than finding out who need not be takes.
bool Router::narrows(const RouteRequest& request) const {
  const CostConfig cost = router::apply(config_.cost, request.override);
  return table_.all().size() > kNarrowFleetMin && policy_->rises_with_load() &&
         request.constraints.none() && request.constraints.preferred_taints.empty() &&
         !config_.reject.any() && !wait_of(request).any() && cost.temperature == 0 &&
         cost.overlap_credit_decay == 0;  // which compares each worker with all others
}

/// Leaves in rows_ those that can be chosen, or be seen in the receipt. Everybody who holds a part
/// of the prompt stays: their cost is not that of their load alone.
void Router::narrow(const RouteRequest& request, const PolicyRequest& shape,
                    std::span<const Overlap> overlaps) {
  listed_.clear();
  holders_.clear();
  const auto prompt = request.tracked.empty() ? request.sequences : request.tracked;
  book_->inspect([&](const ActiveSequences& load) {
    const LoadGrid* const grid = load.grid();
    if (grid == nullptr) {
      return;
    }
    shortlist_.find({.policy = *policy_,
                     .request = shape,
                     .table = table_,
                     .load = load,
                     .nearly_equal_too = load_stale_},
                    *grid, random_, listed_);
    if (policy_->needs().held && !prompt.empty()) {
      load.find_holders(prompt.front(), holders_);
    }
  });
  if (listed_.empty()) {
    return;
  }
  const auto add = [this](std::optional<LoadSlot> slot) {
    if (const auto row = slot ? table_.ready_row(*slot) : std::nullopt) {
      listed_.push_back(*row);
    }
  };
  for (const LoadSlot slot : holders_) {
    add(slot);
  }
  for (const Overlap& overlap : overlaps) {
    add(load_slot(overlap.worker));
  }
  if (sessions_.enabled() && !request.session.empty()) {
    if (const auto session = sessions_.find(request.session, book_->now())) {
      add(load_slot(session->worker));
    }
  }
  std::ranges::sort(listed_);
  const auto repeated = std::ranges::unique(listed_);
  listed_.erase(repeated.begin(), repeated.end());
  own_rows_.clear();
  for (const uint32_t row : listed_) {
    own_rows_.push(table_.ready(), row);
  }
  rows_ = &own_rows_;
}

Selection Router::select(const RouteRequest& request) {
  const PolicyRequest shape = shape_of(request);
  const auto overlaps = find_overlaps(request, policy_->needs());
  if (narrows_) {
    narrow(request, shape, overlaps);
    read_load(config_.wait);
  }
  return choose_among_rows(request, shape, overlaps);
}

std::vector<Router::Priced> Router::price(const RouteRequest& request) {
  if (narrows_) {
    read_load(config_.wait);
  }
  const Selection chosen =
      choose_among_rows(request, shape_of(request), find_overlaps(request, policy_->needs()));
  std::vector<Priced> priced;  // the columns and costs of all are there now
  for (size_t row = 0; row < rows_->workers.size(); ++row) {
    Selection each = chosen;
    each.worker = table_.all()[rows_->workers[row]].key;
    each.overlap_blocks = overlap_of(row);
    each.cached_tokens = cached_tokens_of(request, row);
    each.row = row;
    priced.push_back({costs_.empty() ? 0 : costs_[row], each});
  }
  return priced;
}

Result<LoadLease> Router::book(WorkerKey worker, const RouteRequest& request,
                               uint32_t prefill_tokens) {
  const auto position = table_.position(worker);
  if (!position) {
    return Error(Code::kNotFound,
                 fmt::format("worker {} rank {} does not serve model '{}'", worker.worker.value(),
                             worker.dp_rank, request.model));
  }
  LoadLease lease = book_->take(make_booking(request, table_.all()[*position], prefill_tokens));
  index_->on_routed(worker, request.sequences);
  return lease;
}

Receipt Router::make_receipt(const RouteRequest& request, const Selection& selection,
                             WallTime now) const {
  return {.request_id = std::string(request.request_id),
          .model = std::string(request.model),
          .mode = info_.name,
          .time = now,
          .prompt_tokens = request.prompt_tokens,
          .prompt_blocks = static_cast<uint32_t>(request.sequences.size()),
          .block_size = request.block_size,
          .best_overlap_blocks = overlap_blocks_.empty() ? 0 : std::ranges::max(overlap_blocks_),
          .temperature = selection.temperature,
          .chosen = selection.worker,
          .reason = selection.reason,
          .workers = static_cast<uint32_t>(table_.all().size()),
          .eligible = static_cast<uint32_t>(eligible_),
          .queued = request.queued,
          .media_json = std::string(request.media_json),
          .candidates = make_candidates(request, selection.row)};
}

Decision Router::decide(const RouteRequest& request, WallTime now) {
  return take(request, select(request), now);
}

Decision Router::take(const RouteRequest& request, const Selection& selection, WallTime now) {
  const WorkerKey chosen = selection.worker;
  Decision decision;
  decision.worker = chosen;
  decision.overlap_blocks = selection.overlap_blocks;
  decision.lease = book_->take(make_booking(request, table_.all()[rows_->workers[selection.row]],
                                            request.prompt_tokens - selection.cached_tokens));
  index_->on_routed(chosen, request.sequences);
  if (sessions_.enabled() && !request.session.empty()) {
    const TimePoint time = book_->now();
    auto session = sessions_.find(request.session, time);
    if (session == nullptr || session->worker != chosen) {
      session = sessions_.bind(request.session, chosen, time);
    }
    decision.lease.hold_session(std::move(session));
  }
  decision.receipt = make_receipt(request, selection, now);
  return decision;
}

Result<Decision> Router::route(const RouteRequest& request, WallTime now) {
  STATOR_TRY([[maybe_unused]] const Readiness readiness, consider(request));
  return decide(request, now);
}

Result<Receipt> Router::preview(const RouteRequest& request, WallTime now) {
  STATOR_TRY([[maybe_unused]] const Readiness readiness, consider(request));
  return make_receipt(request, select(request), now);
}

}  // namespace stator::router
