// SPDX-License-Identifier: Apache-2.0
// One whole decision: find the eligible workers, look the prompt up, price, choose, book, write the
// receipt, and give the lease of an older request back. kCold: the index is empty, so that lookups
// (index-bench measures them) are left out. Service: as frontends call it, one thread at a time.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <numeric>

#include "stator/router/index/index_service.h"
#include "stator/router/router_service.h"

namespace stator::router {
namespace {

constexpr uint32_t kBlockSize = 64;
constexpr uint32_t kPromptBlocks = 192;
constexpr size_t kPrompts = 512;
constexpr size_t kRunning = 4096;  // requests in flight over all workers

struct Prompt {
  blocks::BlockHasher hasher{kBlockSize, blocks::hash_seed("", "")};
};

/// Prompts that share half of their blocks with seven others.
std::vector<Prompt> make_prompts() {
  std::vector<Prompt> prompts(kPrompts);
  for (size_t p = 0; p < kPrompts; ++p) {
    std::vector<TokenId> tokens(size_t{kPromptBlocks} * kBlockSize);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const uint64_t family = i < tokens.size() / 2 ? p / 8 : kPrompts + p;
      tokens[i] = static_cast<TokenId>(mix64(family * 1'000'003 + i) % 100'000);
    }
    prompts[p].hasher.append(tokens);
  }
  return prompts;
}

kv::KvEvent stored(const blocks::BlockHasher& hasher) {
  kv::BlocksStored run;
  for (size_t i = 0; i < hasher.locals().size(); ++i) {
    run.blocks.push_back({blocks::ExternalHash(hasher.sequences()[i].value()), hasher.locals()[i]});
  }
  return {.event_id = 1, .data = std::move(run)};
}

enum class Cache : uint8_t { kCold, kWarm };

RouterConfig config_of(const char* mode) {
  RouterConfig config;
  config.mode = mode;
  return config;
}

/// The pure core.
class Core {
 public:
  explicit Core(const char* mode)
      : router_(*Router::create(config_of(mode), LoadBook::make(clock_), Random(1))) {}
  void add_worker(WorkerKey worker, const WorkerFacts& facts) {
    router_->add_worker(worker, facts);
  }
  void apply(WorkerKey worker, const kv::KvEvent& event) { router_->apply(worker, event); }
  Decision route(const RouteRequest& request) { return *router_->route(request, WallTime()); }

 private:
  const SystemClock clock_;
  std::unique_ptr<Router> router_;
};

/// As frontends call it: with the locks, the metrics and the log of receipts.
class Service {
 public:
  explicit Service(const char* mode)
      : router_(*RouterService::create(config_of(mode), "model", clock_, metrics_, receipts_)) {}
  void add_worker(WorkerKey worker, const WorkerFacts& facts) {
    router_->add_worker(worker, facts);
  }
  void apply(WorkerKey worker, const kv::KvEvent& event) { router_->index().apply(worker, event); }
  Decision route(const RouteRequest& request) {
    return std::move(*router_->route_or_wait(request, {}, [](Result<Decision>) {})->decision);
  }

 private:
  const SystemClock clock_;
  Metrics metrics_;
  ReceiptLog receipts_;
  std::shared_ptr<RouterService> router_;
};

template <typename Subject>
void decide(benchmark::State& state, const char* mode, Cache cache) {
  static const std::vector<Prompt> prompts = make_prompts();
  const auto workers = static_cast<uint64_t>(state.range(0));
  const SystemClock clock;
  Subject router(mode);
  for (uint64_t w = 0; w < workers; ++w) {
    router.add_worker({WorkerId(1 + w * 7919), 0}, {.total_kv_blocks = 100'000});
  }
  Random random(2);
  for (const Prompt& prompt : prompts) {
    for (int holder = 0; cache == Cache::kWarm && holder < 2; ++holder) {
      router.apply({WorkerId(1 + random.below(workers) * 7919), 0}, stored(prompt.hasher));
    }
  }
  std::vector<LoadLease> running(kRunning);
  const auto route = [&](size_t i) {
    const Prompt& prompt = prompts[random.below(kPrompts)];
    Decision decision = router.route({.request_id = "11111111-2222-4333-8444-555555555555",
                                      .model = "model",
                                      .prompt_tokens = kPromptBlocks * kBlockSize,
                                      .block_size = kBlockSize,
                                      .sequences = prompt.hasher.sequences()});
    running[i % kRunning] = std::move(decision.lease);
    if (i % 2 == 0) {
      running[i % kRunning].mark_prefill_completed();
    }
    benchmark::DoNotOptimize(decision.worker);
  };
  size_t i = 0;
  for (; i < kRunning; ++i) {
    route(i);
  }
  std::vector<int64_t> times;
  times.reserve(1 << 20);
  for ([[maybe_unused]] const auto _ : state) {
    const TimePoint begin = clock.now();
    route(i++);
    times.push_back((clock.now() - begin).count());
  }
  std::ranges::sort(times);
  state.counters["p50_ns"] = static_cast<double>(times[times.size() / 2]);
  state.counters["p99_ns"] = static_cast<double>(times[times.size() * 99 / 100]);
}

void decide_in_core(benchmark::State& state, const char* mode, Cache cache) {
  decide<Core>(state, mode, cache);
}
void decide_in_service(benchmark::State& state, const char* mode, Cache cache) {
  decide<Service>(state, mode, cache);
}

#define STATOR_DECIDE(function, mode, cache)                       \
  BENCHMARK_CAPTURE(function, mode##_##cache, #mode, Cache::cache) \
      ->Arg(8)                                                     \
      ->Arg(64)                                                    \
      ->Arg(256)                                                   \
      ->Arg(1024)                                                  \
      ->Arg(4096)                                                  \
      ->Arg(10000)
STATOR_DECIDE(decide_in_service, predicted_latency, kWarm);
STATOR_DECIDE(decide_in_service, kv, kWarm);
STATOR_DECIDE(decide_in_core, predicted_latency, kCold);
STATOR_DECIDE(decide_in_core, predicted_latency, kWarm);
STATOR_DECIDE(decide_in_core, kv, kCold);
STATOR_DECIDE(decide_in_core, kv, kWarm);
STATOR_DECIDE(decide_in_core, lmetric, kCold);
STATOR_DECIDE(decide_in_core, dual_map, kCold);
STATOR_DECIDE(decide_in_core, least_loaded, kCold);
STATOR_DECIDE(decide_in_core, power_of_two, kCold);
STATOR_DECIDE(decide_in_core, round_robin, kCold);
#undef STATOR_DECIDE

}  // namespace
}  // namespace stator::router
