// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "stator/app/cluster_client.h"
#include "stator/app/option_number.h"
#include "stator/app/planner_file.h"
#include "stator/app/planner_process.h"

namespace stator::app {
namespace {}  // namespace

Result<planner::PlannerConfig> read_planner_config(const Invocation& invocation,
                                                   const EngineLimits& limits,
                                                   planner::PlannerConfig c) {
  const std::string file = option_of(invocation, "--planner-config", "");
  if (!file.empty()) {
    STATOR_CHECK(read_planner_file(file, c));
  }
  const std::string policy = option_of(invocation, "--policy", "");
  if (!policy.empty()) {
    STATOR_CHECK(planner::parse_policy(policy, c), "--policy");
  }
  const std::string target = option_of(invocation, "--optimization-target", "");
  if (!target.empty()) {
    STATOR_TRY(c.target, planner::find_target(target), "--optimization-target");
  }
  STATOR_CHECK(read_number(invocation, "--start-up", 0.0, 86'400.0, c.start_up_s));
  STATOR_CHECK(read_number(invocation, "--ttft", 1e-3, 1e9, c.ttft_ms));
  STATOR_CHECK(read_number(invocation, "--itl", 1e-3, 1e9, c.itl_ms));
  STATOR_CHECK(read_number(invocation, "--quantile", 0.5, 0.9999, c.quantile));
  STATOR_CHECK(read_number<uint32_t>(invocation, "--min-workers", 0, 4096, c.min_workers));
  STATOR_CHECK(read_number<uint32_t>(invocation, "--max-workers", 1, 4096, c.max_workers));
  STATOR_CHECK(read_number<uint32_t>(invocation, "--gpus-per-worker", 1, 1024, c.gpus_per_worker));
  STATOR_CHECK(
      read_number<int32_t>(invocation, "--max-gpu-budget", -1, 1'000'000, c.max_gpu_budget));
  STATOR_CHECK(read_number(invocation, "--power-limit", -1.0, 1e12, c.power.limit_watts));
  STATOR_CHECK(read_number(invocation, "--worker-watts", 0.0, 1e9, c.power.decode_watts));
  STATOR_CHECK(read_number(invocation, "--prefill-watts", 0.0, 1e9, c.power.prefill_watts));
  STATOR_CHECK(
      read_number<int32_t>(invocation, "--min-gpu-budget", -1, 1'000'000, c.min_gpu_budget));
  STATOR_CHECK(
      read_number(invocation, "--throughput-interval", 1.0, 86'400.0, c.throughput_interval_s));
  STATOR_CHECK(read_number(invocation, "--load-interval", 0.1, 86'400.0, c.load_interval_s));
  STATOR_CHECK(read_number(invocation, "--mpc-interval", 0.1, 86'400.0, c.mpc_interval_s));
  STATOR_CHECK(read_number(invocation, "--idle-before-zero", 0.0, 1e9, c.idle_before_zero_s));
  STATOR_CHECK(read_number(invocation, "--down-hold", 0.0, 1e9, c.down_hold_min_s));
  STATOR_CHECK(read_number(invocation, "--miss-price", 0.0, 1e9, c.miss_price));
  STATOR_CHECK(read_number(invocation, "--spend-limit", 0.0, 10.0, c.spend_limit));
  STATOR_CHECK(read_number<uint64_t>(invocation, "--seed", 0, UINT64_MAX, c.seed));
  const std::string predictor = option_of(invocation, "--predictor", "");
  if (!predictor.empty()) {
    STATOR_CHECK(planner::choose_predictor(predictor, c.predictor), "--predictor");
  }
  STATOR_CHECK(
      read_number<uint32_t>(invocation, "--prefill-gpus", 1, 1024, c.prefill_gpus_per_worker));
  c.max_num_batched_tokens = limits.max_num_batched_tokens;
  c.max_num_seqs = limits.max_num_seqs;
  c.max_kv_tokens = limits.max_kv_tokens;
  STATOR_CHECK(planner::validate(c));
  return c;
}

namespace {

std::vector<CommandOption> policy_options() {
  return {
      {"--dry-run", "request trace, as of stator sim: decide on a simulated fleet"},
      {"--replay", "make the decisions of a journal again, with the same options"},
      {"--global", "keep the pools of --pool within one budget, for planners that ask", true},
      {"--policy", "mpc, throughput, load, reference or static:N [mpc]"},
      {"--planner-config", "YAML or JSON with the keys of Dynamo's planner; options go before it"},
      {"--optimization-target", "of policy load: sla, throughput, latency or load [sla]"},
      {"--compare", "--dry-run: further policies, joined by commas"},
      {"--start-up", "seconds until a new worker takes requests [60]"},
      {"--ttft", "goal for the time to the first token, ms [500]"},
      {"--itl", "goal for the mean time per further token, ms [50]"},
      {"--quantile", "of requests that are to meet both [0.95]"},
      {"--workers", "at the beginning [what there is; --dry-run: what the first minute needs]"},
      {"--min-workers", "at least [1]"},
      {"--max-workers", "at most [64]"},
      {"--gpus-per-worker", "[1]"},
      {"--max-gpu-budget", "-1: none [-1]"},
      {"--min-gpu-budget", "-1: none [-1]"},
      {"--power-limit", "watts of all workers together, -1: none [-1]"},
      {"--worker-watts", "--power-limit: of a worker, or of one that decodes"},
      {"--prefill-watts", "--power-limit: of a worker that computes prompts"},
      {"--predictor",
       "of throughput and reference: constant, kalman, arima, seasonal, or auto: what would have "
       "lost least on --warmup-trace [arima]"},
      {"--warmup-trace", "requests of the past, for forecasts: file, folder or pattern"},
      {"--throughput-interval", "seconds [180]"},
      {"--load-interval", "seconds [5]"},
      {"--mpc-interval", "seconds [10]"},
      {"--idle-before-zero", "with --min-workers 0: seconds without requests [300]"},
      {"--down-hold", "mpc: a smaller fleet must have sufficed for so many seconds [120]"},
      {"--miss-price", "mpc: a missed request costs as much as so many served ones [300]"},
      {"--spend-limit",
       "mpc: of the GPU time that the reference's rules would take, 0: no limit [0.97]"},
      {"--arrival-speedup", "--dry-run: divides the trace's times [1]"},
      {"--timing", "step model of the engines, as --sim-timing [polynomial]"},
      {"--block-size", "tokens per KV block [64]"},
      {"--kv-blocks", "per worker [16384]"},
      {"--seed", "of sampled paths [42]"},
      {"--report-json", "--dry-run: file, - = standard output"},
      {"--report-html", "--dry-run: file"},
      {"--journal", "file for inputs and decisions, one JSON line per tick"},
      {"--report-dir", "live: folder for a page and the ticks of each interval [none]"},
      {"--report-interval", "live: hours that one report is of [24]"},
      {"--json", "--dry-run: print the report as JSON", true}};
}

/// What a running planner sees, how it acts, where it is reached.
std::vector<CommandOption> live_options() {
  return {
      {"--frontend", "URLs of frontends, joined by commas: their /metrics are read"},
      {"--prometheus", "URL of a Prometheus that scrapes the frontends, instead"},
      {"--prometheus-token", "bearer token for it"},
      {"--prometheus-token-file", "the same from a file that is read before each query"},
      {"--prometheus-ca", "PEM file with its authority"},
      {"--prometheus-insecure", "accept any certificate", true},
      {"--prometheus-query-params", "added to each query: tenant=a&dedup=true"},
      {"--passes", "read forward passes of engines from the broker of --events", true},
      {"--metrics-prefix", "of the frontends' metrics [dynamo_frontend]"},
      {"--metrics-source", "frontend or router: whose counts and lengths [frontend]"},
      {"--model", "count this model's requests only"},
      {"--dynamo-namespace", "namespace of metrics and of the connector's keys"},
      {"--learn", "correct the step model by what clients wait, where no passes come", true},
      {"--draft-tokens", "speculative tokens per pass [0]"},
      {"--connector", "none, virtual, process, kubernetes or global-planner [none]"},
      {"--advisory", "decide, explain and export, but change nothing", true},
      {"--folder", "virtual: folder for num_prefill, num_decode, decision_id, scaled_decision_id"},
      {"--etcd", "virtual: etcd://HOST:PORT for the same under v1/NAMESPACE/planner/"},
      {"--graph", "kubernetes, global-planner: name of the DynamoGraphDeployment"},
      {"--kube-namespace", "its namespace"},
      {"--kubeconfig", "file [in the cluster: the pod's own]"},
      {"--context", "of the kubeconfig"},
      {"--prefill-component", "name of the component [the one of type prefill]"},
      {"--decode-component", "the same [type decode or worker]"},
      {"--global-url", "global-planner: URL of a stator planner --global"},
      {"--host", "address to listen on [127.0.0.1]"},
      {"--port", "of /planner, /metrics and the page, 0 = any free one [9086]"},
      {"--pool",
       "--global: K8S_NAMESPACE/GRAPH=folder:DIR, =etcd:NAMESPACE or =kubernetes; "
       "may be given often",
       false, true},
      {"--prefill-gpus", "of a prefill worker [as of the others]"},
      {"--decode-gpus", "--global: of a decode worker [1]"},
      {"--managed-namespaces", "--global: who may ask, joined by commas [all]"},
      {"--max-total-gpus", "--global: -1: no limit, 0: none [-1]"},
      {"--min-total-gpus", "--global: [-1]"},
      {"--intent-cache-ttl", "--global: seconds for which a denied request is remembered [360]"},
      {"--no-operation", "--global: answer, but change nothing", true}};
}

}  // namespace

std::vector<CommandOption> planner_options() {
  std::vector<CommandOption> out = policy_options();
  const std::vector<CommandOption> live = live_options();
  out.insert(out.end(), live.begin(), live.end());
  return out;
}

std::vector<CommandOption> scaled_serve_options() {
  return {
      {"--planner", "scale the workers with the load: they become processes", true},
      {"--planner-config", "of --planner: YAML or JSON with the keys of Dynamo's planner"},
      {"--policy", "of --planner: mpc, throughput, load, reference or static:N [mpc]"},
      {"--ttft", "of --planner: goal for the time to the first token, ms [500]"},
      {"--itl", "of --planner: goal for the mean time per further token, ms [50]"},
      {"--min-workers", "of --planner: at least [1]"},
      {"--max-workers", "of --planner: at most [simulated engines: 16; else one per core]"},
      {"--start-up", "of --planner: seconds until a new worker takes requests [3]"},
      {"--mpc-interval", "of --planner: seconds [5]"},
      {"--load-interval", "of --planner: seconds [5]"},
      {"--down-hold", "of --planner: a smaller fleet must have sufficed for so many seconds [60]"},
      {"--advisory", "of --planner: decide, but change nothing", true},
      {"--journal", "of --planner: file for inputs and decisions"},
      {"--planner-port", "of --planner: port of /planner and its page [any free one]"}};
}

}  // namespace stator::app
