// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/random.h"
#include "stator/core/result.h"
#include "stator/router/disaggregation_config.h"
#include "stator/router/router.h"

namespace stator::router {

/// What a decision whether to compute a prompt where it will be decoded looks at. What is not known
/// is absent, and then the prompt goes to a prefill worker.
struct PrefillPeek {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;           ///< at the decode worker
  std::optional<double> decode_blocks;  ///< in use there, with this request
  std::optional<double> decode_blocks_total;
  std::optional<double> prefill_tokens;      ///< to compute at the prefill worker
  std::optional<double> prefill_tokens_max;  ///< what it takes in one step
};

/// Whether the prompt stays at its decode worker; the reason is static text for the receipt.
struct Bypass {
  bool stays = false;
  std::string_view reason;
};
Bypass decide_bypass(const DisaggregationConfig& config, const PrefillPeek& peek);

/// Where the two halves of a request run. Nothing of it is booked.
struct DisaggregatedPlan {
  enum class Path : uint8_t {
    kWhole,  ///< prompt and answer at `decode`
    kSplit,  ///< prompt at `prefill`, answer at `decode`
    kWait,  ///< as kSplit, but all prefill workers are beyond the wait thresholds; nobody is chosen
  };
  Path path = Path::kWhole;
  Selection prefill;  ///< of kSplit
  Selection decode;
  std::string_view reason;
};

/// What the request for the answer's worker adds to the client's own wishes.
struct DecodeTerms {
  std::vector<std::string> required_taints;
  std::vector<std::pair<std::string, float>> preferred_taints;
  CostOverride override;
};

/// Chooses the workers of a request in a fleet with prefill and decode workers. A pure core over
/// two routers, each with its own workers, load and index; one thread at a time.
///
/// P1  A plan with required topology never pairs workers whose transfer domains differ; where no
///     pair exists the request fails before anything was sent (kUnavailable).
///     Never pairs workers whose hand-offs differ (handoff_taint()); where no pair exists, as P2.
/// P2  Without a usable prefill worker the request runs whole, unless that is forbidden.
/// P3  Any doubt about what is cached or loaded sends the prompt to a prefill worker.
class PrefillRouter {
 public:
  /// The configuration has been validated. Both routers outlive it.
  PrefillRouter(DisaggregationConfig config, Router& prefill, Router& decode)
      : config_(std::move(config)), prefill_(prefill), decode_(decode) {}

  /// Errors as of Router::consider for the decode worker; P1.
  Result<DisaggregatedPlan> plan(const RouteRequest& request);
  /// What of the request concerns its prompt's worker, for routing that alone.
  static RouteRequest prompt_request(const RouteRequest& request);

  /// Books the prompt at the worker of a plan just made: its tokens, no blocks, because they leave
  /// it. With a receipt.
  Decision take_prefill(const DisaggregatedPlan& plan, const RouteRequest& request, WallTime now);
  /// Books the answer at the plan's decode worker; the prompt's tokens only where it computes them.
  Result<LoadLease> book_decode(const DisaggregatedPlan& plan, const RouteRequest& request);

  /// For choosing the answer's worker later, when the prompt has been computed at `prefill`, which
  /// the prefill router knows.
  DecodeTerms decode_terms(const RouteRequest& request, WorkerKey prefill) const;

  const DisaggregationConfig& config() const { return config_; }

 private:
  Result<DisaggregatedPlan> run_whole(const RouteRequest& request, std::string_view reason);
  Result<DisaggregatedPlan> plan_in_turn(const RouteRequest& request, const Selection& prefill);
  Result<DisaggregatedPlan> plan_pair(const RouteRequest& request);
  RouteRequest decode_request(const RouteRequest& request) const;
  PrefillPeek peek(const RouteRequest& request, const Selection& decode, const Selection& prefill);

  const DisaggregationConfig config_;
  Router& prefill_;
  Router& decode_;
};

/// What workers of one kind of hand-off have in common, as a taint.
std::string handoff_taint(std::string_view kind);
/// That of a worker with these taints; empty = it has none.
std::string_view find_handoff_taint(std::span<const std::string> taints);
/// Of workers that compute prompt and answer, where some of a model's do not.
inline constexpr std::string_view kRunsWholeTaint = "stator.runs_whole";

/// "dynamo.topology/<domain>=<value>" of a worker with these taints; empty = it has none.
std::string_view find_topology_taint(std::span<const std::string> taints, std::string_view domain);

/// A number that both workers are given to find each other by: 0 … 2^63 − 1, equal to the rank
/// modulo the number of ranks, which is how engines find the rank of a transfer.
uint64_t make_bootstrap_room(Random& random, uint32_t dp_rank, uint32_t dp_size);

}  // namespace stator::router
