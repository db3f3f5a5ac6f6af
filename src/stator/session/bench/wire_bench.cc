// SPDX-License-Identifier: Apache-2.0
// The way of a token between processes, from the engine's thread through gRPC to the text: what it
// costs, how long it takes, and what an open request holds. Both ends run in this process, so CPU
// time is that of worker and frontend together. docs/benchmarks/runtime.md.
#include <benchmark/benchmark.h>
#include <malloc.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "stator/continuity/journal.h"
#include "stator/core/assert.h"
#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/metrics.h"
#include "stator/session/bench/bench_engine.h"
#include "stator/session/connector.h"
#include "stator/session/worker_server.h"
#include "stator/tokenizer/incremental_detokenizer.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::session {
namespace {

constexpr uint64_t kWindow = 64;  // steps under way at most

const tokenizer::Tokenizer& demo_tokenizer() {
  static const auto loaded =
      tokenizer::Tokenizer::load(std::string(STATOR_SOURCE_DIR) + "/models/demo").value();
  return *loaded;
}

/// What a frontend does with a delta before there is text: finds the request, journals, and
/// detokenizes.
class Seam final : public SessionEvents {
 public:
  explicit Seam(const Clock& clock) : clock_(clock) {}

  void open(RequestId id) {
    requests_.emplace(id, std::make_unique<Request>(
                              Request{.stop = {.max_tokens = UINT32_MAX},
                                      .journal = continuity::Journal(),
                                      .text = tokenizer::IncrementalDetokenizer(
                                          demo_tokenizer(), tokenizer::SkipSpecial::kYes)}));
    Request& request = *requests_.at(id);
    request.journal =
        continuity::Journal(continuity::Journal::Spec{.prompt_tokens = 16, .stop = &request.stop});
  }

  void on_rejected(WorkerId /*worker*/, inference::RequestKey /*key*/, Error error) override {
    STATOR_ASSERT(false, error.message().c_str());
  }
  void on_accepted(WorkerId /*worker*/, inference::RequestKey /*key*/) override {
    ++accepted_;
    accepted_.notify_all();
  }
  void on_step(WorkerId /*worker*/, inference::StepOutput output) override {
    const TimePoint now = clock_.now();
    for (const inference::Delta& delta : output.deltas) {
      Request& request = *requests_.at(delta.key.request);
      const auto tokens = std::span(output.tokens).subspan(delta.token_begin, delta.token_count);
      const auto taken = request.journal.take(delta.key.attempt, delta.offset, tokens);
      STATOR_ASSERT(taken.verdict == continuity::Journal::Verdict::kAccepted,
                    "the stream has no gap");
      for (const TokenId token : tokens) {
        request.text.step(token, text_);
      }
    }
    bytes_ += text_.size();
    text_.clear();
    arrived_ = now;
    ++steps_seen_;
    tokens_ += output.tokens.size();
    tokens_.notify_all();
  }
  void on_draining(WorkerId /*worker*/) override {}
  void on_closed(WorkerId /*worker*/, Error /*error*/) override {}

  void wait_tokens(uint64_t count) { wait(tokens_, count); }
  void wait_accepted(uint64_t count) { wait(accepted_, count); }
  /// Of the last step; after wait_tokens.
  TimePoint arrived() const { return arrived_; }
  uint64_t steps_seen() const { return steps_seen_; }

 private:
  struct Request {
    inference::StopConditions stop;
    continuity::Journal journal;
    tokenizer::IncrementalDetokenizer text;
  };
  static void wait(const std::atomic<uint64_t>& value, uint64_t count) {
    for (uint64_t seen = value; seen < count; seen = value) {
      value.wait(seen);
    }
  }

  const Clock& clock_;
  FlatMap<RequestId, std::unique_ptr<Request>> requests_;
  std::string text_;
  uint64_t bytes_ = 0;
  TimePoint arrived_;
  std::atomic<uint64_t> steps_seen_ = 0;
  std::atomic<uint64_t> accepted_ = 0;
  std::atomic<uint64_t> tokens_ = 0;
};

/// A worker, a frontend shard, and the session between them.
struct Wire {
  Wire() {
    record.address = server->address();
    shards.start();
    on_loop([this] { session = connector->open_session(record, shards.shard(0), seam); });
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  ~Wire() {
    on_loop([this] { session.reset(); });
    server.reset();
    shards.stop();
  }
  template <typename Task>
  void on_loop(Task task) {
    STATOR_ASSERT(shards.shard(0).run_and_wait([&task] { task(); }), "the shard runs");
  }
  /// Requests first … first + count − 1, accepted.
  void submit(uint32_t first, uint32_t count) {
    on_loop([&] {
      for (uint32_t i = first; i < first + count; ++i) {
        inference::EngineRequest request;
        request.key = {RequestId(i), Attempt(0)};
        request.tokens.assign(16, 1000);
        seam.open(request.key.request);
        session->submit(std::move(request));
      }
    });
    seam.wait_accepted(first + count - 1);
  }

  SystemClock clock;
  Metrics metrics;
  BenchEngine engine;
  discovery::InstanceRecord record = make_record();
  std::unique_ptr<WorkerServer> server =
      std::move(WorkerServer::start(record, engine, {}, clock, metrics).value());
  std::unique_ptr<Connector> connector = std::move(make_grpc_connector({}, metrics).value());
  Seam seam{clock};
  net::ShardSet shards{1, clock, metrics};
  std::unique_ptr<WorkerSession> session;
};

/// The next `tokens` tokens of each of `sequences` requests.
inference::StepOutput next_step(uint32_t sequences, uint32_t tokens, uint64_t step) {
  inference::StepOutput out;
  out.deltas.resize(sequences);
  out.tokens.resize(size_t{sequences} * tokens);
  for (size_t i = 0; i < out.tokens.size(); ++i) {
    out.tokens[i] = static_cast<TokenId>(300 + (step + i) % 512);
  }
  for (uint32_t i = 0; i < sequences; ++i) {
    out.deltas[i].key = {RequestId(i + 1), Attempt(0)};
    out.deltas[i].offset = static_cast<uint32_t>(step * tokens);
    out.deltas[i].token_begin = i * tokens;
    out.deltas[i].token_count = tokens;
  }
  return out;
}

/// Arguments: sequences per step, tokens of each. (1, 1) is a message per token unless the reader
/// is slower than the engine, when steps merge; steps_per_message says how many did.
void BM_Tokens(benchmark::State& state) {
  Wire wire;
  const auto sequences = static_cast<uint32_t>(state.range(0));
  const auto tokens = static_cast<uint32_t>(state.range(1));
  const uint64_t per_step = uint64_t{sequences} * tokens;
  wire.submit(1, sequences);
  uint64_t steps = 0;
  for (auto _ : state) {
    if (steps >= kWindow) {
      wire.seam.wait_tokens((steps - kWindow) * per_step);
    }
    wire.engine.sink().on_step(next_step(sequences, tokens, steps++));
  }
  wire.seam.wait_tokens(steps * per_step);
  const auto count = static_cast<double>(steps * per_step);
  state.counters["tokens_per_core_s"] = benchmark::Counter(count, benchmark::Counter::kIsRate);
  state.counters["steps_per_message"] =
      static_cast<double>(steps) / static_cast<double>(wire.seam.steps_seen());
}
BENCHMARK(BM_Tokens)
    ->ArgsProduct({{1, 64, 256, 1024}, {1}})
    ->Args({256, 4})
    ->MeasureProcessCPUTime();

/// From the engine's on_step to the frontend's, one step each millisecond.
void BM_StepLatency(benchmark::State& state) {
  Wire wire;
  const auto sequences = static_cast<uint32_t>(state.range(0));
  wire.submit(1, sequences);
  std::vector<double> micros;
  uint64_t steps = 0;
  for (auto _ : state) {
    ::poll(nullptr, 0, 1);
    const TimePoint sent = wire.clock.now();
    wire.engine.sink().on_step(next_step(sequences, 1, steps++));
    wire.seam.wait_tokens(steps * sequences);
    micros.push_back(std::chrono::duration<double, std::micro>(wire.seam.arrived() - sent).count());
  }
  std::ranges::sort(micros);
  state.counters["p50_us"] = micros[micros.size() / 2];
  state.counters["p99_us"] = micros[micros.size() * 99 / 100];
}
BENCHMARK(BM_StepLatency)->Arg(1)->Arg(64)->Arg(256)->Iterations(3000)->UseRealTime();

/// A delta per message: `range(0)` workers of one frontend, each with one request, step by turns
/// and none before its last step has arrived, so that nothing can merge.
void BM_LoneDeltas(benchmark::State& state) {
  struct Worker {
    Worker(uint64_t id, Clock& clock, Metrics& metrics) : record(make_record()) {
      record.key.worker = WorkerId(id);
      server = std::move(WorkerServer::start(record, engine, {}, clock, metrics).value());
      record.address = server->address();
    }
    BenchEngine engine;
    discovery::InstanceRecord record;
    std::unique_ptr<WorkerServer> server;
    Seam* seam = nullptr;
    std::unique_ptr<WorkerSession> session;
  };
  SystemClock clock;
  Metrics metrics;
  auto connector = std::move(make_grpc_connector({}, metrics).value());
  net::ShardSet shards(1, clock, metrics);
  shards.start();
  std::vector<std::unique_ptr<Seam>> seams;
  std::vector<std::unique_ptr<Worker>> workers;
  const auto count = static_cast<uint64_t>(state.range(0));
  for (uint64_t i = 0; i < count; ++i) {
    seams.push_back(std::make_unique<Seam>(clock));
    workers.push_back(std::make_unique<Worker>(i + 1, clock, metrics));
    Seam& seam = *seams.back();
    Worker& worker = *workers.back();
    STATOR_ASSERT(shards.shard(0).run_and_wait([&] {
      worker.session = connector->open_session(worker.record, shards.shard(0), seam);
      inference::EngineRequest request;
      request.key = {RequestId(1), Attempt(0)};
      request.tokens.assign(16, 1000);
      seam.open(request.key.request);
      worker.session->submit(std::move(request));
    }),
                  "the shard runs");
    seam.wait_accepted(1);
  }
  uint64_t rounds = 0;
  for (auto _ : state) {
    for (uint64_t i = 0; i < count; ++i) {
      seams[i]->wait_tokens(rounds);
      workers[i]->engine.sink().on_step(next_step(1, 1, rounds));
    }
    ++rounds;
  }
  uint64_t messages = 0;
  for (auto& seam : seams) {
    seam->wait_tokens(rounds);
    messages += seam->steps_seen();
  }
  const auto deltas = static_cast<double>(rounds * count);
  state.counters["deltas_per_core_s"] = benchmark::Counter(deltas, benchmark::Counter::kIsRate);
  state.counters["deltas_per_message"] = deltas / static_cast<double>(messages);
  STATOR_ASSERT(shards.shard(0).run_and_wait([&] {
    for (auto& worker : workers) {
      worker->session.reset();
    }
  }),
                "the shard runs");
  workers.clear();
  shards.stop();
}
BENCHMARK(BM_LoneDeltas)->Arg(1)->Arg(16)->Arg(64)->MeasureProcessCPUTime();

uint64_t resident_bytes() {
  ::malloc_trim(0);
  std::ifstream statm("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  statm >> total >> resident;
  return resident * 4096;
}

/// Open requests without output on one session: bytes of each, at both ends, and descriptors.
void BM_OpenRequests(benchmark::State& state) {
  const auto count = static_cast<uint32_t>(state.range(0));
  for (auto _ : state) {
    Wire wire;
    wire.submit(1, 1);
    const uint64_t before = resident_bytes();
    wire.submit(2, count - 1);
    const uint64_t held = resident_bytes() - before;
    state.counters["bytes_per_request"] = static_cast<double>(held) / count;
    state.counters["descriptors"] =
        static_cast<double>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                          std::filesystem::directory_iterator()));
  }
}
BENCHMARK(BM_OpenRequests)->Arg(100'000)->Iterations(1)->UseRealTime();

}  // namespace
}  // namespace stator::session
