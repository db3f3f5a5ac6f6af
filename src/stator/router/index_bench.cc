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
  const uint32_t parts = config.blocks_per_hash;
  const auto local = [&](size_t prompt, size_t block) {
    return LocalHash(mix64(prompts[prompt][block / parts] * parts + block % parts + 1));
  };
  queries_.reserve(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<SequenceHash> query;
    query.reserve(prompts[i].size() * parts);
    for (size_t at = 0; at < prompts[i].size() * parts; ++at) {
      query.push_back(at == 0 ? blocks::chain(local(i, at))
                              : blocks::chain(query.back(), local(i, at)));
    }
    queries_.push_back(std::move(query));
  }

  const auto name = [&](SequenceHash sequence) {
    return ExternalHash(config.opaque_names ? mix64(sequence.value()) : sequence.value());
  };
  std::vector<FlatSet<SequenceHash>> held(config.workers);
  for (size_t i = 0; i < queries_.size(); ++i) {
    const std::vector<SequenceHash>& query = queries_[i];
    auto& mine = held[i % config.workers];
    size_t known = 0;
    while (known < query.size() && mine.contains(query[known])) {
      ++known;
    }
    kv::BlocksStored run;
    if (known > 0) {
      run.parent = name(query[known - 1]);
    }
    for (size_t at = known; at < query.size(); ++at) {
      mine.insert(query[at]);
      run.blocks.push_back({name(query[at]), local(i, at)});
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
  for (size_t i = 0; i < queries_.size(); ++i) {
    index.record({WorkerId(i % workers_ + 1), 0}, queries_[i], start);
  }
  return nanoseconds(clock.now() - start) / 1e9;
}

IndexBench::Lookups IndexBench::look_up_all(const KvIndex& index, const Clock& clock) const {
  Lookups lookups;
  std::vector<double> samples;
  samples.reserve(queries_.size());
  std::vector<Overlap> found;
  for (const std::vector<SequenceHash>& query : queries_) {
    const TimePoint start = clock.now();
    index.find_longest_match(query, found);
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
