// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/bench_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace stator::loadgen {
namespace {

constexpr uint32_t kConnectionsMax = 1'000'000;
constexpr uint32_t kInFlightDefault = 16'000;  // fits most hard limits of open files and ports
constexpr uint32_t kTokensMax = 16'000'000;
constexpr uint64_t kDefaultRequests = 100;

void describe_server(ConfigSchema& schema, BenchConfig& c) {
  schema.text("url", c.url, "server to measure; /v1 is added if missing");
  schema.text("model", c.model, "model to ask, default: the only one served");
  schema.choice("endpoint_type", c.endpoint_type, {"chat", "completions"}, "what to ask");
  schema.text("endpoint", c.endpoint, "path of the requests, default: that of the type");
  schema.secret("api_key", c.api_key, "sent as a bearer token");
  schema.text("header", c.header, "one more header, 'Name: value'; reports keep its name alone");
  schema.text("extra_body", c.extra_body, "JSON object of further fields of each request");
  schema.boolean("no_stream", c.no_stream, "ask for whole answers instead of streams");
  schema.boolean("no_usage", c.no_usage, "do not ask a stream for its token counts");
  schema.boolean("ignore_eos", c.ignore_eos, "ask for answers of full length (ignore_eos)");
  schema.text("tls_ca", c.tls_ca, "PEM file to trust, default: the system's");
  schema.boolean("tls_insecure", c.tls_insecure, "accept any certificate");
}

void describe_load(ConfigSchema& schema, BenchConfig& c) {
  schema.integer("concurrency", c.concurrency, 0, kConnectionsMax,
                 "closed loop: so many users, each asks again when answered; default 1 without "
                 "--rate and --trace");
  schema.number("rate", c.rate, 0, 10'000'000, "open loop: sessions per second, 0 = closed loop");
  schema.choice("arrivals", c.arrivals, {"constant", "poisson", "gamma"},
                "how an open loop spaces them");
  schema.number("burstiness", c.burstiness, 0.001, 1000,
                "shape of gamma arrivals: 1 = poisson, smaller = burstier");
  schema.duration("ramp", c.ramp,
                  "the load grows evenly in this time (leave it out with --warmup)");
  schema.integer("requests", c.requests, 0, INT64_MAX,
                 "stop after so many, 0 = 100 or the whole trace, or no limit with --duration");
  schema.duration("duration", c.duration, "send nothing later than this, 0 = no limit");
  schema.integer("in_flight_max", c.in_flight_max, 0, kConnectionsMax,
                 "open loop and trace: most requests at once, 0 = 16000");
  schema.integer("backlog_max", c.backlog_max, 1, 100'000'000,
                 "most requests that wait because of --in-flight-max; beyond: failed");
  schema.number("cancel_percent", c.cancel_percent, 0, 100, "hang up on so many of the requests …");
  schema.duration("cancel_after", c.cancel_after, "… so long after they were sent");
  schema.duration("request_timeout", c.request_timeout, "longest answer");
  schema.duration("drain_timeout", c.drain_timeout,
                  "how long answers may take after --duration; then cut off and not counted");
  schema.boolean("no_keep_alive", c.no_keep_alive, "a new connection for each request");
  schema.integer("threads", c.threads, 1, 1024, "threads of the generator");
  schema.integer("seed", c.seed, 0, INT64_MAX, "of prompts, lengths and arrivals");
}

void describe_prompts(ConfigSchema& schema, BenchConfig& c) {
  schema.integer("input_tokens", c.input_tokens, 1, kTokensMax, "mean length of a prompt");
  schema.number("input_tokens_std", c.input_tokens_std, 0, kTokensMax, "standard deviation of it");
  schema.integer("output_tokens", c.output_tokens, 0, kTokensMax,
                 "mean length of an answer (max_tokens), 0 = the server decides");
  schema.number("output_tokens_std", c.output_tokens_std, 0, kTokensMax,
                "standard deviation of it");
  schema.integer("prefix_tokens", c.prefix_tokens, 0, kTokensMax,
                 "text in front of a session's first prompt that others share");
  schema.integer("prefix_groups", c.prefix_groups, 1, 100'000'000, "how many such texts there are");
  schema.integer("turns", c.turns, 1, 10'000, "mean requests of a session; each holds the history");
  schema.number("turns_std", c.turns_std, 0, 10'000, "standard deviation of it");
  schema.duration("turn_delay", c.turn_delay, "pause of a user before the next turn");
  schema.integer("distinct_prompts", c.distinct_prompts, 0, INT64_MAX,
                 "only so many different sessions, in turn; 0 = all differ");
  schema.text("tokenizer", c.tokenizer,
              "model folder or vocabulary file that counts prompt tokens, default: words");
  schema.text("trace", c.trace, "Mooncake JSON Lines to replay at its times");
  schema.integer("trace_block_tokens", c.trace_block_tokens, 1, 65'536, "tokens of a hash id");
  schema.number("trace_speed", c.trace_speed, 0.0001, 1'000'000, "divides the times of the trace");
  schema.integer("trace_rows_max", c.trace_rows_max, 1, 1'000'000'000, "longest trace");
  schema.text("bodies", c.bodies, "file with one request body per line, sent in turn");
}

void describe_report(ConfigSchema& schema, BenchConfig& c) {
  schema.text(
      "warmup", c.warmup,
      "'auto' leaves out what statistics call unsteady, a duration leaves out its requests");
  schema.integer("warmup_requests", c.warmup_requests, 0, INT64_MAX,
                 "leave out the first ones sent");
  schema.text("goodput", c.goodput,
              "limits in ms a good request keeps: 'ttft:200 itl:20 e2e:5000'");
  schema.integer("runs", c.runs, 1, 1000, "repeat, and report means with confidence intervals");
  schema.text("sweep", c.sweep,
              "'search' finds the highest rate sustained, starting at --rate; or rates: 1,2,4");
  schema.number("sweep_rate_max", c.sweep_rate_max, 0.001, 10'000'000, "highest rate of a search");
  schema.integer("records_max", c.records_max, 1, 1'000'000'000,
                 "end a run at so many requests (72 bytes each)");
  schema.integer("failures_max", c.failures_max, 0, INT64_MAX,
                 "end a run after so many failures in a row, 0 = never");
  schema.boolean(
      "allow_client_bound", c.allow_client_bound,
      "no failure although the generator was the bottleneck; the figures are marked as such");
  schema.text("json", c.json, "file for the report as JSON (AIPerf's names), - = standard output");
  schema.text("csv", c.csv, "file for the report as CSV");
  schema.text("html", c.html, "file for the report as a page with plots");
}

Status parse_sweep(const BenchConfig& config, BenchPlan& plan) {
  if (config.sweep.empty()) {
    return {};
  }
  if (config.duration <= Duration{} || plan.mode == LoadMode::kTrace || config.concurrency > 0) {
    return Error(Code::kInvalidArgument,
                 "--sweep steps through rates of an open loop: give --duration (of each step), and "
                 "neither --trace nor --concurrency");
  }
  plan.mode = LoadMode::kOpen;
  if (config.sweep == "search") {
    plan.find_saturation = true;
    return {};
  }
  for (std::string_view rest = config.sweep; !rest.empty();) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    double rate = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), rate);
    if (read.ec != std::errc() || read.ptr != part.data() + part.size() || !(rate > 0)) {
      return Error(Code::kInvalidArgument,
                   fmt::format("--sweep takes 'search' or rates such as 1,2,4, not '{}'", part));
    }
    plan.rates.push_back(rate);
  }
  return {};
}

Status parse_warm_up(const BenchConfig& config, BenchPlan& plan) {
  plan.warm_up.requests = config.warmup_requests;
  if (config.warmup == "auto") {
    plan.warm_up.automatic = true;
  } else if (!config.warmup.empty()) {
    STATOR_TRY(plan.warm_up.duration, parse_duration(config.warmup), "--warmup");
  }
  if (config.duration > Duration{} && plan.warm_up.duration >= config.duration) {
    return Error(Code::kInvalidArgument,
                 "--warmup is not shorter than --duration: nothing would be measured");
  }
  return {};
}

}  // namespace

void describe(ConfigSchema& schema, BenchConfig& config) {
  describe_server(schema, config);
  describe_load(schema, config);
  describe_prompts(schema, config);
  describe_report(schema, config);
}

Result<BenchPlan> make_plan(const BenchConfig& config) {
  BenchPlan plan;
  const int given = (config.concurrency > 0) + (config.rate > 0);
  if (given == 2) {
    return Error(Code::kInvalidArgument,
                 "--concurrency (closed loop) and --rate (open loop) exclude each other; with "
                 "--rate, --in-flight-max limits what is in flight");
  }
  if (!config.trace.empty() && !config.bodies.empty()) {
    return Error(Code::kInvalidArgument, "--trace and --bodies exclude each other");
  }
  if (!config.trace.empty() && config.rate > 0) {
    return Error(Code::kInvalidArgument,
                 "--trace brings its own times: use --trace-speed instead of --rate");
  }
  plan.mode = config.rate > 0                                    ? LoadMode::kOpen
              : !config.trace.empty() && config.concurrency == 0 ? LoadMode::kTrace
                                                                 : LoadMode::kClosed;
  plan.pattern = config.arrivals == "constant" ? ArrivalPattern::kConstant
                 : config.arrivals == "gamma"  ? ArrivalPattern::kGamma
                                               : ArrivalPattern::kPoisson;
  STATOR_CHECK(parse_sweep(config, plan));
  STATOR_CHECK(parse_warm_up(config, plan));
  STATOR_TRY(plan.goals, parse_goals(config.goodput));
  if (config.cancel_percent > 0 && config.cancel_after <= Duration{}) {
    return Error(Code::kInvalidArgument, "--cancel-percent needs --cancel-after");
  }
  plan.requests = config.requests;
  if (plan.requests == 0 && config.duration == Duration{} && config.trace.empty()) {
    plan.requests = kDefaultRequests;
  }
  plan.connections = plan.mode == LoadMode::kClosed ? std::max(1U, config.concurrency)
                     : config.in_flight_max > 0     ? config.in_flight_max
                                                    : kInFlightDefault;
  if (plan.mode == LoadMode::kClosed && plan.connections < config.threads) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--threads {} is more than --concurrency {}: some would have no user",
                             config.threads, plan.connections));
  }
  return plan;
}

}  // namespace stator::loadgen
