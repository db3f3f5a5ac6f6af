// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <malloc.h>
#include <simdjson.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <fstream>

#include "stator/cli/command.h"
#include "stator/cli/terminal.h"
#include "stator/net/thread.h"
#include "stator/router/index/chain_index.h"
#include "stator/router/index_bench.h"

namespace stator::cli {
namespace {

constexpr uint32_t kTokensPerHash = 512;  // of the published traces
constexpr size_t kLineBytesMax = 16 << 20;

Result<std::vector<std::vector<uint64_t>>> read_prompts(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    return Error(Code::kNotFound, "cannot open the trace '" + path + "'");
  }
  std::vector<std::vector<uint64_t>> prompts;
  simdjson::dom::parser parser;
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    if (line.empty()) {
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

}  // namespace

Status run_index_bench(Invocation& invocation) {
  STATOR_TRY(const uint32_t tokens,
             number_option(invocation, "--tokens-per-block", kTokensPerHash, 1, kTokensPerHash));
  STATOR_TRY(const uint32_t workers, number_option(invocation, "--workers", 16, 1, 10'000));
  if (kTokensPerHash % tokens != 0) {
    return Error(Code::kInvalidArgument, "--tokens-per-block must divide 512");
  }
  const auto kind_option = invocation.options.find("--index");
  const std::string kind = kind_option == invocation.options.end() ? "chain" : kind_option->second;
  STATOR_TRY(const auto prompts, read_prompts(invocation.positionals.front()));
  const router::IndexBench bench(prompts,
                                 {.workers = workers,
                                  .blocks_per_hash = kTokensPerHash / tokens,
                                  .opaque_names = invocation.options.contains("--opaque-names")});

  const uint64_t heap_before = heap_bytes();
  std::unique_ptr<router::KvIndex> index;
  router::ChainIndex* chain_index = nullptr;
  if (kind == "chain") {
    STATOR_TRY(auto made, router::ChainIndex::create({.bytes_max = 4ULL << 30}));
    chain_index = made.get();
    index = std::move(made);
  } else if (kind == "radix") {
    index = std::make_unique<router::ExactIndex>();
  } else {
    return Error(Code::kInvalidArgument, "--index must be chain or radix, not '" + kind + "'");
  }
  const SystemClock clock;
  const double seconds = bench.store_all(*index, clock);
  const uint64_t bytes =
      chain_index != nullptr ? chain_index->memory_bytes() : heap_bytes() - heap_before;

  router::IndexBench::Lookups lookups;
  for (int pass = 0; pass < 3; ++pass) {
    lookups = bench.look_up_all(*index, clock);
  }
  router::IndexBench::Lookups contended;
  if (chain_index != nullptr) {
    std::atomic<bool> stop{false};
    const net::Thread writer("index-writer", [&] {
      Random random(1);
      while (!stop.load(std::memory_order_relaxed)) {
        bench.churn(*index, random, 16);
      }
    });
    contended = bench.look_up_all(*index, clock);
    stop = true;
  }
  const double per_block = static_cast<double>(bytes) /
                           static_cast<double>(std::max<uint64_t>(1, index->holder_blocks()));
  const double rate = static_cast<double>(bench.blocks()) / std::max(seconds, 1e-9);
  if (invocation.options.contains("--json")) {
    print(fmt::format(
        R"({{"index":"{}","requests":{},"blocks":{},"lookup_p50_ns":{:.0f},"lookup_p99_ns":{:.0f},)"
        R"("contended_p50_ns":{:.0f},"contended_p99_ns":{:.0f},"apply_blocks_per_s":{:.0f},)"
        R"("bytes_per_holder_block":{:.2f},"score_sum":{}}})"
        "\n",
        kind, bench.requests(), bench.blocks(), lookups.p50_ns, lookups.p99_ns, contended.p50_ns,
        contended.p99_ns, rate, per_block, lookups.score_sum));
    return {};
  }
  print(fmt::format("{} requests, {} blocks stored by {} workers\n", bench.requests(),
                    bench.blocks(), workers));
  print(fmt::format("apply    {:.1f} M blocks/s\n", rate / 1e6));
  print(fmt::format("lookup   p50 {:.0f} ns, p99 {:.0f} ns\n", lookups.p50_ns, lookups.p99_ns));
  if (chain_index != nullptr) {
    print(fmt::format("  while a writer works: p50 {:.0f} ns, p99 {:.0f} ns\n", contended.p50_ns,
                      contended.p99_ns));
  }
  print(fmt::format("memory   {:.1f} bytes per (block, holder)\n", per_block));
  print(fmt::format("score    {} matched blocks\n", lookups.score_sum));
  return {};
}

}  // namespace stator::cli
