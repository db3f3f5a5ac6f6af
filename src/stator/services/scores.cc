// SPDX-License-Identifier: Apache-2.0
#include "stator/services/scores.h"

#include <algorithm>

#include "stator/api/json_writer.h"

namespace stator::services {
namespace {

void write_ranks(api::JsonWriter& json, const InstanceScore& score) {
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
  api::JsonWriter json(out);
  json.begin_object().key("longest_matched").value(score.disk).key("gpu").value(score.gpu);
  json.key("dp");
  write_ranks(json, score);
  json.key("cpu").value(score.cpu).key("disk").value(score.disk).end_object();
  return out;
}

std::string render_scores(std::span<const router::Overlap> overlaps, uint32_t block_size) {
  const auto scores = score_instances(overlaps, block_size);
  std::string out;
  api::JsonWriter json(out);
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

}  // namespace stator::services
