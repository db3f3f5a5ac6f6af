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

}  // namespace

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

Error Router::refuse_busy(const RouteRequest& request, bool brown_out) {
  const bool pinned = request.constraints.pinned.has_value();
  const Refusal refusal =
      pinned ? Refusal::kPinnedBusy : (brown_out ? Refusal::kBrownOut : Refusal::kAllBusy);
  return refuse(
      refusal, Code::kOverloaded,
      fmt::format("{} of model '{}' {} beyond the busy thresholds{}, retry shortly",
                  pinned ? "the worker named by the request" : "all workers", request.model,
                  pinned ? "is" : "are", brown_out ? " for requests of this priority" : ""));
}

bool Router::looks_at_load(const BusyThresholds& wait) const {
  return policy_->needs().load || config_.reject.any() || wait.any() ||
         table_.all().size() <= kReceiptFleetMax;
}

Result<Router::Readiness> Router::consider(const RouteRequest& request) {
  if (policy_->needs_pin() && !request.constraints.pinned) {
    return refuse(
        Refusal::kPinMissing, Code::kInvalidArgument,
        "router mode 'direct' needs the worker: set the header x-stator-worker-instance-id");
  }
  book_->age_rates();
  candidates_.begin(request.constraints);
  if (candidates_.size() == 0) {
    return nobody(request);
  }
  narrows_ = narrows(request);
  const BusyThresholds& wait = wait_of(request);
  if (!narrows_ && looks_at_load(wait)) {
    candidates_.read_load();
  }
  if (config_.reject.any()) {
    const auto left = candidates_.drop_busy(config_.reject, config_.brown_out, request.tier);
    if (left != Candidates::Left::kSome) {
      return refuse_busy(request, left == Candidates::Left::kNoneOfTier);
    }
  }
  return wait.any() && candidates_.all_exceed(wait) ? Readiness::kBusy : Readiness::kReady;
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
  Candidates::Prompt prompt{.overlaps = overlaps,
                            .preferred_taints = request.constraints.preferred_taints};
  if (request.override.assume_kv_reuse.value_or(config_.assume_kv_reuse)) {
    prompt.tracked = request.tracked.empty() ? request.sequences : request.tracked;
  }
  candidates_.read_columns(prompt, needs, policy_->prices());
}

/// A block in a slower tier saves only a part of its prefill.
uint32_t Router::cached_tokens_of(const RouteRequest& request, size_t row) const {
  const LowerTiers lower = candidates_.lower_tiers_of(row);
  const CostInputs inputs{.device_overlap = static_cast<double>(candidates_.overlap_of(row)),
                          .host_extension = static_cast<double>(lower.host_blocks),
                          .disk_extension = static_cast<double>(lower.disk_blocks)};
  const double tokens = cached_tokens(config_.cost, inputs, {.block_size = request.block_size});
  return static_cast<uint32_t>(std::min<double>(request.prompt_tokens, tokens));
}

Router::Outlook Router::look_ahead(const RouteRequest& request) {
  constexpr PolicyNeeds kNeeds{.overlap = true, .rates = true};
  read_columns(request, kNeeds, find_overlaps(request, kNeeds));
  Outlook outlook;
  double best_ms = std::numeric_limits<double>::infinity();
  const auto rates = candidates_.rates();
  for (size_t i = 0; i < rates.size(); ++i) {
    const uint32_t cached = cached_tokens_of(request, i);
    outlook.cached_tokens = std::max(outlook.cached_tokens, cached);
    best_ms = std::min(best_ms, rates[i].ttft_base_ms + double{rates[i].ttft_ms_per_token} *
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

Choice Router::choose(const RouteRequest& request, const PolicyRequest& shape) {
  if (sessions_.enabled() && !request.session.empty()) {
    const auto session = sessions_.find(request.session, book_->now());
    const auto row = session == nullptr ? std::nullopt : candidates_.find_row(session->worker);
    if (row) {
      return {*row, "where its session is"};
    }
  }
  const Choice choice = policy_->choose(candidates_.input(shape), random_);
  return load_stale_ && !request.constraints.pinned ? candidates_.spread(choice, random_) : choice;
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
    candidates_.ignore_taints();
  }
  const Choice choice = choose(request, shape);
  return {.worker = candidates_.worker(choice.row).key,
          .overlap_blocks = candidates_.overlap_of(choice.row),
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

/// Leaves those that can be chosen, or be seen in the receipt. Everybody who holds a part
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
  candidates_.narrow_to(listed_);
}

Selection Router::select(const RouteRequest& request) {
  const PolicyRequest shape = shape_of(request);
  const auto overlaps = find_overlaps(request, policy_->needs());
  if (narrows_) {
    narrow(request, shape, overlaps);
    if (looks_at_load(config_.wait)) {
      candidates_.read_load();
    }
  }
  return choose_among_rows(request, shape, overlaps);
}

std::vector<Router::Priced> Router::price(const RouteRequest& request) {
  if (narrows_ && looks_at_load(config_.wait)) {
    candidates_.read_load();
  }
  const Selection chosen =
      choose_among_rows(request, shape_of(request), find_overlaps(request, policy_->needs()));
  std::vector<Priced> priced;  // the columns and costs of all are there now
  for (size_t row = 0; row < candidates_.size(); ++row) {
    Selection each = chosen;
    each.worker = candidates_.worker(row).key;
    each.overlap_blocks = candidates_.overlap_of(row);
    each.cached_tokens = cached_tokens_of(request, row);
    each.row = row;
    priced.push_back({candidates_.cost_of(row), each});
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
          .best_overlap_blocks = candidates_.best_overlap(),
          .temperature = selection.temperature,
          .chosen = selection.worker,
          .reason = selection.reason,
          .workers = static_cast<uint32_t>(table_.all().size()),
          .eligible = static_cast<uint32_t>(candidates_.eligible()),
          .queued = request.queued,
          .media_json = std::string(request.media_json),
          .candidates = candidates_.describe(request.constraints, selection.row)};
}

Decision Router::decide(const RouteRequest& request, WallTime now) {
  return take(request, select(request), now);
}

Decision Router::take(const RouteRequest& request, const Selection& selection, WallTime now) {
  const WorkerKey chosen = selection.worker;
  Decision decision;
  decision.worker = chosen;
  decision.overlap_blocks = selection.overlap_blocks;
  decision.lease = book_->take(make_booking(request, candidates_.worker(selection.row),
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
