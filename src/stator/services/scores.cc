// SPDX-License-Identifier: Apache-2.0
#include "stator/services/scores.h"

#include <algorithm>

#include "stator/json/writer.h"

namespace stator::services {
namespace {

void write_ranks(json::Writer& json, const InstanceScore& score) {
  json.begin_object();
  for (const auto& [rank, tokens] : score.ranks) {
    json.key(std::to_string(rank)).value(tokens);
  }
  json.end_object();
}

}  // namespace

std::vector<InstanceScore> score_instances(std::span<const router::Overlap> overlaps,
                                           uint32_t block_size) {
  std::vector<router::Overlap> sorted(overlaps.begin(), overlaps.end());
  std::ranges::sort(sorted, {}, &router::Overlap::worker);
  std::vector<InstanceScore> scores;
  for (const router::Overlap& overlap : sorted) {
    if (scores.empty() || scores.back().instance != overlap.worker.worker) {
      scores.push_back({.instance = overlap.worker.worker});
    }
    InstanceScore& score = scores.back();
    const uint64_t gpu = uint64_t{overlap.blocks} * block_size;
    const uint64_t cpu = gpu + uint64_t{overlap.host_blocks} * block_size;
    const uint64_t below = uint64_t{overlap.disk_blocks} + overlap.external_blocks;
    score.gpu = std::max(score.gpu, gpu);
    score.cpu = std::max(score.cpu, cpu);
    score.disk = std::max(score.disk, cpu + below * block_size);
    score.ranks.emplace_back(overlap.worker.dp_rank, gpu);
  }
  return scores;
}

std::string render_instance(const InstanceScore& score) {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("longest_matched").value(score.disk).key("gpu").value(score.gpu);
  json.key("dp");
  write_ranks(json, score);
  json.key("cpu").value(score.cpu).key("disk").value(score.disk).end_object();
  return out;
}

std::string render_scores(std::span<const router::Overlap> overlaps, uint32_t block_size) {
  const auto scores = score_instances(overlaps, block_size);
  std::string out;
  json::Writer json(out);
  json.begin_object().key("scores").begin_object();
  for (const InstanceScore& score : scores) {
    json.key(to_string(score.instance));
    write_ranks(json, score);
  }
  json.end_object().key("frequencies").begin_array().end_array();
  json.key("instances").begin_object();
  for (const InstanceScore& score : scores) {
    json.key(to_string(score.instance)).raw(render_instance(score));
  }
  json.end_object().end_object();
  return out;
}

std::string render_overlaps(std::span<const router::Overlap> overlaps, const OverlapTerms& terms) {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("block_size").value(terms.block_size);
  json.key("num_blocks").value(terms.prompt_blocks).key("workers").begin_array();
  for (const router::Overlap& overlap : overlaps) {
    const uint64_t host = uint64_t{overlap.blocks} + overlap.host_blocks;
    const uint64_t below = uint64_t{overlap.disk_blocks} + overlap.external_blocks;
    json.begin_object().key("worker_id").value(overlap.worker.worker.value());
    json.key("dp_rank").value(overlap.worker.dp_rank).key("device_blocks").value(overlap.blocks);
    json.key("host_pinned_blocks").value(host).key("disk_blocks").value(host + below);
    json.key("host_pinned_extension_blocks").value(overlap.host_blocks);
    json.key("disk_extension_blocks").value(below).key("shared_beyond_device_blocks").null();
    json.key("router_credit_blocks")
        .value(terms.cost.overlap_credit * overlap.blocks +
               terms.cost.host_weight * overlap.host_blocks +
               terms.cost.disk_weight * static_cast<double>(below))
        .end_object();
  }
  json.end_array().key("shared_cache").begin_object().key("enabled").value(false);
  json.key("total_hit_blocks").value(0).key("ranges").begin_array().end_array();
  json.key("error").null().end_object().end_object();
  return out;
}

}  // namespace stator::services
