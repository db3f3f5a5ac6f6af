// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <malloc.h>
#include <simdjson.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <fstream>

#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/net/thread.h"
#include "stator/router/index/chain_index.h"
#include "stator/router/index/index_snapshot.h"
#include "stator/router/index/ttl_index.h"
#include "stator/router/index_bench.h"
#include "stator/router/index_trial.h"

namespace stator::cli {
namespace {

constexpr uint32_t kTokensPerHash = 512;  // of the published traces
constexpr size_t kLineBytesMax = 16 << 20;
constexpr uint64_t kIndexBytes = 4ULL << 30;

Result<std::vector<std::vector<uint64_t>>> read_prompts(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return Error(Code::kNotFound, "cannot open the trace '" + path + "'");
  }
  std::vector<std::vector<uint64_t>> prompts;
  simdjson::dom::parser parser;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) {
      continue;
    }
    const auto fail = [&](std::string_view what) {
      return Error(Code::kInvalidArgument, fmt::format("{}:{}: {}", path, number, what));
    };
    simdjson::dom::array ids;
    if (line.size() > kLineBytesMax || parser.parse(line)["hash_ids"].get(ids) != 0) {
      return fail("expected a JSON object with an array hash_ids");
    }
    std::vector<uint64_t> prompt;
    for (const simdjson::dom::element id : ids) {
      uint64_t value = 0;
      if (id.get(value) != 0) {
        return fail("hash_ids must be whole numbers ≥ 0");
      }
      prompt.push_back(value);
    }
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) {
    return Error(Code::kInvalidArgument, "the trace '" + path + "' is empty, or no file");
  }
  return prompts;
}

Result<uint32_t> number_option(const Invocation& invocation, std::string_view flag,
                               uint32_t otherwise, uint32_t low, uint32_t high) {
  const auto found = invocation.options.find(flag);
  if (found == invocation.options.end()) {
    return otherwise;
  }
  const std::string& text = found->second;
  uint32_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value < low ||
      value > high) {
    return Error(Code::kInvalidArgument, fmt::format("{} must be a whole number from {} to {}, not "
                                                     "'{}'",
                                                     flag, low, high, text));
  }
  return value;
}

uint64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

struct Figures {
  std::string_view kind;
  uint64_t requests = 0;
  uint64_t blocks = 0;
  router::IndexBench::Lookups lookups;
  router::IndexBench::Lookups contended;  ///< while a writer works; zeros where readers need a lock
  double blocks_per_s = 0;
  double bytes_per_holder_block = 0;
  uint64_t snapshot_bytes = 0;  ///< 0 where there are no snapshots
  double save_s = 0;
  double restore_s = 0;
};

/// Figures of an index that has just taken everything in, in `seconds`.
Figures measure_lookups(const router::IndexBench& bench, const router::KvIndex& index,
                        double seconds, uint64_t bytes) {
  Figures figures;
  figures.requests = bench.requests();
  figures.blocks = bench.blocks();
  figures.blocks_per_s = static_cast<double>(bench.blocks()) / std::max(seconds, 1e-9);
  figures.bytes_per_holder_block =
      static_cast<double>(bytes) /
      static_cast<double>(std::max<uint64_t>(1, index.holder_blocks()));
  for (int pass = 0; pass < 3; ++pass) {
    figures.lookups = bench.look_up_all(index, SystemClock());
  }
  return figures;
}

/// Saves the index and restores it into another one, in memory.
Status measure_snapshot(const router::ChainIndex& index, Figures& figures) {
  const SystemClock clock;
  const auto seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
  const TimePoint start = clock.now();
  router::ByteWriter out;
  index.save(out);
  const std::string file = router::encode_snapshots({{"", 1, out.take()}});
  const TimePoint saved = clock.now();
  STATOR_TRY(const auto parts, router::decode_snapshots(file));
  router::ByteReader in(parts.front().content);
  STATOR_TRY(const auto restored, router::ChainIndex::restore({.bytes_max = kIndexBytes}, in));
  figures.restore_s = seconds(clock.now() - saved);
  figures.save_s = seconds(saved - start);
  figures.snapshot_bytes = file.size();
  return restored->holder_blocks() == index.holder_blocks()
             ? Status()
             : Error(Code::kInternal, "the restored index holds something else");
}

Result<Figures> measure_chains(const router::IndexBench& bench) {
  const SystemClock clock;
  STATOR_TRY(const auto index, router::ChainIndex::create({.bytes_max = kIndexBytes}));
  const uint64_t before = index->memory_bytes();
  const double seconds = bench.store_all(*index, clock);
  Figures figures = measure_lookups(bench, *index, seconds, index->memory_bytes() - before);
  STATOR_CHECK(measure_snapshot(*index, figures));
  std::atomic<bool> stop{false};
  const net::Thread writer("index-writer", [&] {
    Random random(1);
    while (!stop.load(std::memory_order_relaxed)) {
      bench.churn(*index, random, 16);
    }
  });
  figures.contended = bench.look_up_all(*index, clock);
  stop = true;
  return figures;
}

Figures measure_oracle(const router::IndexBench& bench) {
  router::ExactIndex index;
  const uint64_t before = heap_bytes();
  const double seconds = bench.store_all(index, SystemClock());
  return measure_lookups(bench, index, seconds, heap_bytes() - before);
}

Result<Figures> measure_routed(const router::IndexBench& bench) {
  STATOR_TRY(const auto index, router::TtlIndex::create({.blocks_per_worker_max = UINT32_MAX,
                                                         .bytes_max = kIndexBytes}));
  const uint64_t before = index->memory_bytes();
  const double seconds = bench.route_all(*index, SystemClock());
  return measure_lookups(bench, *index, seconds, index->memory_bytes() - before);
}

Result<Figures> measure(const router::IndexBench& bench, std::string_view kind) {
  if (kind == "chain") {
    return measure_chains(bench);
  }
  if (kind == "ttl") {
    return measure_routed(bench);
  }
  if (kind == "radix") {
    return measure_oracle(bench);
  }
  return Error(Code::kInvalidArgument,
               fmt::format("--index must be chain, ttl or radix, not '{}'", kind));
}

void print_json(const Figures& figures) {
  print(fmt::format(
      R"({{"index":"{}","requests":{},"blocks":{},"lookup_p50_ns":{:.0f},"lookup_p99_ns":{:.0f},)"
      R"("contended_p50_ns":{:.0f},"contended_p99_ns":{:.0f},"apply_blocks_per_s":{:.0f},)"
      R"("bytes_per_holder_block":{:.2f},"score_sum":{},"snapshot_bytes":{},"save_s":{:.4f},)"
      R"("restore_s":{:.4f}}})"
      "\n",
      figures.kind, figures.requests, figures.blocks, figures.lookups.p50_ns,
      figures.lookups.p99_ns, figures.contended.p50_ns, figures.contended.p99_ns,
      figures.blocks_per_s, figures.bytes_per_holder_block, figures.lookups.score_sum,
      figures.snapshot_bytes, figures.save_s, figures.restore_s));
}

void print_table(const Figures& figures) {
  print(fmt::format("{} requests, {} blocks\n", figures.requests, figures.blocks));
  print(fmt::format("apply    {:.1f} M blocks/s\n", figures.blocks_per_s / 1e6));
  print(fmt::format("lookup   p50 {:.0f} ns, p99 {:.0f} ns\n", figures.lookups.p50_ns,
                    figures.lookups.p99_ns));
  if (figures.contended.p50_ns > 0) {
    print(fmt::format("  while a writer works: p50 {:.0f} ns, p99 {:.0f} ns\n",
                      figures.contended.p50_ns, figures.contended.p99_ns));
  }
  print(fmt::format("memory   {:.1f} bytes per (block, holder)\n", figures.bytes_per_holder_block));
  if (figures.snapshot_bytes > 0) {
    print(fmt::format("snapshot {:.1f} MB, saved in {:.0f} ms, restored in {:.0f} ms\n",
                      static_cast<double>(figures.snapshot_bytes) / 1e6, figures.save_s * 1e3,
                      figures.restore_s * 1e3));
  }
  print(fmt::format("score    {} matched blocks\n", figures.lookups.score_sum));
}

}  // namespace

Status run_index_bench(Invocation& invocation) {
  STATOR_TRY(const uint32_t tokens,
             number_option(invocation, "--tokens-per-block", kTokensPerHash, 1, kTokensPerHash));
  STATOR_TRY(const uint32_t workers, number_option(invocation, "--workers", 16, 1, 10'000));
  if (kTokensPerHash % tokens != 0) {
    return Error(Code::kInvalidArgument, "--tokens-per-block must divide 512");
  }
  const auto option = invocation.options.find("--index");
  const std::string kind = option == invocation.options.end() ? "chain" : option->second;
  STATOR_TRY(const auto prompts, read_prompts(invocation.positionals.front()));
  const router::IndexBench bench(prompts,
                                 {.workers = workers,
                                  .blocks_per_hash = kTokensPerHash / tokens,
                                  .opaque_names = invocation.options.contains("--opaque-names")});
  STATOR_TRY(Figures figures, measure(bench, kind));
  figures.kind = kind;
  invocation.options.contains("--json") ? print_json(figures) : print_table(figures);
  return {};
}

Status run_index_trial(Invocation& invocation) {
  STATOR_TRY(const uint32_t operations,
             number_option(invocation, "--operations", 1'000'000, 1, UINT32_MAX));
  STATOR_TRY(const uint32_t seed, number_option(invocation, "--seed", 1, 0, UINT32_MAX));
  STATOR_TRY(const auto tally, router::run_index_trial({.operations = operations, .seed = seed}));
  print(fmt::format(
      R"({{"seed":{},"operations":{},"events":{},"lookups":{},"event_blocks":{},)"
      R"("matched_blocks":{},"oracle_blocks":{},"evicted_blocks":{},"disagreements":0}})"
      "\n",
      seed, tally.operations, tally.events, tally.lookups, tally.event_blocks, tally.matched_blocks,
      tally.oracle_blocks, tally.evicted_blocks));
  return {};
}

}  // namespace stator::cli
