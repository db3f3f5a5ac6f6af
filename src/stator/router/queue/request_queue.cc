// SPDX-License-Identifier: Apache-2.0
#include "stator/router/queue/request_queue.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "stator/core/assert.h"

namespace stator::router {
namespace {

constexpr std::array<std::pair<std::string_view, QueueOrder>, 4> kOrders = {{
    {"fcfs", QueueOrder::kFcfs},
    {"lcfs", QueueOrder::kLcfs},
    {"wspt", QueueOrder::kWspt},
    {"deadline", QueueOrder::kDeadline},
}};
// Tenants beyond the bound.
constexpr std::string_view kOthers = "\x01others";

// Long against a burst, short against the patience of who sent one.
constexpr double kUsageHalfLifeSeconds = 20;
// Below it, a tenant that is idle is forgotten.
constexpr double kUsageTokensMin = 1;
// Who used so many times the mean of all goes last.
constexpr double kOverShare = 1.1;

double seconds(TimePoint time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

double uncached(uint32_t prompt_tokens, uint32_t cached_tokens) {
  return std::max(1.0, static_cast<double>(prompt_tokens) - cached_tokens);
}

}  // namespace

std::vector<std::string> queue_order_names() {
  std::vector<std::string> names;
  for (const auto& [name, order] : kOrders) {
    names.emplace_back(name);
  }
  return names;
}

Result<QueueOrder> parse_queue_order(std::string_view name) {
  for (const auto& [known, order] : kOrders) {
    if (known == name) {
      return order;
    }
  }
  return Error(Code::kInvalidArgument, fmt::format("router queue order '{}' is not one of {}", name,
                                                   fmt::join(queue_order_names(), ", ")));
}

std::string_view describe(Shed shed) {
  static constexpr std::array<std::string_view, kShedCount> kNames = {
      "request_limit",      "byte_limit", "raw_isl_token_limit",
      "cached_token_limit", "wait_limit", "displaced"};
  return kNames[static_cast<size_t>(shed)];
}

std::optional<Shed> RequestQueue::limit_reached(const QueueItem& item, const Entry* without) const {
  const Entry& less = without == nullptr ? Entry{} : *without;
  if (entries_.size() - (without == nullptr ? 0 : 1) >= config_.requests_max) {
    return Shed::kRequests;
  }
  if (bytes_ - less.bytes + item.bytes > config_.bytes_max) {
    return Shed::kBytes;
  }
  const Backlog own = backlog(item.tenant);
  const auto full = [](const std::optional<uint64_t>& limit, uint64_t there) {
    return limit && there >= *limit;
  };
  if (full(item.limits.requests, own.requests)) {
    return Shed::kRequests;
  }
  if (full(item.limits.prompt_tokens, own.prompt_tokens)) {
    return Shed::kPromptTokens;
  }
  if (full(item.limits.cached_tokens, own.cached_tokens)) {
    return Shed::kCachedTokens;
  }
  // As in the reference, token limits are looked at before adding: the crossing request is kept.
  if (config_.prompt_tokens_max > 0 &&
      prompt_tokens_ - less.prompt_tokens >= config_.prompt_tokens_max) {
    return Shed::kPromptTokens;
  }
  if (config_.cached_tokens_max > 0 &&
      cached_tokens_ - less.cached_tokens >= config_.cached_tokens_max) {
    return Shed::kCachedTokens;
  }
  return std::nullopt;
}

double RequestQueue::score_of(const QueueItem& item) const {
  const double jump = std::isfinite(item.priority_jump) ? std::max(0.0, item.priority_jump) : 0;
  const double arrival = seconds(item.arrival);
  switch (item.order.value_or(order_)) {
    case QueueOrder::kFcfs:
      return jump - arrival;
    case QueueOrder::kLcfs:
      return jump + arrival;
    case QueueOrder::kWspt:
      return (1 + jump) / uncached(item.prompt_tokens, item.cached_tokens);
    case QueueOrder::kDeadline: {
      const TimePoint deadline = item.deadline.value_or(item.arrival + config_.ttft_target);
      return jump - seconds(deadline - item.predicted_work);
    }
  }
  return 0;
}

RequestQueue::Backlog RequestQueue::backlog(std::string_view tenant) const {
  const auto flow = std::ranges::find(flows_, tenant, &Flow::tenant);
  return flow == flows_.end() ? Backlog{} : flow->backlog;
}

std::expected<RequestQueue::Id, Shed> RequestQueue::push(const QueueItem& item) {
  if (const auto reached = limit_reached(item)) {
    return std::unexpected(*reached);
  }
  now_ = std::max(now_, item.arrival);
  const Id id = next_id_++;
  const Key key{item.strict_priority, score_of(item), id};
  auto flow = std::ranges::find(flows_, item.tenant, &Flow::tenant);
  if (flow == flows_.end() && flows_.size() >= config_.tenants_max) {
    flow = std::ranges::find(flows_, kOthers, &Flow::tenant);
  }
  if (flow == flows_.end()) {
    const bool full = flows_.size() >= config_.tenants_max;
    flows_.push_back({.tenant = std::string(full ? kOthers : item.tenant)});
    flow = flows_.end() - 1;
  }
  flow->weight = item.tenant_weight;
  ++flow->backlog.requests;
  flow->backlog.prompt_tokens += item.prompt_tokens;
  flow->backlog.cached_tokens += item.cached_tokens;
  flow->lanes[item.lane].insert(key);
  entries_.emplace(id, Entry{.key = key,
                             .tenant = flow->tenant,
                             .lane = item.lane,
                             .arrival = item.arrival,
                             .prompt_tokens = item.prompt_tokens,
                             .cached_tokens = item.cached_tokens,
                             .bytes = item.bytes,
                             .is_class = item.is_class});
  by_arrival_.emplace(item.arrival, id);
  by_priority_[item.strict_priority].insert(id);
  bytes_ += item.bytes;
  prompt_tokens_ += item.prompt_tokens;
  cached_tokens_ += item.cached_tokens;
  return id;
}

std::optional<RequestQueue::Id> RequestQueue::make_room(const QueueItem& item) {
  std::optional<Id> id;
  if (!by_priority_.empty() && by_priority_.begin()->first < item.strict_priority) {
    id = *by_priority_.begin()->second.rbegin();
  } else {
    id = last_of_the_longest(item);
  }
  if (!id || limit_reached(item, &entries_.at(*id))) {
    return std::nullopt;
  }
  take_out(*id);
  return id;
}

/// Who floods the queue must not keep the others out of it (buffer stealing, McKenney 1990).
std::optional<RequestQueue::Id> RequestQueue::last_of_the_longest(const QueueItem& item) const {
  const auto waiting = [](const Flow& flow) {
    return static_cast<double>(flow.backlog.prompt_tokens) / flow.weight;
  };
  const auto longest = std::ranges::max_element(flows_, {}, waiting);
  if (item.is_class || longest == flows_.end() || longest->tenant == item.tenant) {
    return std::nullopt;
  }
  const Backlog own = backlog(item.tenant);
  if (waiting(*longest) <=
      static_cast<double>(own.prompt_tokens + item.prompt_tokens) / item.tenant_weight) {
    return std::nullopt;
  }
  std::optional<Key> last;
  for (const auto& [lane, keys] : longest->lanes) {
    last = !last || *last < *keys.rbegin() ? *keys.rbegin() : *last;
  }
  return last->strict_priority > item.strict_priority ? std::nullopt : std::optional(last->id);
}

double RequestQueue::used_lately(const Usage& usage) const {
  const double age = std::chrono::duration<double>(now_ - usage.at).count();
  return usage.tokens * std::exp2(-std::max(0.0, age) / kUsageHalfLifeSeconds);
}

void RequestQueue::charge(std::string_view tenant, double weight, double tokens, TimePoint now) {
  now_ = std::max(now_, now);
  if (tenant.empty()) {
    return;
  }
  auto known = used_.find(tenant);
  if (known == used_.end()) {
    if (used_.size() >= config_.tenants_max) {
      absl::erase_if(
          used_, [this](const auto& entry) { return used_lately(entry.second) < kUsageTokensMin; });
    }
    if (used_.size() >= config_.tenants_max) {
      return;  // as many as take turns: further ones count as newcomers
    }
    known = used_.emplace(std::string(tenant), Usage{}).first;
  }
  known->second = {used_lately(known->second) + tokens / weight, now_};
}

/// The mean of those that used anything.
double RequestQueue::share_lately() const {
  double sum = 0;
  size_t count = 0;
  for (const auto& [tenant, usage] : used_) {
    const double used = used_lately(usage);
    sum += used;
    count += used >= kUsageTokensMin ? 1 : 0;
  }
  return count == 0 ? 0 : sum / static_cast<double>(count);
}

/// Takes the heads out of whom had more than their share, if others have work that can run.
void RequestQueue::keep_within_shares(std::vector<std::optional<Key>>& heads) const {
  if (used_.size() < 2) {
    return;
  }
  const double limit = kOverShare * share_lately();
  std::vector<bool> beyond(flows_.size());
  bool others = false;
  for (size_t i = 0; i < flows_.size(); ++i) {
    const auto usage = used_.find(flows_[i].tenant);
    beyond[i] = usage != used_.end() && used_lately(usage->second) > limit;
    others = others || (heads[i] && !beyond[i]);
  }
  for (size_t i = 0; others && i < flows_.size(); ++i) {
    if (beyond[i]) {
      heads[i].reset();
    }
  }
}

std::optional<RequestQueue::Key> RequestQueue::runnable_head(const Flow& flow,
                                                             const std::function<bool(Id)>& can_run,
                                                             Answers& answers) const {
  std::optional<Key> best;
  for (const auto& [lane, keys] : flow.lanes) {
    const Key& head = *keys.begin();
    if (best && !(head < *best)) {
      continue;
    }
    auto answer = answers.find(lane);
    if (answer == answers.end()) {
      answer = answers.emplace(lane, can_run(head.id)).first;
    }
    if (answer->second) {
      best = head;
    }
  }
  return best;
}

double RequestQueue::cost_of(Id id) const {
  const Entry& entry = entries_.at(id);
  return uncached(entry.prompt_tokens, entry.cached_tokens);
}

std::optional<RequestQueue::Id> RequestQueue::pop(const std::function<bool(Id)>& can_run) {
  const auto quantum = [this](const Flow& flow) { return config_.quantum_tokens * flow.weight; };
  Answers answers;
  std::vector<std::optional<Key>> heads(flows_.size());
  for (size_t i = 0; i < flows_.size(); ++i) {
    heads[i] = runnable_head(flows_[i], can_run, answers);
  }
  keep_within_shares(heads);
  double rounds = -1;  // whole rounds without a dispatch that can be given at once
  for (size_t i = 0; i < flows_.size(); ++i) {
    if (heads[i]) {
      const double missing = cost_of(heads[i]->id) - flows_[i].deficit;
      const double needed = std::max(0.0, std::ceil(missing / quantum(flows_[i])));
      rounds = rounds < 0 ? needed : std::min(rounds, needed);
    }
  }
  if (rounds < 0) {
    return std::nullopt;
  }
  // All but the last of those rounds change nothing but deficits; a blocked tenant gains nothing.
  for (size_t i = 0; rounds > 1 && i < flows_.size(); ++i) {
    flows_[i].deficit += heads[i] ? (rounds - 1) * quantum(flows_[i]) : 0;
  }
  for (size_t visited = 0; visited <= 2 * flows_.size(); ++visited) {
    turn_ %= flows_.size();
    Flow& flow = flows_[turn_];
    if (heads[turn_]) {
      if (!turn_began_) {
        flow.deficit += quantum(flow);
        turn_began_ = true;
      }
      const Id id = heads[turn_]->id;
      const double cost = cost_of(id);
      if (flow.deficit >= cost) {
        flow.deficit -= cost;
        if (!entries_.at(id).is_class && flow.tenant != kOthers) {
          charge(flow.tenant, flow.weight, cost, now_);
        }
        take_out(id);
        return id;
      }
    }
    ++turn_;
    turn_began_ = false;
  }
  STATOR_ASSERT(false, "Q2: a tenant that can run is served within one round");
  return std::nullopt;
}

void RequestQueue::take_out(Id id) {
  const auto known = entries_.find(id);
  const Entry& entry = known->second;
  bytes_ -= entry.bytes;
  prompt_tokens_ -= entry.prompt_tokens;
  cached_tokens_ -= entry.cached_tokens;
  by_arrival_.erase({entry.arrival, id});
  const auto equals = by_priority_.find(entry.key.strict_priority);
  equals->second.erase(id);
  if (equals->second.empty()) {
    by_priority_.erase(equals);
  }
  const auto flow = std::ranges::find(flows_, entry.tenant, &Flow::tenant);
  --flow->backlog.requests;
  flow->backlog.prompt_tokens -= entry.prompt_tokens;
  flow->backlog.cached_tokens -= entry.cached_tokens;
  const auto lane = flow->lanes.find(entry.lane);
  lane->second.erase(entry.key);
  if (lane->second.empty()) {
    flow->lanes.erase(lane);
  }
  if (flow->lanes.empty()) {
    const auto index = static_cast<size_t>(flow - flows_.begin());
    flows_.erase(flow);
    if (index < turn_) {
      --turn_;
    } else if (index == turn_) {
      turn_began_ = false;
    }
  }
  entries_.erase(known);
}

bool RequestQueue::remove(Id id) {
  if (!entries_.contains(id)) {
    return false;
  }
  take_out(id);
  return true;
}

std::vector<RequestQueue::Id> RequestQueue::expire(TimePoint now) {
  now_ = std::max(now_, now);
  std::vector<Id> late;
  while (config_.wait_max > Duration::zero() && !by_arrival_.empty() &&
         now - by_arrival_.begin()->first > config_.wait_max) {
    late.push_back(by_arrival_.begin()->second);
    take_out(late.back());
  }
  return late;
}

}  // namespace stator::router
