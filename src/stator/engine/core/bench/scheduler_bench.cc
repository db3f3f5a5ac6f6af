// SPDX-License-Identifier: Apache-2.0
// What one streamed token costs in the scheduler, and in scheduler and service together. The runner
// does no arithmetic, so everything measured is ours.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "stator/engine/core/engine_service.h"
#include "stator/engine/core/scheduler.h"
#include "stator/kv/event_log.h"

namespace stator::engine {
namespace {

constexpr uint32_t kPromptTokens = 64;
constexpr uint32_t kOutputTokens = 256;

class EchoRunner final : public ModelRunner {
 public:
  uint32_t vocab_size() const override { return 32'000; }
  uint32_t max_model_len() const override { return 4096; }
  void run(std::span<const SequenceSlice> slices, std::span<Sampled> sampled) override {
    for (size_t i = 0; i < slices.size(); ++i) {
      sampled[i].token = slices[i].tokens.back() + 1;
    }
  }
};

EngineConfig config_for(uint32_t sequences) {
  EngineConfig config;
  config.max_num_seqs = sequences;
  config.max_num_batched_tokens = std::max(8192U, sequences * 2);
  config.total_blocks = sequences * 32 + 512;
  config.waiting_max = sequences * 2;
  return config;
}

inference::EngineRequest request(uint64_t id) {
  inference::EngineRequest out;
  out.key.request = RequestId(id);
  for (uint32_t i = 0; i < kPromptTokens; ++i) {
    out.tokens.push_back(static_cast<TokenId>((id * 977 + i) % 30'000));
  }
  out.stop.max_tokens = kOutputTokens;
  out.stop.eos_token_ids = {31'999};
  return out;
}

// Sequences end and arrive all the time: time per generated token includes add and finish.
void scheduler_step(benchmark::State& state) {
  const auto sequences = static_cast<uint32_t>(state.range(0));
  EchoRunner runner;
  Scheduler scheduler(*resolve(config_for(sequences), 4096));
  kv::EventLog log;
  std::vector<Sampled> sampled;
  uint64_t next_id = 0;
  uint64_t checksum = 0;
  for (auto _ : state) {
    while (scheduler.running_count() + scheduler.waiting_count() < sequences) {
      scheduler.add(SessionId(next_id % 4), request(next_id), TimePoint{}).ignore("bench");
      ++next_id;
    }
    const StepPlan& plan = scheduler.plan(TimePoint{});
    sampled.clear();
    sampled.resize(plan.slices.size());
    runner.run(plan.slices, sampled);
    for (const SessionOutput& output : scheduler.commit(sampled)) {
      checksum += output.output.tokens.size();
    }
    log.append(scheduler.take_events());
  }
  benchmark::DoNotOptimize(checksum);
  const auto tokens = static_cast<double>(scheduler.totals().generated_tokens);
  state.counters["ns_per_token"] =
      benchmark::Counter(tokens / 1e9, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(scheduler_step)->Arg(1)->Arg(64)->Arg(1024)->Arg(10'000)->Unit(benchmark::kMicrosecond);

class CountingSink final : public EngineSink {
 public:
  void on_step(inference::StepOutput output) noexcept override {
    uint64_t ended = 0;
    for (const inference::Delta& delta : output.deltas) {
      ended += delta.finish != inference::FinishReason::kNone ? 1 : 0;
    }
    tokens += output.tokens.size();
    if (ended > 0) {
      finished += ended;
      finished.notify_all();
    }
  }
  uint64_t tokens = 0;
  std::atomic<uint64_t> finished{0};
};

// One client thread keeps `sequences` requests alive; CPU time of the whole process per token.
void service(benchmark::State& state) {
  const auto sequences = static_cast<uint64_t>(state.range(0));
  SystemClock clock;
  Metrics metrics;
  const auto engine = std::move(*make_engine(config_for(static_cast<uint32_t>(sequences)),
                                             std::make_unique<EchoRunner>(), clock, metrics));
  engine->start().ignore("bench");
  CountingSink sink;
  const SessionId session = engine->open_session(sink);
  uint64_t next_id = 0;
  uint64_t done = 0;
  for (auto _ : state) {
    for (; next_id < done + sequences; ++next_id) {
      engine->submit(session, request(next_id)).ignore("bench");
    }
    sink.finished.wait(done);
    done = sink.finished.load();
  }
  engine->stop();
  state.counters["ns_per_token"] =
      benchmark::Counter(static_cast<double>(sink.tokens) / 1e9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(service)->Arg(64)->Arg(1024)->MeasureProcessCPUTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace stator::engine
