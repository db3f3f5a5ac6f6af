// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include "stator/telemetry/otlp.h"
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

/// What a sampled request costs its shard: spans made, encoded and put where the exporter finds
/// them.
template <typename Encoding>
void BM_Spans(benchmark::State& state) {
  const RequestFacts facts = moved_request();
  const Encoding encoding({.service = "stator", .version = "1", .attributes = {}});
  SpanList spans;
  std::string out;
  for (auto _ : state) {
    spans.clear();
    make_spans(facts, spans);
    encoding.append(out, spans);
    if (out.size() > size_t{64} << 10) {
      out.clear();
    }
  }
}
BENCHMARK(BM_Spans<OtlpBytes>);
BENCHMARK(BM_Spans<OtlpJson>);

void BM_FrameOf512Spans(benchmark::State& state) {
  const OtlpBytes encoding({.service = "stator", .version = "1", .attributes = {}});
  const RequestFacts facts = moved_request();
  SpanList spans;
  make_spans(facts, spans);
  std::string batch;
  for (size_t count = 0; count < 512; count += spans.size()) {
    encoding.append(batch, spans);
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(encoding.frame(batch));
  }
}
BENCHMARK(BM_FrameOf512Spans);

}  // namespace
}  // namespace stator::telemetry
