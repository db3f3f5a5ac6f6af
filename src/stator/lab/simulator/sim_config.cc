// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/sim_config.h"

#include <limits>

#include "stator/engine/sim/sim_core.h"
#include "stator/lab/simulator/trace_format.h"
#include "stator/lab/simulator/workload_generator.h"

namespace stator::simulator {
namespace {

constexpr uint32_t kTokensMax = 1 << 30;
constexpr uint32_t kWorkersMax = 1'000'000;

void describe_trace(ConfigSchema& schema, SimConfig& c) {
  schema.choice("trace.format", c.trace_format, trace_format_names(), "how to read the trace");
  schema.integer("trace.block_size", c.trace_block_tokens, 0, 1 << 20,
                 "tokens per hash id of the trace, 0 = the format's (512)");
  schema.boolean("trace.sort", c.sort, "read the whole trace and sort it by time first",
                 {.flag = "sort"});
  schema.integer("trace.limit", c.limit, 0, int64_t{1} << 40,
                 "only so many requests from its beginning, 0 = all", {.flag = "limit"});
  schema.number("trace.arrival_speedup", c.arrival_speedup, 1e-9, 1e9,
                "the trace's times are divided by it", {.flag = "arrival-speedup"});
  schema.integer("trace.concurrency", c.concurrency, 0, 100'000'000,
                 "closed loop: so many requests at once, times ignored; 0 = open loop",
                 {.flag = "concurrency"});
}

void describe_fleet(ConfigSchema& schema, SimConfig& c) {
  schema.integer("fleet.workers", c.workers, 1, kWorkersMax, "number of workers",
                 {.flag = "workers"});
  schema.integer("fleet.prefill_workers", c.prefill_workers, 0, kWorkersMax,
                 "further ones that compute the prompts, 0 = no split",
                 {.flag = "prefill-workers"});
  schema.integer(
      "fleet.router_replicas", c.router_replicas, 1, 256,
      "routers that take turns with the requests and publish to each other what they booked, "
      "every --router-replica-sync-interval",
      {.flag = "router-replicas"});
  schema.integer("fleet.gpus_per_worker", c.gpus_per_worker, 1, 1 << 20, "for GPU hours",
                 {.flag = "gpus-per-worker"});
  schema.number("fleet.link_gb_per_s", c.link_gb_per_s, 1e-6, 1e9,
                "bandwidth of the hand-over of prompts, see --sim-kv-bytes-per-token",
                {.flag = "link-gb-per-s"});
  schema.boolean("fleet.shared_links", c.shared_links,
                 "hand-overs at once share the bandwidth of their two workers; the decode worker "
                 "is chosen before instead of after",
                 {.flag = "shared-links"});
  schema.duration("fleet.startup_time", c.startup_time,
                  "until a worker that is added or restarted takes requests",
                  {.flag = "startup-time"});
  schema.text("fleet.scale_at", c.scale_at, "number of workers from a time on: 60s=4,120s=8",
              {.flag = "scale-at"});
  schema.text("fleet.scale_prefill_at", c.scale_prefill_at, "the same of prefill workers",
              {.flag = "scale-prefill-at"});
}

void describe_planner(ConfigSchema& schema, SimConfig& c) {
  LoadPlannerConfig& load = c.load_planner;
  schema.choice("planner.kind", c.planner, {"none", "load"},
                "who changes the number of workers: nobody, or a planner that follows load",
                {.flag = "planner"});
  schema.duration("planner.interval", load.interval, "between two of its decisions",
                  {.flag = "planner-interval"});
  schema.number("planner.requests_per_worker", load.requests_per_worker, 0.001, 1e9,
                "it aims at, queued ones included", {.flag = "planner-requests-per-worker"});
  schema.number("planner.requests_per_prefill_worker", load.requests_per_prefill_worker, 0.001, 1e9,
                "the same of prefill workers", {.flag = "planner-requests-per-prefill-worker"});
  schema.number("planner.kv_use", load.kv_use, 0.001, 1,
                "part of the KV blocks in use that it aims at", {.flag = "planner-kv-use"});
  schema.duration("planner.down_after", load.down_after,
                  "it shrinks to the most workers it wanted in so long",
                  {.flag = "planner-down-after"});
  schema.integer("planner.workers_min", load.workers_min, 1, kWorkersMax, "of each pool",
                 {.flag = "planner-workers-min"});
  schema.integer("planner.workers_max", load.workers_max, 1, kWorkersMax, "of each pool",
                 {.flag = "planner-workers-max"});
}

void describe_faults(ConfigSchema& schema, SimConfig& c) {
  schema.text("faults.fail_at", c.fail_at,
              "workers, from 0, that die at a time: 60s=3,90s=0; prefill workers come first",
              {.flag = "fail-at"});
  schema.duration("faults.time_between_failures", c.time_between_failures,
                  "of one worker, on average, at random; 0 = none",
                  {.flag = "time-between-failures"});
  schema.duration("faults.restart_after", c.restart_after,
                  "until a dead worker starts again, 0 = never", {.flag = "restart-after"});
  schema.integer("faults.migration_limit", c.migration_limit, 0, 1'000'000,
                 "workers a request may lose and still go on at another one",
                 {.flag = "migration-limit"});
}

void describe_workload(ConfigSchema& schema, SimConfig& c) {
  schema.integer("workload.requests", c.requests, 0, int64_t{1} << 40,
                 "requests to make up when there is no TRACE", {.flag = "requests"});
  schema.choice("workload.arrivals", c.arrivals, arrival_names(), "how sessions come",
                {.flag = "arrivals"});
  schema.number("workload.rate", c.rate, 1e-9, 1e9, "sessions per second", {.flag = "rate"});
  schema.number("workload.burstiness", c.burstiness, 0.001, 1000,
                "shape of gamma arrivals: 1 = poisson, smaller = burstier", {.flag = "burstiness"});
  schema.integer("workload.burst", c.burst, 1, 1 << 20, "sessions at once, of bursts",
                 {.flag = "burst"});
  schema.duration("workload.period", c.period, "of diurnal arrivals", {.flag = "period"});
  schema.number("workload.swing", c.swing, 0, 1, "of diurnal arrivals: rate · (1 ± swing)",
                {.flag = "swing"});
  schema.number("workload.input_tokens", c.input_tokens, 1, 1e8, "new prompt tokens per turn, mean",
                {.flag = "input-tokens"});
  schema.number("workload.input_tokens_std", c.input_tokens_std, 0, 1e8, "their deviation",
                {.flag = "input-tokens-std"});
  schema.choice("workload.input_distribution", c.input_distribution, length_names(),
                "their distribution", {.flag = "input-distribution"});
  schema.number("workload.output_tokens", c.output_tokens, 1, 1e8, "answer tokens per turn, mean",
                {.flag = "output-tokens"});
  schema.number("workload.output_tokens_std", c.output_tokens_std, 0, 1e8, "their deviation",
                {.flag = "output-tokens-std"});
  schema.choice("workload.output_distribution", c.output_distribution, length_names(),
                "their distribution", {.flag = "output-distribution"});
  schema.text("workload.lengths_from", c.lengths_from,
              "trace (any format) to draw pairs of lengths from instead", {.flag = "lengths-from"});
  schema.integer("workload.prefix_tokens", c.prefix_tokens, 0, 1 << 24,
                 "in front of a session, shared by its group", {.flag = "prefix-tokens"});
  schema.integer("workload.prefix_groups", c.prefix_groups, 1, 1 << 20, "different prefixes",
                 {.flag = "prefix-groups"});
  schema.number("workload.prefix_skew", c.prefix_skew, 0, 10,
                "Zipf exponent of their popularity, 0 = all alike", {.flag = "prefix-skew"});
  schema.integer("workload.turns", c.turns, 1, 1 << 16, "of a session, each with all before",
                 {.flag = "turns"});
  schema.number("workload.pause_ms", c.pause_ms, 0, 1e9,
                "before a further turn (a reader, a tool), mean", {.flag = "pause-ms"});
  schema.number("workload.pause_ms_std", c.pause_ms_std, 0, 1e9, "its deviation",
                {.flag = "pause-ms-std"});
  schema.choice("workload.pause_distribution", c.pause_distribution, length_names(),
                "its distribution", {.flag = "pause-distribution"});
  schema.integer("workload.fan_out", c.fan_out, 0, 1 << 10,
                 "agents: sub-agents that a session's first request sends off, 0 = none",
                 {.flag = "fan-out"});
}

void describe_engine(ConfigSchema& schema, SimConfig& c) {
  schema.integer("engine.block_size", c.block_size, 1, 1 << 20, "tokens per KV block",
                 {.flag = "block-size"});
  schema.integer("engine.kv_blocks", c.blocks, 1, kTokensMax, "KV blocks per worker",
                 {.flag = "kv-blocks", .flag_peer = "blocks"});
  schema.integer("engine.host_blocks", c.host_blocks, 0, kTokensMax,
                 "KV blocks per worker in host memory, for those evicted from the device",
                 {.flag = "host-blocks"});
  schema.integer("engine.dp_size", c.dp_size, 1, engine::kSimRanksMax,
                 "data-parallel attention ranks per worker, each with a scheduler and KV blocks of "
                 "its own; their passes last as long as the slowest one's",
                 {.flag = "dp-size"});
  schema.integer("engine.max_num_seqs", c.max_num_seqs, 1, 1 << 20, "running requests per worker",
                 {.flag = "max-num-seqs"});
  schema.integer("engine.max_num_batched_tokens", c.max_num_batched_tokens, 1, kTokensMax,
                 "tokens per pass", {.flag = "max-num-batched-tokens"});
  schema.integer("engine.max_model_len", c.max_model_len, 0, kTokensMax,
                 "longer prompts are rejected, 0 = no limit", {.flag = "max-model-len"});
  schema.boolean("engine.prefix_caching", c.prefix_caching, "reuse KV blocks of equal prefixes");
  schema.boolean("engine.chunked_prefill", c.chunked_prefill,
                 "a prompt may be computed in several passes");
  schema.boolean("engine.preempt_oldest", c.preempt_oldest,
                 "when blocks run out, instead of the newest", {.flag = "preempt-oldest"});
  engine::describe(schema, c.sim, engine::SimFlags::kShortToo);
}

void describe_run(ConfigSchema& schema, SimConfig& c) {
  schema.number("goals.ttft_ms", c.goal_ttft_ms, 0, 1e12,
                "goodput counts requests with at most this first-token time, 0 = any",
                {.flag = "goal-ttft-ms"});
  schema.number("goals.tpot_ms", c.goal_tpot_ms, 0, 1e12, "… mean time per further token",
                {.flag = "goal-tpot-ms"});
  schema.number("goals.e2e_ms", c.goal_e2e_ms, 0, 1e12, "… time to the last token",
                {.flag = "goal-e2e-ms"});
  schema.integer("run.seed", c.seed, 0, std::numeric_limits<int64_t>::max(), "of random choices",
                 {.flag = "seed"});
  schema.boolean("run.naive", c.naive,
                 "simulate pass by pass and block by block; slow, the same result",
                 {.flag = "naive"});
  schema.boolean("run.by_token", c.by_token,
                 "simulate with the scheduler of live engines, token by token; slow",
                 {.flag = "by-token"});
  schema.text("report.json", c.report_json, "FILE for the report", {.flag = "report-json"});
  schema.text("report.html", c.report_html, "FILE for a page with plots", {.flag = "report-html"});
  schema.text("report.emit_trace", c.emit_trace,
              "FILE for the requests as a Mooncake trace, instead of simulating them",
              {.flag = "emit-trace"});
  schema.text("report.sweep_file", c.sweep_file,
              "FILE that collects the points of a sweep; those in it are not simulated again",
              {.flag = "sweep-file"});
  schema.text("report.sweep_csv", c.sweep_csv, "FILE for a table of all figures of a sweep",
              {.flag = "sweep-csv"});
  schema.text("sweep.halving", c.sweep_halving,
              "FIGURE of a sweep's table: all points see the first requests only, and the better "
              "third goes on with three times as many, until the last have seen all",
              {.flag = "sweep-halving"});
  schema.integer("sweep.first_requests", c.sweep_first_requests, 1, int64_t{1} << 40,
                 "that all points see, with --sweep-halving", {.flag = "sweep-first-requests"});
  schema.integer("run.threads", c.threads, 0, 1024, "of a sweep, 0 = one per core",
                 {.flag = "threads"});
  schema.text("report.per_request_jsonl", c.per_request_jsonl, "FILE for one line per request",
              {.flag = "per-request-jsonl"});
}

}  // namespace

void describe(ConfigSchema& schema, SimConfig& config) {
  describe_trace(schema, config);
  describe_workload(schema, config);
  describe_fleet(schema, config);
  describe_planner(schema, config);
  describe_engine(schema, config);
  describe_faults(schema, config);
  describe_run(schema, config);
}

}  // namespace stator::simulator
