// SPDX-License-Identifier: Apache-2.0
// Tokens per second through one session, from the engine's thread to SessionEvents on the loop: one
// delta of one token for each of `range(0)` sequences per step.
#include <benchmark/benchmark.h>

#include <atomic>
#include <memory>

#include "stator/core/assert.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/session/bench/bench_engine.h"
#include "stator/session/connector.h"
#include "stator/session/local_worker.h"
#include "stator/session/worker_server.h"

namespace stator::session {
namespace {

class CountTokens final : public SessionEvents {
 public:
  void on_rejected(WorkerId /*worker*/, inference::RequestKey /*key*/, Error /*error*/) override {}
  void on_accepted(WorkerId /*worker*/, inference::RequestKey /*key*/) override {}
  void on_step(WorkerId /*worker*/, inference::StepOutput output) override {
    tokens_ += output.tokens.size();
    tokens_.notify_all();
  }
  void on_draining(WorkerId /*worker*/) override {}
  void on_closed(WorkerId /*worker*/, Error /*error*/) override {}

  void wait_tokens(uint64_t count) {
    for (uint64_t seen = tokens_; seen < count; seen = tokens_) {
      tokens_.wait(seen);
    }
  }

 private:
  std::atomic<uint64_t> tokens_ = 0;
};

/// `kWindow` steps may be under way, so that merging of a backed-up queue does not flatter the
/// figure beyond what a real engine would see.
void run_session(benchmark::State& state, Connector& connector, BenchEngine& engine,
                 const discovery::InstanceRecord& record, net::Shard& shard) {
  constexpr uint64_t kWindow = 64;
  const auto sequences = static_cast<uint32_t>(state.range(0));
  CountTokens events;
  std::unique_ptr<WorkerSession> session;
  STATOR_ASSERT(shard.run_and_wait([&] {
    session = connector.open_session(record, shard, events);
    for (uint32_t i = 0; i < sequences; ++i) {
      inference::EngineRequest request;
      request.key = {RequestId(i + 1), Attempt(0)};
      request.tokens = {1};
      session->submit(std::move(request));
    }
  }),
                "the shard runs");
  engine.wait_submitted(sequences);
  uint64_t steps = 0;
  for (auto _ : state) {
    if (steps >= kWindow) {
      events.wait_tokens((steps - kWindow) * sequences);
    }
    engine.sink().on_step(make_step(sequences, static_cast<uint32_t>(steps++)));
  }
  events.wait_tokens(steps * sequences);
  state.SetItemsProcessed(static_cast<int64_t>(steps * sequences));
  STATOR_ASSERT(shard.run_and_wait([&] { session.reset(); }), "the shard runs");
}

void BM_GrpcSession(benchmark::State& state) {
  const SystemClock clock;
  SystemClock shard_clock;
  Metrics metrics;
  BenchEngine engine;
  discovery::InstanceRecord record = make_record();
  auto server = std::move(WorkerServer::start(record, engine, {}, clock, metrics).value());
  record.address = server->address();
  auto connector = std::move(make_grpc_connector({}, metrics).value());
  net::ShardSet shards(1, shard_clock, metrics);
  shards.start();
  run_session(state, *connector, engine, record, shards.shard(0));
  server.reset();
  shards.stop();
}
BENCHMARK(BM_GrpcSession)->Arg(1)->Arg(64)->Arg(256)->UseRealTime();

void BM_InProcessSession(benchmark::State& state) {
  SystemClock clock;
  Metrics metrics;
  BenchEngine engine;
  const discovery::InstanceRecord record = make_record();
  LocalWorker worker(record.key.worker, record.incarnation, engine, metrics);
  LocalConnector connector({&worker}, nullptr, metrics);
  net::ShardSet shards(1, clock, metrics);
  shards.start();
  run_session(state, connector, engine, record, shards.shard(0));
  shards.stop();
}
BENCHMARK(BM_InProcessSession)->Arg(1)->Arg(64)->Arg(256)->UseRealTime();

}  // namespace
}  // namespace stator::session
