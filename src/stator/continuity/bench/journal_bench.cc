// SPDX-License-Identifier: Apache-2.0
// What it costs that another frontend keeps a copy of every stream: a step of so many streams with
// a token each, encoded, brought over loopback, stored and acknowledged, the next one after that.
// Both frontends are in this process, so CPU time is that of both. docs/benchmarks/runtime.md.
#include <benchmark/benchmark.h>
#include <poll.h>

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "stator/continuity/journal_hub.h"
#include "stator/continuity/stream_journal.h"
#include "stator/core/assert.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/discovery/memory_discovery.h"
#include "stator/net/shard.h"

namespace stator::continuity {
namespace {

inference::StepOutput make_step(uint32_t offset) {
  inference::StepOutput step;
  step.tokens = {1000};
  step.deltas.push_back({.key = {RequestId(0), Attempt()}, .offset = offset, .token_count = 1});
  return step;
}

void BM_StreamCopies(benchmark::State& state) {
  const auto streams = static_cast<uint64_t>(state.range(0));
  SystemClock clock;
  Metrics metrics;
  net::ShardSet shards(1, clock, metrics);
  shards.start();
  net::Shard& shard = shards.shard(0);
  const auto discovery = discovery::make_memory_discovery(metrics);
  const JournalHubConfig config{.enabled = true, .ack_timeout = std::chrono::seconds(10)};
  const auto hub = JournalHub::create(config, std::nullopt, clock, metrics);
  const auto keeper = JournalHub::create(config, std::nullopt, clock, metrics);
  STATOR_ASSERT(keeper->start(*discovery).has_value(), "a port is free");
  STATOR_ASSERT(hub->start(*discovery).has_value(), "a port is free");
  while (!hub->choose_holder({})) {
    ::poll(nullptr, 0, 10);
  }
  const JournalHub::HolderId holder = *hub->choose_holder({});
  std::atomic<uint64_t> acknowledged = 0;
  const auto bring = [&](const std::vector<JournalPart>& parts) {
    const uint64_t before = acknowledged;
    hub->append(holder, parts, shard, [&acknowledged](Result<std::vector<StreamId>>& refused) {
      STATOR_ASSERT(refused.has_value() && refused->empty(), "the keeper has room");
      ++acknowledged;
      acknowledged.notify_one();
    });
    acknowledged.wait(before);
  };
  std::vector<JournalPart> parts(streams);
  for (uint64_t i = 0; i < streams; ++i) {
    parts[i] = {.stream = {.high = 1, .low = i},
                .place = JournalStore::Place::kBegin,
                .data = encode(StreamJournal::Header{.request_id = "a request"})};
  }
  bring(parts);
  uint32_t offset = 0;
  for (auto _ : state) {
    const inference::StepOutput step = make_step(offset++);
    for (JournalPart& part : parts) {
      part.place = JournalStore::Place::kEnd;
      part.data = encode(step);
    }
    bring(parts);
  }
  state.SetItemsProcessed(static_cast<int64_t>(streams) * state.iterations());  // tokens
  hub->stop();
  keeper->stop();
  shards.stop();
}
BENCHMARK(BM_StreamCopies)->Arg(1)->Arg(64)->Arg(256)->Iterations(2'000)->MeasureProcessCPUTime();

}  // namespace
}  // namespace stator::continuity
