// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index_bench.h"

#include <algorithm>

#include "stator/core/flat_map.h"

namespace stator::router {
namespace {

using blocks::ExternalHash;
using blocks::LocalHash;
using blocks::SequenceHash;

double nanoseconds(Duration duration) {
  return static_cast<double>(duration.count());
}

double quantile(std::vector<double>& samples, double q) {
  if (samples.empty()) {
    return 0;
  }
  const auto at =
      samples.begin() + static_cast<ptrdiff_t>(q * static_cast<double>(samples.size() - 1));
  std::ranges::nth_element(samples, at);
  return *at;
}

}  // namespace

IndexBench::IndexBench(std::span<const std::vector<uint64_t>> prompts,
                       const IndexBenchConfig& config)
    : workers_(config.workers) {
  prompts_.reserve(prompts.size());
  for (const auto& ids : prompts) {
    Prompt prompt;
    for (const uint64_t id : ids) {
      for (uint32_t part = 0; part < config.blocks_per_hash; ++part) {
        const LocalHash local(mix64(id * config.blocks_per_hash + part + 1));
        prompt.sequences.push_back(prompt.sequences.empty()
                                       ? blocks::chain(local)
                                       : blocks::chain(prompt.sequences.back(), local));
        prompt.locals.push_back(local);
      }
    }
    prompts_.push_back(std::move(prompt));
  }

  const auto name = [&](SequenceHash sequence) {
    return ExternalHash(config.opaque_names ? mix64(sequence.value()) : sequence.value());
  };
  std::vector<FlatSet<SequenceHash>> held(config.workers);
  for (size_t i = 0; i < prompts_.size(); ++i) {
    const Prompt& prompt = prompts_[i];
    auto& mine = held[i % config.workers];
    size_t known = 0;
    while (known < prompt.sequences.size() && mine.contains(prompt.sequences[known])) {
      ++known;
    }
    kv::BlocksStored run;
    if (known > 0) {
      run.parent = name(prompt.sequences[known - 1]);
    }
    for (size_t at = known; at < prompt.sequences.size(); ++at) {
      mine.insert(prompt.sequences[at]);
      run.blocks.push_back({name(prompt.sequences[at]), prompt.locals[at]});
    }
    if (run.blocks.empty()) {
      continue;
    }
    blocks_ += run.blocks.size();
    updates_.push_back(
        {{WorkerId(i % config.workers + 1), 0}, {.event_id = i + 1, .data = std::move(run)}});
  }
}

double IndexBench::store_all(KvIndex& index, const Clock& clock) const {
  const TimePoint start = clock.now();
  for (const Update& update : updates_) {
    index.apply(update.worker, update.event);
  }
  return nanoseconds(clock.now() - start) / 1e9;
}

double IndexBench::route_all(TtlIndex& index, const Clock& clock) const {
  const TimePoint start = clock.now();
  for (size_t i = 0; i < prompts_.size(); ++i) {
    index.record({WorkerId(i % workers_ + 1), 0}, prompts_[i].sequences, start);
  }
  return nanoseconds(clock.now() - start) / 1e9;
}

IndexBench::Lookups IndexBench::look_up_all(const KvIndex& index, const Clock& clock) const {
  Lookups lookups;
  std::vector<double> samples;
  samples.reserve(prompts_.size());
  std::vector<Overlap> found;
  for (const Prompt& prompt : prompts_) {
    const TimePoint start = clock.now();
    index.find_longest_match(prompt.sequences, found);
    samples.push_back(nanoseconds(clock.now() - start));
    for (const Overlap& overlap : found) {
      lookups.score_sum += overlap.blocks;
    }
  }
  lookups.p50_ns = quantile(samples, 0.50);
  lookups.p99_ns = quantile(samples, 0.99);
  return lookups;
}

void IndexBench::churn(KvIndex& index, Random& random, uint32_t runs) const {
  if (updates_.empty()) {
    return;
  }
  for (uint32_t i = 0; i < runs; ++i) {
    const Update& update = updates_[random.below(updates_.size())];
    kv::BlocksRemoved removed;
    for (const kv::StoredBlock& block : std::get<kv::BlocksStored>(update.event.data).blocks) {
      removed.blocks.push_back(block.external);
    }
    index.apply(update.worker, {.event_id = 1, .data = std::move(removed)});
    index.apply(update.worker, update.event);
  }
}

}  // namespace stator::router
