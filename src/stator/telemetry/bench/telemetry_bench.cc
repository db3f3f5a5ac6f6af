// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include "stator/telemetry/request_spans.h"
#include "stator/telemetry/telemetry.h"
#include "stator/telemetry/test/facts.h"

namespace stator::telemetry {
namespace {

void BM_AccessLineJson(benchmark::State& state) {
  const RequestFacts facts = moved_request();
  for (auto _ : state) {
    benchmark::DoNotOptimize(access_line_json(facts));
  }
}
BENCHMARK(BM_AccessLineJson);

/// From a request's end to its line in the buffer.
void BM_AccessLog(benchmark::State& state) {
  SystemClock clock;
  Metrics metrics;
  TelemetryConfig config;
  config.log.access_log = "/dev/null";
  const auto telemetry = Telemetry::start(config, false, clock, metrics);
  for (auto _ : state) {
    (*telemetry)->end(moved_request());
  }
}
BENCHMARK(BM_AccessLog);

void BM_Spans(benchmark::State& state) {
  const RequestFacts facts = moved_request();
  for (auto _ : state) {
    benchmark::DoNotOptimize(make_spans(facts));
  }
}
BENCHMARK(BM_Spans);

void BM_EncodeOtlp(benchmark::State& state) {
  const auto spans = make_spans(moved_request());
  for (auto _ : state) {
    benchmark::DoNotOptimize(encode_otlp("stator", "1", spans));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(spans.size()));
}
BENCHMARK(BM_EncodeOtlp);

}  // namespace
}  // namespace stator::telemetry
