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
constexpr std::string_view kHandoff = "stator.handoff/";

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

/// Workers that may be paired: of one kind of hand-off, and of one topology domain.
struct Group {
  std::string_view handoff;
  std::string_view place;
  friend auto operator<=>(const Group&, const Group&) = default;
};

/// The cheapest worker of one group.
struct Cheapest {
  double cost = std::numeric_limits<double>::infinity();
  Selection selection;
};

using ByGroup = std::map<Group, Cheapest>;

ByGroup cheapest_by_group(const Router& router, std::span<const Router::Priced> priced,
                          std::string_view domain) {
  ByGroup best;
  for (const Router::Priced& each : priced) {
    const auto& taints = facts_of(router, each.selection.worker).taints;
    Cheapest& known =
        best[{find_handoff_taint(taints),
              domain.empty() ? std::string_view() : find_topology_taint(taints, domain)}];
    if (each.cost < known.cost) {
      known = {each.cost, each.selection};
    }
  }
  return best;
}

}  // namespace

void describe(ConfigSchema& schema, DisaggregationConfig& config) {
  schema.choice("router.conditional_disagg_policy", config.conditional,
                {"off", "isl_bounding", "prefill_load", "isl_or_load"},
                "fleets with prefill workers: when a decode worker computes a prompt itself (off = "
                "never; little of it is uncached; prefill workers are busy; either)",
                {.env_peer = "DYN_ROUTER_CONDITIONAL_DISAGG_POLICY"});
  schema.integer("router.conditional_disagg_eff_isl_threshold", config.uncached_tokens_max, 0,
                 1 << 24, "isl_bounding: fewer uncached tokens than this stay at the decode worker",
                 {.env_peer = "DYN_ROUTER_CONDITIONAL_DISAGG_EFF_ISL_THRESHOLD"});
  schema.number("router.conditional_disagg_eff_isl_ratio_threshold", config.uncached_ratio_max, 0,
                1, "isl_bounding: and less than this part of the prompt",
                {.env_peer = "DYN_ROUTER_CONDITIONAL_DISAGG_EFF_ISL_RATIO_THRESHOLD"});
  schema.number(
      "router.conditional_disagg_prefill_busy_threshold", config.prefill_busy_fraction, -1, 1e6,
      "prefill_load: a prefill worker is busy beyond this part of max_num_batched_tokens, "
      "-1 = router.queue_threshold",
      {.env_peer = "DYN_ROUTER_CONDITIONAL_DISAGG_PREFILL_BUSY_THRESHOLD"});
  schema.number("router.conditional_disagg_decode_busy_threshold", config.decode_busy_fraction, -1,
                1,
                "a decode worker with more than this part of its blocks in use computes no "
                "prompt, -1 = no limit",
                {.env_peer = "DYN_ROUTER_CONDITIONAL_DISAGG_DECODE_BUSY_THRESHOLD"});
  schema.boolean("router.enforce_disagg", config.enforced,
                 "requests fail rather than run without a prefill worker",
                 {.env_peer = "DYN_ENFORCE_DISAGG"});
  schema.text("router.kv_transfer_domain", config.transfer.domain,
              "topology domain within which prompts are handed over, as rack; empty = anywhere",
              {.env_peer = "DYN_KV_TRANSFER_DOMAIN"});
  schema.boolean("router.kv_transfer_required", config.transfer.required,
                 "never hand a prompt over across that domain");
  schema.number("router.kv_transfer_preferred_weight", config.transfer.preferred_weight, 0, 1,
                "how much a worker of the same domain is preferred",
                {.env_peer = "DYN_KV_TRANSFER_PREFERRED_WEIGHT"});
}

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

std::string handoff_taint(std::string_view kind) {
  return fmt::format("{}{}", kHandoff, kind);
}

std::string_view find_handoff_taint(std::span<const std::string> taints) {
  const auto found = std::ranges::find_if(
      taints, [](const std::string& taint) { return taint.starts_with(kHandoff); });
  return found == taints.end() ? std::string_view() : std::string_view(*found);
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

DecodeTerms PrefillRouter::decode_terms(const RouteRequest& request, WorkerKey prefill) const {
  const auto& taints = facts_of(prefill_, prefill).taints;
  const auto& own = request.constraints;
  DecodeTerms terms{.required_taints = {own.required_taints.begin(), own.required_taints.end()},
                    .preferred_taints = {own.preferred_taints.begin(), own.preferred_taints.end()},
                    .override = decode_request(request).override};
  if (const auto handoff = find_handoff_taint(taints); !handoff.empty()) {
    terms.required_taints.emplace_back(handoff);
  }
  const TransferRule& rule = config_.transfer;
  if (rule.domain.empty()) {
    return terms;
  }
  const auto place = find_topology_taint(taints, rule.domain);
  if (rule.required) {
    // A worker whose place nobody knows pairs with nobody.
    terms.required_taints.push_back(place.empty() ? fmt::format("{}{}=", kTopology, rule.domain)
                                                  : std::string(place));
  } else if (!place.empty()) {
    terms.preferred_taints.emplace_back(place, static_cast<float>(rule.preferred_weight));
  }
  return terms;
}

Result<DisaggregatedPlan> PrefillRouter::plan_in_turn(const RouteRequest& request,
                                                      const Selection& prefill) {
  const DecodeTerms terms = decode_terms(request, prefill.worker);
  RouteRequest decode = decode_request(request);
  decode.constraints.required_taints = terms.required_taints;
  decode.constraints.preferred_taints = terms.preferred_taints;
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
  const auto prefills = prefill_.price(request);  // whom plan() found
  const auto decodes = decode_.price(decode);
  const ByGroup prefill_best = cheapest_by_group(prefill_, prefills, rule.domain);
  const ByGroup decode_best = cheapest_by_group(decode_, decodes, rule.domain);
  const double across = 1 / std::exp(-std::tanh(rule.preferred_weight));
  DisaggregatedPlan best{.path = DisaggregatedPlan::Path::kSplit,
                         .reason = "the cheapest pair of prefill and decode worker"};
  double best_cost = std::numeric_limits<double>::infinity();
  bool understood = false;
  for (const auto& [from, prefill] : prefill_best) {
    for (const auto& [into, decode_side] : decode_best) {
      if (from.handoff != into.handoff) {
        continue;
      }
      understood = true;
      const bool near = rule.domain.empty() || (!from.place.empty() && from.place == into.place);
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
  if (!understood) {
    if (config_.enforced) {
      return Error(
          Code::kUnavailable,
          fmt::format("no decode worker of model '{}' understands what its prefill workers "
                      "hand over: give both the same engine, release and model path",
                      request.model));
    }
    return run_whole(request, "no decode worker understands what prefill workers hand over");
  }
  if (best_cost == std::numeric_limits<double>::infinity()) {
    return Error(Code::kUnavailable,
                 fmt::format("no prefill and decode worker of model '{}' share a value of the "
                             "topology domain '{}', which their transfer requires",
                             request.model, rule.domain));
  }
  return best;
}

RouteRequest PrefillRouter::prompt_request(const RouteRequest& request) {
  RouteRequest prompt = request;
  prompt.constraints.pinned = request.prefill_pinned;  // the other one: who answers
  prompt.constraints.pinned_rank = request.prefill_pinned_rank;
  prompt.holds_blocks = false;
  return prompt;
}

Result<DisaggregatedPlan> PrefillRouter::plan(const RouteRequest& request) {
  const RouteRequest prompt = prompt_request(request);
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
  if (*prefill_ready == Router::Readiness::kBusy) {
    return DisaggregatedPlan{.path = DisaggregatedPlan::Path::kWait,
                             .reason = "all prefill workers are busy"};
  }
  if (!config_.choose_pairs || request.constraints.pinned) {
    return plan_in_turn(request, prefill);
  }
  return plan_pair(request);
}

Decision PrefillRouter::take_prefill(const DisaggregatedPlan& plan, const RouteRequest& request,
                                     WallTime now) {
  return prefill_.take(prompt_request(request), plan.prefill, now);
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
