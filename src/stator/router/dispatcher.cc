// SPDX-License-Identifier: Apache-2.0
#include "stator/router/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/core/hash.h"

namespace stator::router {
namespace {

/// Equal for requests that may go to the same workers; 0 for those that may go to any.
uint64_t lane_of(const RouteConstraints& constraints) {
  if (constraints.none()) {
    return 0;
  }
  uint64_t lane = mix64(constraints.pinned ? constraints.pinned->value() : 0);
  const auto add = [&](uint64_t value) { lane = mix64(lane ^ value); };
  add(constraints.pinned_rank.value_or(~0U));
  for (const WorkerId worker : constraints.allowed) {
    add(worker.value());
  }
  add(constraints.excluded.size());
  for (const WorkerKey& worker : constraints.excluded) {
    add(worker.worker.value() ^ (uint64_t{worker.dp_rank} << 56));
  }
  for (const std::string& taint : constraints.required_taints) {
    add(xxh3_64(taint));
  }
  return lane | 1;
}

/// What a client may read of a full queue.
Error full(const RouteRequest& request, const RequestQueue& queue, Shed shed, const QueueItem& item,
           const PolicyClass* policy) {
  std::string where;
  if (policy != nullptr) {
    const RequestQueue::Backlog backlog = queue.backlog(item.tenant);
    const auto& [there, limit] =
        shed == Shed::kPromptTokens
            ? std::pair("raw_isl_tokens",
                        std::pair(backlog.prompt_tokens, item.limits.prompt_tokens))
        : shed == Shed::kCachedTokens
            ? std::pair("cached_tokens",
                        std::pair(backlog.cached_tokens, item.limits.cached_tokens))
            : std::pair("requests", std::pair(backlog.requests, item.limits.requests));
    where = fmt::format(R"( {{"policy_class":"{}","limit_kind":"{}","current":{},"limit":{}}})",
                        policy->name, there, limit.first, limit.second.value_or(0));
  }
  return {Code::kOverloaded,
          fmt::format("all workers of model '{}' are busy and the router's queue is full "
                      "({}: {} requests, {} bytes wait), retry shortly{}",
                      request.model, describe(shed), queue.size(), queue.bytes(), where)};
}

}  // namespace

Dispatcher::Dispatcher(std::unique_ptr<Router> router, QueueOrder order)
    : router_(std::move(router)),
      queue_(router_->config().queue, order),
      policies_(router_->config().policies) {}

std::span<const PolicyClass> Dispatcher::classes() const {
  return policies_ == nullptr ? std::span<const PolicyClass>() : policies_->classes;
}

RouteRequest OwnedRequest::view() const {
  RouteRequest request{.request_id = request_id,
                       .model = model,
                       .prompt_tokens = prompt_tokens,
                       .block_size = block_size,
                       .sequences = sequences,
                       .constraints = constraints,
                       .wait = policy == nullptr ? nullptr : &policy->wait,
                       .override = override,
                       .expected_output_tokens = expected_output_tokens,
                       .tier = tier,
                       .holds_blocks = holds_blocks,
                       .session = session,
                       .media_json = media_json,
                       .shared_blocks = shared_blocks};
  request.constraints.allowed = allowed;
  request.constraints.excluded = excluded;
  request.constraints.required_taints = required_taints;
  request.constraints.preferred_taints = preferred_taints;
  return request;
}

uint64_t OwnedRequest::bytes() const {
  uint64_t bytes = sizeof(OwnedRequest) + request_id.size() + model.size() + session.size() +
                   sequences.size() * sizeof(blocks::SequenceHash) +
                   allowed.size() * sizeof(WorkerId) + excluded.size() * sizeof(WorkerKey);
  for (const std::string& taint : required_taints) {
    bytes += sizeof(taint) + taint.size();
  }
  for (const auto& [taint, weight] : preferred_taints) {
    bytes += sizeof(taint) + taint.size() + sizeof(weight);
  }
  return bytes;
}

OwnedRequest own(const RouteRequest& request, TimePoint arrival) {
  const RouteConstraints& constraints = request.constraints;
  return {
      .request_id = std::string(request.request_id),
      .model = std::string(request.model),
      .session = std::string(request.session),
      .media_json = std::string(request.media_json),
      .prompt_tokens = request.prompt_tokens,
      .block_size = request.block_size,
      .sequences = {request.sequences.begin(), request.sequences.end()},
      .constraints = constraints,
      .allowed = {constraints.allowed.begin(), constraints.allowed.end()},
      .excluded = {constraints.excluded.begin(), constraints.excluded.end()},
      .required_taints = {constraints.required_taints.begin(), constraints.required_taints.end()},
      .preferred_taints = {constraints.preferred_taints.begin(),
                           constraints.preferred_taints.end()},
      .override = request.override,
      .holds_blocks = request.holds_blocks,
      .shared_blocks = request.shared_blocks,
      .expected_output_tokens = request.expected_output_tokens,
      .tier = request.tier,
      .arrival = arrival};
}

void Dispatcher::displace(Id id) {
  const auto known = waiting_.find(id);
  displaced_.push_back(
      {id,
       Error(Code::kOverloaded,
             fmt::format("all workers of model '{}' are busy, the router's queue is full and "
                         "more important requests came, retry shortly",
                         known->second->model)),
       Shed::kDisplaced, known->second->policy});
  waiting_.erase(known);
}

QueueItem Dispatcher::item_of(const RouteRequest& request, const QueueHints& hints,
                              const Router::Outlook& outlook) const {
  QueueItem item = {.arrival = hints.arrival,
                    .strict_priority = hints.strict_priority,
                    .priority_jump = hints.priority_jump,
                    .prompt_tokens = request.prompt_tokens,
                    .cached_tokens = outlook.cached_tokens,
                    .tenant = hints.tenant,
                    .tenant_weight = hints.tenant_weight,
                    .lane = lane_of(request.constraints),
                    .deadline = hints.deadline,
                    .predicted_work = outlook.first_token};
  if (last_class_ == nullptr) {
    return item;
  }
  // Classes take turns in the place of tenants.
  const auto scaled = [workers = std::max<uint64_t>(router_->ready_count(), 1)](
                          const std::optional<uint64_t>& per_worker) {
    return per_worker ? std::optional(*per_worker * workers) : std::nullopt;
  };
  const ClassLimits& limits = last_class_->per_worker;
  item.is_class = true;
  item.tenant = last_class_->name;
  item.tenant_weight = static_cast<double>(last_class_->quantum) / queue_.config().quantum_tokens;
  item.order = last_class_->order;
  item.limits = {scaled(limits.requests), scaled(limits.prompt_tokens),
                 scaled(limits.cached_tokens)};
  return item;
}

Result<Dispatcher::Id> Dispatcher::wait(const RouteRequest& request, const QueueHints& hints,
                                        const Router::Outlook& outlook) {
  auto waiting = std::make_unique<OwnedRequest>(own(request, hints.arrival));
  waiting->policy = last_class_;
  QueueItem item = item_of(request, hints, outlook);
  item.bytes = waiting->bytes() + hints.held_bytes;
  auto pushed = queue_.push(item);
  if (!pushed) {
    if (const auto out = queue_.make_room(item)) {
      displace(*out);
      pushed = queue_.push(item);
    }
  }
  if (!pushed) {
    last_shed_ = pushed.error();
    return full(request, queue_, pushed.error(), item, last_class_);
  }
  waiting_.emplace(*pushed, std::move(waiting));
  return *pushed;
}

Result<std::variant<Decision, Dispatcher::Id>> Dispatcher::submit(const RouteRequest& request,
                                                                  const QueueHints& hints,
                                                                  WallTime wall) {
  last_shed_.reset();
  last_class_ = nullptr;
  RouteRequest known = request;
  std::optional<Router::Outlook> outlook;
  if (policies_ != nullptr) {
    STATOR_CHECK(router_->consider(request));  // finds who may serve it
    outlook = router_->look_ahead(request);
    const uint32_t cached = std::min(request.prompt_tokens, outlook->cached_tokens);
    last_class_ = &policies_->choose(hints.policy_class, request.prompt_tokens - cached);
    known.wait = &last_class_->wait;
  }
  STATOR_TRY(const Router::Readiness readiness, router_->consider(known));
  const bool nobody_before =
      last_class_ == nullptr ? queue_.empty() : queue_.backlog(last_class_->name).requests == 0;
  if (readiness == Router::Readiness::kReady && nobody_before) {
    Decision decision = router_->decide(known, wall);
    if (last_class_ == nullptr && !hints.tenant.empty()) {
      const uint64_t cached = uint64_t{decision.overlap_blocks} * known.block_size;
      queue_.charge(hints.tenant, hints.tenant_weight,
                    static_cast<double>(known.prompt_tokens -
                                        std::min<uint64_t>(cached, known.prompt_tokens)) +
                        1,
                    hints.arrival);
    }
    return decision;
  }
  STATOR_TRY(const Id id, wait(known, hints, outlook ? *outlook : router_->look_ahead(known)));
  return id;
}

std::optional<Dispatcher::Outcome> Dispatcher::next(TimePoint now, WallTime wall) {
  if (queue_.empty()) {
    return std::nullopt;
  }
  const auto id = queue_.pop([&](Id head) {
    const auto readiness = router_->consider(waiting_.at(head)->view());
    // One that can never run goes out with its error; one whose workers are too busy waits on.
    return readiness ? *readiness == Router::Readiness::kReady
                     : readiness.error().code() != Code::kOverloaded;
  });
  if (!id) {
    return std::nullopt;
  }
  const auto known = waiting_.find(*id);
  const std::unique_ptr<OwnedRequest> waiting = std::move(known->second);
  waiting_.erase(known);
  RouteRequest request = waiting->view();
  request.queued = now - waiting->arrival;
  return Outcome{*id, router_->route(request, wall)};
}

std::vector<Dispatcher::Outcome> Dispatcher::expire(TimePoint now) {
  std::vector<Outcome> late = std::exchange(displaced_, {});
  for (const Id id : queue_.expire(now)) {
    const auto known = waiting_.find(id);
    late.push_back({id,
                    Error(Code::kOverloaded,
                          fmt::format("all workers of model '{}' stayed busy for longer than "
                                      "router.queue_wait_max, retry shortly",
                                      known->second->model)),
                    Shed::kWait, known->second->policy});
    waiting_.erase(known);
  }
  return late;
}

bool Dispatcher::remove(Id id) {
  waiting_.erase(id);
  return queue_.remove(id);
}

}  // namespace stator::router
