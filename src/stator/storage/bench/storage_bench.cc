// SPDX-License-Identifier: Apache-2.0
// A disk tier's restart with many blocks: the bar of docs/benchmarks/storage.md.
#include <benchmark/benchmark.h>

#include <filesystem>
#include <numeric>

#include "stator/storage/disk_tier.h"

namespace stator::storage {
namespace {

/// Opens a folder whose journal names a million blocks. The data file is sparse: the restart reads
/// nothing of it.
void warm_restart_1m(benchmark::State& state) {
  constexpr uint32_t kBlocks = 1'000'000;
  std::string folder = std::filesystem::temp_directory_path() / "stator_restart_XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) {
    state.SkipWithError("no temporary folder");
    return;
  }
  const DiskTierOptions options{.folder = folder,
                                .bytes = uint64_t{kBlocks} * disk_stride(1),
                                .block_bytes = 1,
                                .block_tokens = 16,
                                .space = {std::byte{1}},
                                .direct = false};
  SystemClock clock;
  Metrics metrics;
  DiskTier::open(options, clock, metrics).value().reset();
  {
    Journal journal = Journal::open(folder, kBlocks).value();
    std::vector<JournalRecord> records;
    for (uint32_t slot = 0; slot < kBlocks; ++slot) {
      JournalRecord record{.slot = slot, .generation = slot + 1};
      record.name.lineage = kv::LineageHash::root(blocks::LocalHash(slot * 0x9E3779B97F4A7C15ULL));
      records.push_back(record);
    }
    journal.checkpoint(records).ignore("the bench says how many were found");
  }
  for (auto _ : state) {
    auto tier = DiskTier::open(options, clock, metrics).value();
    state.PauseTiming();
    if (tier->recovered() != kBlocks) {
      state.SkipWithError("not all blocks were found");
    }
    tier.reset();
    state.ResumeTiming();
  }
  std::filesystem::remove_all(folder);
}
BENCHMARK(warm_restart_1m)->Unit(benchmark::kMillisecond)->Iterations(5);

}  // namespace
}  // namespace stator::storage
