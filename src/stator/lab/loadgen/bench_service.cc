// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/bench_service.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "stator/lab/loadgen/saturation.h"
#include "stator/lab/loadgen/target.h"
#include "stator/net/http_client.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::loadgen {
namespace {

constexpr uint64_t kSeedsPerRun = 1'000'003;  // repetitions must not meet their own cached prompts

Result<std::vector<std::pair<std::string, std::string>>> parse_header(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> headers;
  if (text.empty()) {
    return headers;
  }
  const size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0) {
    return Error(Code::kInvalidArgument, "--header takes 'Name: value', and this has no colon");
  }
  const size_t value = text.find_first_not_of(' ', colon + 1);
  headers.emplace_back(text.substr(0, colon), value == std::string::npos ? "" : text.substr(value));
  return headers;
}

Result<std::string> only_model(const BenchConfig& config, const Target& target) {
  std::string url = config.url;
  while (url.ends_with('/')) {
    url.pop_back();
  }
  net::HttpClientRequest request{.url = url + (target.base_path.ends_with("/v1") ? "" : "/v1") +
                                        "/models"};
  STATOR_TRY(request.headers, parse_header(config.header));
  if (!config.api_key.empty()) {
    request.headers.emplace_back("Authorization", "Bearer " + config.api_key);
  }
  STATOR_TRY(const auto response,
             net::http_request(request, {.timeout = std::chrono::seconds(30),
                                         .tls_ca_path = config.tls_ca,
                                         .tls_insecure = config.tls_insecure}),
             "asking the server for its model");
  if (response.status != 200) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} answers HTTP {}: choose a model with --model, or mend --url",
                             request.url, response.status));
  }
  simdjson::dom::parser parser;
  simdjson::dom::array models;
  std::string_view id;
  if (parser.parse(response.body)["data"].get(models) != 0 || models.size() != 1 ||
      models.at(0)["id"].get(id) != 0) {
    return Error(Code::kInvalidArgument, fmt::format("{} does not name exactly one model: choose "
                                                     "with --model",
                                                     request.url));
  }
  return std::string(id);
}

/// What stays the same over all runs of a report.
class Bench {
 public:
  static Result<Bench> create(const BenchConfig& config) {
    Bench bench;
    bench.config_ = &config;
    STATOR_TRY(bench.plan_, make_plan(config));
    STATOR_TRY(bench.target_, parse_target(config.url));
    STATOR_CHECK(check_descriptors(bench.plan_.connections));
    STATOR_TRY(bench.address_, resolve(bench.target_));
    if (bench.target_.tls) {
      STATOR_TRY(bench.tls_, detail::TlsSettings::create(bench.target_.host, config.tls_ca,
                                                         config.tls_insecure));
    }
    bench.model_ = config.model;
    if (bench.model_.empty()) {
      STATOR_TRY(bench.model_, only_model(config, bench.target_));
    }
    if (!config.tokenizer.empty()) {
      STATOR_TRY(const auto tokenizer, tokenizer::Tokenizer::load(config.tokenizer), "--tokenizer");
      STATOR_TRY(bench.text_, PromptText::create(*tokenizer));
    }
    return bench;
  }

  const BenchPlan& plan() const { return plan_; }
  const std::string& model() const { return model_; }

  /// `number` counts from 0; `rate` replaces the configured one if above 0.
  Result<RunResult> run(uint64_t number, double rate, const Clock& clock, const OnTick& on_tick) {
    STATOR_TRY(const auto workload, make_workload(config_->seed + number * kSeedsPerRun));
    STATOR_TRY(const RequestOptions options, request_options());
    STATOR_TRY(const RequestBuilder builder, RequestBuilder::create(options, *workload));
    return run_load(run_plan(number, rate > 0 ? rate : config_->rate), *workload, builder, clock,
                    on_tick);
  }

 private:
  Result<std::unique_ptr<Workload>> make_workload(uint64_t seed) const {
    const BenchConfig& c = *config_;
    if (!c.bodies.empty()) {
      return load_bodies({.path = c.bodies, .model = model_, .stream = !c.no_stream});
    }
    if (!c.trace.empty()) {
      return load_trace({.path = c.trace,
                         .block_tokens = c.trace_block_tokens,
                         .speed = c.trace_speed,
                         .rows_max = c.trace_rows_max,
                         .seed = seed},
                        text_);
    }
    return make_synthetic_workload({.input_tokens = c.input_tokens,
                                    .input_tokens_std = c.input_tokens_std,
                                    .output_tokens = c.output_tokens,
                                    .output_tokens_std = c.output_tokens_std,
                                    .prefix_tokens = c.prefix_tokens,
                                    .prefix_groups = c.prefix_groups,
                                    .turns = c.turns,
                                    .turns_std = c.turns_std,
                                    .turn_delay = c.turn_delay,
                                    .distinct = c.distinct_prompts,
                                    .seed = seed},
                                   text_);
  }

  Result<RequestOptions> request_options() const {
    const BenchConfig& c = *config_;
    RequestOptions options;
    const bool is_chat = c.endpoint_type == "chat";
    options.endpoint = is_chat ? Endpoint::kChat : Endpoint::kCompletions;
    options.model = model_;
    options.stream = !c.no_stream;
    options.include_usage = !c.no_usage;
    options.ignore_eos = c.ignore_eos;
    options.extra_body = c.extra_body;
    options.host = target_.host_header;
    options.path = c.endpoint.empty()
                       ? request_path(target_, is_chat ? "/v1/chat/completions" : "/v1/completions")
                       : target_.base_path + c.endpoint;
    options.api_key = c.api_key;
    STATOR_TRY(options.headers, parse_header(c.header));
    return options;
  }

  RunPlan run_plan(uint64_t number, double rate) const {
    const BenchConfig& c = *config_;
    RunPlan plan;
    plan.threads = c.threads;
    plan.address = address_;
    plan.tls = tls_.get();
    plan.measure = {.warm_up = plan_.warm_up,
                    .goals = plan_.goals,
                    .from_schedule = plan_.mode != LoadMode::kClosed};
    LoopOptions& loop = plan.loop;
    loop.request_timeout = c.request_timeout;
    loop.drain_timeout = c.drain_timeout;
    loop.cancel_share = c.cancel_percent / 100;
    loop.cancel_after = c.cancel_after;
    loop.records_max = c.records_max;
    loop.failures_in_row_max = c.failures_max;
    loop.reuse_connections = !c.no_keep_alive;
    loop.seed = c.seed + number;
    loop.dispatch = {.mode = plan_.mode,
                     .concurrency = plan_.connections,
                     .ramp = c.ramp,
                     .arrivals = {.pattern = plan_.pattern,
                                  .rate_per_s = rate,
                                  .burstiness = c.burstiness,
                                  .ramp = c.ramp,
                                  .seed = c.seed + number},
                     .requests_max = plan_.requests,
                     .duration = c.duration,
                     .in_flight_max = plan_.connections,
                     .backlog_max = c.backlog_max};
    return plan;
  }

  const BenchConfig* config_ = nullptr;
  BenchPlan plan_;
  Target target_;
  Address address_;
  std::unique_ptr<detail::TlsSettings> tls_;
  std::string model_;
  PromptText text_;
};

/// What a report says of --header. A value is a secret unless its name says that it is none.
std::string shown_header(const std::string& header) {
  static constexpr std::array<std::string_view, 7> kHarmless = {
      "accept",       "accept-encoding", "accept-language", "cache-control",
      "content-type", "user-agent",      "x-request-id"};
  const size_t colon = header.find(':');
  if (colon == std::string::npos) {
    return header.empty() ? "" : "***";
  }
  std::string name = header.substr(0, colon);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::find(kHarmless, name) != kHarmless.end() ? header
                                                               : header.substr(0, colon) + ": ***";
}

/// There are no figures: nothing was answered, or nothing after the warm-up.
Error nothing_answered(const RunResult& run) {
  if (run.figures.errors.empty() && run.figures.warm_up_requests > 0) {
    return {Code::kInvalidArgument,
            fmt::format("all {} requests were part of the warm-up: send more of them, or leave out "
                        "fewer with --warmup and --warmup-requests",
                        run.figures.warm_up_requests)};
  }
  std::string first = "no failure was recorded";
  uint64_t most = 0;
  for (const auto& [text, count] : run.figures.errors) {
    if (count > most) {
      most = count;
      first = text;
    }
  }
  return {Code::kUnavailable, "no request was answered: " + first};
}

Status run_sweep(Bench& bench, const BenchConfig& config, const Clock& clock,
                 const OnBenchTick& on_tick, Report& report) {
  report.is_sweep = true;
  SaturationSearch search(
      {.first_rate = config.rate > 0 ? config.rate : 1, .rate_max = config.sweep_rate_max});
  const std::vector<double>& rates = bench.plan().rates;
  for (size_t step = 0;; ++step) {
    const auto rate = bench.plan().find_saturation ? search.next_rate()
                      : step < rates.size()        ? std::optional(rates[step])
                                                   : std::nullopt;
    if (!rate) {
      return {};
    }
    const BenchProgress progress{.run = step + 1, .runs = rates.size(), .rate = *rate};
    STATOR_TRY(RunResult run, bench.run(step, *rate, clock, [&](const LiveView& view) {
      return on_tick(progress, view);
    }));
    const bool sustained = is_sustained(run);
    search.add(*rate, sustained);
    report.saturation_per_s = search.sustained();
    const bool interrupted = run.interrupted;
    if (step == 0 && run.figures.value("request_count") == 0 && !interrupted) {
      return nothing_answered(run);
    }
    report.runs.push_back(std::move(run));
    if (interrupted) {
      return {};
    }
  }
}

Status run_repeatedly(Bench& bench, const BenchConfig& config, const Clock& clock,
                      const OnBenchTick& on_tick, Report& report) {
  for (uint32_t i = 0; i < config.runs; ++i) {
    const BenchProgress progress{.run = i + 1, .runs = config.runs};
    STATOR_TRY(RunResult run, bench.run(i, 0, clock, [&](const LiveView& view) {
      return on_tick(progress, view);
    }));
    const bool interrupted = run.interrupted;
    if (run.figures.value("request_count") == 0 && !interrupted) {
      return nothing_answered(run);
    }
    report.runs.push_back(std::move(run));
    if (interrupted) {
      return {};
    }
  }
  return {};
}

}  // namespace

Result<Report> run_bench(const BenchConfig& config, const Clock& clock,
                         const OnBenchTick& on_tick) {
  STATOR_TRY(Bench bench, Bench::create(config));
  Report report;
  BenchConfig shown = config;
  shown.model = bench.model();
  shown.header = shown_header(config.header);
  ConfigSchema schema;
  describe(schema, shown);
  for (const ConfigField& field : schema.fields()) {
    report.settings.emplace_back(field.key, field.get());
  }
  report.allowed_client_bound = config.allow_client_bound;
  report.asked_for_streams = !config.no_stream && config.bodies.empty();
  report.started = clock.wall_now();
  if (config.sweep.empty()) {
    STATOR_CHECK(run_repeatedly(bench, config, clock, on_tick, report));
  } else {
    STATOR_CHECK(run_sweep(bench, config, clock, on_tick, report));
  }
  report.ended = clock.wall_now();
  return report;
}

}  // namespace stator::loadgen
