// SPDX-License-Identifier: Apache-2.0
#include "stator/router/prefill_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

namespace stator::router {
namespace {

constexpr std::string_view kTopology = "dynamo.topology/";

bool looks_at_length(const DisaggregationConfig& config) {
  return config.conditional == "isl_bounding" || config.conditional == "isl_or_load";
}

bool looks_at_load(const DisaggregationConfig& config) {
  return config.conditional == "prefill_load" || config.conditional == "isl_or_load";
}

const WorkerFacts& facts_of(const Router& router, WorkerKey worker) {
  const auto all = router.workers();
  return std::ranges::find(all, worker, &WorkerTable::Worker::key)->facts;
}

/// The cheapest worker of one topology domain.
struct Cheapest {
  double cost = std::numeric_limits<double>::infinity();
  Selection selection;
};

using ByDomain = std::map<std::string_view, Cheapest>;

ByDomain cheapest_by_domain(const Router& router, std::span<const Router::Priced> priced,
                            std::string_view domain) {
  ByDomain best;
  for (const Router::Priced& each : priced) {
    const auto taint = domain.empty() ? std::string_view()
                                      : find_topology_taint(
                                            facts_of(router, each.selection.worker).taints, domain);
    Cheapest& known = best[taint];
    if (each.cost < known.cost) {
      known = {each.cost, each.selection};
    }
  }
  return best;
}

}  // namespace

Status validate(const DisaggregationConfig& config) {
  if (config.conditional != "off" && !looks_at_length(config) && !looks_at_load(config)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("router.conditional_disagg_policy must be off, isl_bounding, "
                             "prefill_load or isl_or_load, not '{}'",
                             config.conditional));
  }
  if (looks_at_load(config) && config.prefill_busy_fraction < 0) {
    return Error(Code::kInvalidArgument,
                 "router.conditional_disagg_policy by load needs "
                 "router.conditional_disagg_prefill_busy_threshold or router.queue_threshold");
  }
  return {};
}

Bypass decide_bypass(const DisaggregationConfig& config, const PrefillPeek& peek) {
  if (config.conditional == "off") {
    return {false, "prompts are computed by prefill workers"};
  }
  if (config.decode_busy_fraction >= 0 &&
      (!peek.decode_blocks || !peek.decode_blocks_total || *peek.decode_blocks_total <= 0 ||
       *peek.decode_blocks > config.decode_busy_fraction * *peek.decode_blocks_total)) {
    return {false, "the decode worker is too full to compute a prompt, or may be"};
  }
  const uint32_t uncached = peek.prompt_tokens - std::min(peek.cached_tokens, peek.prompt_tokens);
  if (looks_at_length(config) && uncached < config.uncached_tokens_max &&
      uncached < config.uncached_ratio_max * peek.prompt_tokens) {
    return {true, "little of the prompt is uncached at the decode worker"};
  }
  if (looks_at_load(config) && peek.prefill_tokens && peek.prefill_tokens_max &&
      *peek.prefill_tokens_max > 0 &&
      *peek.prefill_tokens > config.prefill_busy_fraction * *peek.prefill_tokens_max) {
    return {true, "the prefill worker has too much to compute already"};
  }
  return {false, "much of the prompt is to be computed"};
}

std::string_view find_topology_taint(std::span<const std::string> taints, std::string_view domain) {
  for (const std::string_view taint : taints) {
    if (taint.starts_with(kTopology) && taint.substr(kTopology.size()).starts_with(domain) &&
        taint.substr(kTopology.size() + domain.size()).starts_with("=")) {
      return taint;
    }
  }
  return {};
}

uint64_t make_bootstrap_room(Random& random, uint32_t dp_rank, uint32_t dp_size) {
  constexpr uint64_t kRooms = 1ULL << 63;
  const uint64_t size = std::max(1U, dp_size);
  const uint64_t quotients = (kRooms - 1 - dp_rank % size) / size + 1;
  return (random.next() % quotients) * size + dp_rank % size;
}

/// The prompt's blocks come from elsewhere, and into fresh ones: cached blocks at the decode worker
/// are worth nothing, unless conditional disaggregation may use them.
RouteRequest PrefillRouter::decode_request(const RouteRequest& request) const {
  RouteRequest decode = request;
  if (config_.conditional == "off") {
    decode.override.overlap_credit = 0;
  }
  decode.override.assume_kv_reuse = false;
  decode.override.track_prefill_tokens = false;
  return decode;
}

Result<DisaggregatedPlan> PrefillRouter::run_whole(const RouteRequest& request,
                                                   std::string_view reason) {
  STATOR_TRY([[maybe_unused]] const auto readiness, decode_.consider(request));
  return DisaggregatedPlan{
      .path = DisaggregatedPlan::Path::kWhole, .decode = decode_.select(request), .reason = reason};
}

PrefillPeek PrefillRouter::peek(const RouteRequest& request, const Selection& decode,
                                const Selection& prefill) {
  const LoadRow decode_load = decode_.load_of(decode.worker);
  const LoadRow prefill_load = prefill_.load_of(prefill.worker);
  const uint32_t blocks = (request.prompt_tokens + request.block_size - 1) / request.block_size;
  PrefillPeek peek{.prompt_tokens = request.prompt_tokens,
                   .cached_tokens = decode.cached_tokens,
                   .decode_blocks = decode_load.active_blocks + blocks,
                   .prefill_tokens = prefill_load.prefill_tokens};
  if (const uint32_t total = facts_of(decode_, decode.worker).total_kv_blocks; total > 0) {
    peek.decode_blocks_total = total;
  }
  if (const uint32_t max = facts_of(prefill_, prefill.worker).max_num_batched_tokens; max > 0) {
    peek.prefill_tokens_max = max;
  }
  return peek;
}

Result<DisaggregatedPlan> PrefillRouter::plan_in_turn(const RouteRequest& request,
                                                      const Selection& prefill) {
  RouteRequest decode = decode_request(request);
  std::vector<std::string> required(request.constraints.required_taints.begin(),
                                    request.constraints.required_taints.end());
  std::vector<std::pair<std::string, float>> preferred(request.constraints.preferred_taints.begin(),
                                                       request.constraints.preferred_taints.end());
  if (!config_.transfer.domain.empty()) {
    const auto taint =
        find_topology_taint(facts_of(prefill_, prefill.worker).taints, config_.transfer.domain);
    if (config_.transfer.required) {
      // A worker whose place nobody knows pairs with nobody.
      required.emplace_back(taint.empty() ? fmt::format("{}{}=", kTopology, config_.transfer.domain)
                                          : std::string(taint));
    } else if (!taint.empty()) {
      preferred.emplace_back(taint, static_cast<float>(config_.transfer.preferred_weight));
    }
  }
  decode.constraints.required_taints = required;
  decode.constraints.preferred_taints = preferred;
  STATOR_TRY([[maybe_unused]] const auto readiness, decode_.consider(decode));
  return DisaggregatedPlan{.path = DisaggregatedPlan::Path::kSplit,
                           .prefill = prefill,
                           .decode = decode_.select(decode),
                           .reason = "prefill worker first, then a decode worker near it"};
}

/// The cheapest pair: workers only pair within a domain (required), or a pair across domains costs
/// more by what the preference is worth. One pass over each side, then over pairs of domains.
Result<DisaggregatedPlan> PrefillRouter::plan_pair(const RouteRequest& request) {
  const RouteRequest decode = decode_request(request);
  STATOR_TRY([[maybe_unused]] const auto readiness, decode_.consider(decode));
  const TransferRule& rule = config_.transfer;
  const auto prefills = prefill_.price(request);  // considered by plan()
  const auto decodes = decode_.price(decode);
  const ByDomain prefill_best = cheapest_by_domain(prefill_, prefills, rule.domain);
  const ByDomain decode_best = cheapest_by_domain(decode_, decodes, rule.domain);
  const double across = 1 / std::exp(-std::tanh(rule.preferred_weight));
  DisaggregatedPlan best{.path = DisaggregatedPlan::Path::kSplit,
                         .reason = "the cheapest pair of prefill and decode worker"};
  double best_cost = std::numeric_limits<double>::infinity();
  for (const auto& [prefill_taint, prefill] : prefill_best) {
    for (const auto& [decode_taint, decode_side] : decode_best) {
      const bool near =
          rule.domain.empty() || (!prefill_taint.empty() && prefill_taint == decode_taint);
      if (!near && rule.required) {
        continue;
      }
      const double cost = prefill.cost + (near ? 1 : across) * (decode_side.cost + (near ? 0 : 1));
      if (cost < best_cost) {
        best_cost = cost;
        best.prefill = prefill.selection;
        best.decode = decode_side.selection;
      }
    }
  }
  if (best_cost == std::numeric_limits<double>::infinity()) {
    return Error(Code::kUnavailable,
                 fmt::format("no prefill and decode worker of model '{}' share a value of the "
                             "topology domain '{}', which their transfer requires",
                             request.model, rule.domain));
  }
  return best;
}

Result<DisaggregatedPlan> PrefillRouter::plan(const RouteRequest& request) {
  RouteRequest prompt = request;
  prompt.constraints.pinned = std::nullopt;  // a pin names the decode worker
  prompt.constraints.pinned_rank = std::nullopt;
  const auto prefill_ready = prefill_.consider(prompt);
  if (!prefill_ready) {
    if (config_.enforced) {
      return prefill_ready.error().clone().with_context("choosing a prefill worker");
    }
    return run_whole(request, "no prefill worker can take it");
  }
  const Selection prefill = prefill_.select(prompt);
  if (config_.conditional != "off") {
    STATOR_TRY([[maybe_unused]] const auto decode_ready, decode_.consider(request));
    const Selection decode = decode_.select(request);
    const Bypass bypass = decide_bypass(config_, peek(request, decode, prefill));
    if (bypass.stays) {
      return DisaggregatedPlan{
          .path = DisaggregatedPlan::Path::kWhole, .decode = decode, .reason = bypass.reason};
    }
  }
  if (!config_.choose_pairs || request.constraints.pinned) {
    return plan_in_turn(request, prefill);
  }
  return plan_pair(request);
}

Result<LoadLease> PrefillRouter::book_prefill(const DisaggregatedPlan& plan,
                                              const RouteRequest& request) {
  RouteRequest prompt = request;
  prompt.holds_blocks = false;
  return prefill_.book(plan.prefill.worker, prompt,
                       request.prompt_tokens - plan.prefill.cached_tokens);
}

Result<LoadLease> PrefillRouter::book_decode(const DisaggregatedPlan& plan,
                                             const RouteRequest& request) {
  if (plan.path == DisaggregatedPlan::Path::kWhole) {
    return decode_.book(plan.decode.worker, request,
                        request.prompt_tokens - plan.decode.cached_tokens);
  }
  return decode_.book(plan.decode.worker, decode_request(request), 0);
}

}  // namespace stator::router
