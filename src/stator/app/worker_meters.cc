// SPDX-License-Identifier: Apache-2.0
#include "stator/app/worker_meters.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/app/version.h"
#include "stator/app/worker_host.h"
#include "stator/engine/core/metered_engine.h"
#include "stator/telemetry/worker_spans.h"

namespace stator::app {
namespace {

/// As label values of dynamo_component_* families have it.
std::string with_underscores(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

std::string_view role_of(inference::Phase phase) {
  switch (phase) {
    case inference::Phase::kPrefill:
      return "prefill";
    case inference::Phase::kDecode:
      return "decode";
    case inference::Phase::kWhole:
      break;
  }
  return "aggregated";
}

}  // namespace

WorkerMeters::WorkerMeters(const Settings& settings, Clock& clock, Metrics& metrics)
    : settings_(settings), clock_(clock), metrics_(metrics), started_(clock.now()) {}

Result<std::unique_ptr<WorkerMeters>> WorkerMeters::start(const Settings& settings, Clock& clock,
                                                          Metrics& metrics) {
  std::unique_ptr<WorkerMeters> made(new WorkerMeters(settings, clock, metrics));
  telemetry::TraceConfig trace = settings.telemetry.trace;
  if (!trace.endpoint.empty()) {
    trace.version = version();
    STATOR_TRY(made->exporter_, telemetry::SpanExporter::start(trace, clock, metrics));
  }
  return made;
}

MetricLabels WorkerMeters::place(const engine::EngineInfo& info) const {
  return {{"dynamo_namespace", with_underscores(settings_.spaces.of_workers())},
          {"dynamo_component", component_of(settings_.worker, info)},
          {"dynamo_endpoint", settings_.worker.endpoint}};
}

std::unique_ptr<engine::Engine> WorkerMeters::watch(std::unique_ptr<engine::Engine> engine,
                                                    WorkerId id, const std::string& model) {
  const engine::EngineInfo& info = engine->info();
  engine::MeterOptions options{.model = model,
                               .place = place(info),
                               .queue_capacity = settings_.worker.engine_config.waiting_max};
  metrics_.gauge_callback("dynamo_component_uptime_seconds",
                          "since the process started to load its model", options.place,
                          [&clock = clock_, started = started_] {
                            return std::chrono::duration<double>(clock.now() - started).count();
                          });
  const std::string worker_id = fmt::format("{:x}", id.value());
  options.place.emplace_back("worker_id", worker_id);
  if (exporter_ != nullptr) {
    telemetry::WorkerFacts about{.worker_id = worker_id,
                                 .dynamo_namespace = settings_.spaces.of_workers(),
                                 .component = component_of(settings_.worker, info),
                                 .endpoint = settings_.worker.endpoint};
    options.on_served = [exporter = exporter_, about](engine::ServedRequest served) {
      const auto parent = telemetry::parse_traceparent(served.context->traceparent);
      if (!parent || !parent->sampled) {
        return;
      }
      telemetry::WorkerFacts facts = about;
      facts.parent = *parent;
      facts.trace_state = served.context->tracestate;
      facts.model = std::move(served.model);
      facts.role = role_of(served.phase);
      facts.received = served.received;
      facts.queued = served.queued;
      facts.first_output = served.first_output;
      facts.took = served.took;
      facts.prompt_tokens = served.prompt_tokens;
      facts.cached_tokens = served.cached_tokens;
      facts.output_tokens = served.output_tokens;
      facts.attempt = served.attempt;
      facts.cancelled = served.cancelled;
      facts.finish = served.finish;
      facts.error = std::move(served.error);
      static thread_local telemetry::SpanList spans;
      spans.clear();
      telemetry::make_worker_spans(facts, spans);
      exporter->add(spans);
    };
  }
  return engine::make_metered_engine(std::move(engine), std::move(options), clock_, metrics_);
}

void WorkerMeters::loaded() {
  if (std::exchange(loaded_, true)) {
    return;
  }
  metrics_
      .gauge("dynamo_component_model_load_time_seconds",
             "from the start to a loaded model and a running engine",
             {{"dynamo_namespace", with_underscores(settings_.spaces.of_workers())},
              {"dynamo_endpoint", settings_.worker.endpoint}})
      .set(std::chrono::duration<double>(clock_.now() - started_).count());
}

}  // namespace stator::app
