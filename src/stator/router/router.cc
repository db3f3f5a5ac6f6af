// SPDX-License-Identifier: Apache-2.0
#include "stator/router/router.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "stator/router/index/chain_index.h"

namespace stator::router {

Result<std::unique_ptr<Router>> Router::create(const RouterConfig& config, Random random,
                                               std::unique_ptr<KvIndex> index) {
  const CostConfig& cost = config.cost;
  for (const double weight : {cost.overlap_credit, cost.overlap_credit_decay,
                              cost.prefill_load_scale, cost.active_request_weight, cost.host_weight,
                              cost.disk_weight, cost.shared_multiplier, cost.temperature}) {
    if (!std::isfinite(weight) || weight < 0) {
      return Error(Code::kInvalidArgument, "router weights must be finite and not negative");
    }
  }
  auto policy = make_policy(config.mode, cost);
  if (policy == nullptr) {
    return Error(Code::kInvalidArgument, fmt::format("router mode '{}' is not one of {}",
                                                     config.mode, fmt::join(policy_names(), ", ")));
  }
  if (index == nullptr) {
    STATOR_TRY(index, ChainIndex::create({.bytes_max = config.index.bytes_max}));
  }
  return std::unique_ptr<Router>(
      new Router(std::move(policy), config.cost, random, std::move(index)));
}

Router::Router(std::unique_ptr<Policy> policy, const CostConfig& cost, Random random,
               std::unique_ptr<KvIndex> index)
    : policy_(std::move(policy)), cost_(cost), random_(random), index_(std::move(index)) {}

Router::Worker* Router::find(WorkerKey worker) {
  const auto it = std::ranges::find(workers_, worker, &Worker::key);
  return it == workers_.end() ? nullptr : &*it;
}

void Router::add_worker(WorkerKey worker) {
  if (Worker* known = find(worker)) {
    known->draining = false;
    return;
  }
  workers_.push_back({worker, std::make_shared<WorkerLoad>(), false});
  // Order must not depend on who joined first: round robin and receipts stay comparable.
  std::ranges::sort(workers_, {}, &Worker::key);
  index_->add_worker(worker);
}

void Router::remove_worker(WorkerKey worker) {
  std::erase_if(workers_, [&](const Worker& known) { return known.key == worker; });
  index_->remove_worker(worker);
}

void Router::set_draining(WorkerKey worker, bool draining) {
  if (Worker* known = find(worker)) {
    known->draining = draining;
  }
}

Applied Router::apply(WorkerKey worker, const kv::KvEvent& event) {
  // Events of a worker that already left must not leave blocks behind that nobody will remove.
  return find(worker) == nullptr ? Applied::kUnknownBlock : index_->apply(worker, event);
}

int64_t Router::active_requests() const {
  int64_t total = 0;
  for (const Worker& worker : workers_) {
    total += worker.load->requests.load(std::memory_order_relaxed);
  }
  return total;
}

std::vector<ReceiptCandidate> Router::make_candidates(const RouteRequest& request) const {
  std::vector<Overlap> overlaps;
  if (policy_->needs_overlap()) {
    overlaps = index_->find_longest_match(request.sequences);
  }
  std::vector<ReceiptCandidate> candidates;
  candidates.reserve(workers_.size());
  for (const Worker& worker : workers_) {
    ReceiptCandidate& candidate = candidates.emplace_back();
    candidate.worker = worker.key;
    candidate.active_prefill_tokens = worker.load->prefill_tokens.load(std::memory_order_relaxed);
    candidate.active_blocks = worker.load->blocks.load(std::memory_order_relaxed);
    candidate.active_requests = worker.load->requests.load(std::memory_order_relaxed);
    const auto overlap = std::ranges::find(overlaps, worker.key, &Overlap::worker);
    candidate.overlap_blocks = overlap == overlaps.end() ? 0 : overlap->blocks;
    if (request.pinned && *request.pinned != worker.key.worker) {
      candidate.excluded = "request names another worker";
    } else if (std::ranges::find(request.excluded, worker.key) != request.excluded.end()) {
      candidate.excluded = "tried already";
    } else if (worker.draining) {
      candidate.excluded = "draining";
    }
  }
  return candidates;
}

Error Router::nobody(const RouteRequest& request) const {
  if (request.pinned && std::ranges::none_of(workers_, [&](const Worker& worker) {
        return worker.key.worker == *request.pinned;
      })) {
    return {Code::kNotFound, fmt::format("worker {} named by the request does not serve model '{}'",
                                         request.pinned->value(), request.model)};
  }
  if (workers_.empty()) {
    return {Code::kUnavailable,
            fmt::format("no worker serves model '{}' right now, retry shortly", request.model)};
  }
  return {Code::kUnavailable,
          fmt::format("all {} workers of model '{}' are draining or failed, retry shortly",
                      workers_.size(), request.model)};
}

Result<Decision> Router::route(const RouteRequest& request, WallTime now) {
  if (policy_->name() == "direct" && !request.pinned) {
    return Error(
        Code::kInvalidArgument,
        "router mode 'direct' needs the worker: set the header x-stator-worker-instance-id");
  }
  std::vector<ReceiptCandidate> candidates = make_candidates(request);
  std::vector<size_t> eligible;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].excluded.empty()) {
      eligible.push_back(i);
    }
  }
  if (eligible.empty()) {
    return nobody(request);
  }
  const CostRequest cost_request{request.prompt_tokens, request.block_size};
  const Choice choice = policy_->choose({candidates, eligible, cost_request}, random_);
  const ReceiptCandidate& chosen = candidates[choice.candidate];

  const uint32_t blocks = (request.prompt_tokens + request.block_size - 1) / request.block_size;
  const uint32_t cached =
      std::min(request.prompt_tokens, chosen.overlap_blocks * request.block_size);
  Decision decision;
  decision.worker = chosen.worker;
  decision.overlap_blocks = chosen.overlap_blocks;
  decision.lease = LoadLease(workers_[choice.candidate].load,
                             {.prefill_tokens = request.prompt_tokens - cached,
                              .blocks = static_cast<int64_t>(blocks) - chosen.overlap_blocks});
  decision.receipt = {.request_id = std::string(request.request_id),
                      .model = std::string(request.model),
                      .mode = policy_->name(),
                      .time = now,
                      .prompt_tokens = request.prompt_tokens,
                      .prompt_blocks = static_cast<uint32_t>(request.sequences.size()),
                      .block_size = request.block_size,
                      .temperature = cost_.temperature,
                      .chosen = chosen.worker,
                      .reason = request.pinned ? "named by the request" : choice.reason,
                      .candidates = std::move(candidates)};
  return decision;
}

}  // namespace stator::router
