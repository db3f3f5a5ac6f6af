// SPDX-License-Identifier: Apache-2.0
// What block bookkeeping costs: the bars of docs/benchmarks/storage.md.
#include <benchmark/benchmark.h>

#include <numeric>

#include "stator/blocks/block_hash.h"
#include "stator/kv/block_pool.h"

namespace stator::kv {
namespace {

constexpr uint32_t kTokens = 16;

/// Sequences of `blocks` blocks with nothing in common.
struct Sequences {
  Sequences(size_t count, size_t blocks) {
    for (size_t i = 0; i < count; ++i) {
      std::vector<TokenId>& own = tokens.emplace_back(blocks * kTokens);
      std::iota(own.begin(), own.end(), static_cast<TokenId>(i * blocks * kTokens));
      hashers.emplace_back(kTokens, 1337);
      hashers.back().append(own);
    }
  }
  SequenceBlocks operator[](size_t i) const {
    return {.sequences = hashers[i].sequences(),
            .locals = hashers[i].locals(),
            .tokens = tokens[i],
            .block_size = kTokens};
  }
  std::vector<std::vector<TokenId>> tokens;
  std::vector<blocks::BlockHasher> hashers;
};

/// Each block is allocated, registered, released, found again and released again; later rounds
/// evict.
void allocate_register_match_release(benchmark::State& state) {
  constexpr size_t kChains = 256;
  constexpr size_t kBlocks = 32;
  const Sequences sequences(kChains, kBlocks);
  BlockPool pool(kChains * kBlocks / 2, BlockPool::Events::kOff, nullptr);
  size_t next = 0;
  for (auto _ : state) {
    const SequenceBlocks blocks = sequences[next++ % kChains];
    {
      BlockChain chain(pool);
      for (size_t i = 0; i < kBlocks; ++i) {
        chain.append(pool.allocate());
        chain.register_block(i, blocks[i]);
      }
    }
    benchmark::DoNotOptimize(pool.match_prefix(blocks).size());
  }
  state.counters["blocks_per_second"] = benchmark::Counter(
      static_cast<double>(state.iterations() * kBlocks), benchmark::Counter::kIsRate);
}
BENCHMARK(allocate_register_match_release);

void match_512(benchmark::State& state) {
  constexpr size_t kBlocks = 512;
  constexpr size_t kChains = 32;
  const Sequences sequences(kChains, kBlocks);
  BlockPool pool(kChains * kBlocks, BlockPool::Events::kOff);
  for (size_t c = 0; c < kChains; ++c) {
    BlockChain chain(pool);
    for (size_t i = 0; i < kBlocks; ++i) {
      chain.append(pool.allocate());
      chain.register_block(i, sequences[c][i]);
    }
  }
  size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(pool.match_prefix(sequences[next++ % kChains]).size());
  }
}
BENCHMARK(match_512)->Unit(benchmark::kMicrosecond);

void peek_512(benchmark::State& state) {
  constexpr size_t kBlocks = 512;
  const Sequences sequences(1, kBlocks);
  BlockPool pool(kBlocks, BlockPool::Events::kOff);
  BlockChain chain(pool);
  for (size_t i = 0; i < kBlocks; ++i) {
    chain.append(pool.allocate());
    chain.register_block(i, sequences[0][i]);
  }
  for (auto _ : state) {
    benchmark::DoNotOptimize(pool.peek_prefix(sequences[0]).blocks);
  }
}
BENCHMARK(peek_512)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace stator::kv
