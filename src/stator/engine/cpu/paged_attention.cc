// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/paged_attention.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace stator::engine::cpu {
namespace {

constexpr float kNoScore = -1e30F;  // below every real one, and finite

}  // namespace

PagedAttention::PagedAttention(const Shape& shape, const Kernels& kernels, ThreadTeam& team,
                               KvArena& cache)
    : shape_(shape), kernels_(kernels), team_(team), cache_(cache), scratch_(team.size()) {
  const size_t dim = cache.layout().padded_dim();
  const bool gathers = cache.layout().block_size % kLanes != 0;
  for (Scratch& scratch : scratch_) {
    scratch.queries.resize(dim * kTileRows);
    scratch.out.resize(dim * kTileRows);
    if (gathers) {
      const size_t bytes = dim * kAttentionTokens * cache.layout().element_bytes();
      scratch.keys.resize(bytes);
      scratch.values.resize(bytes);
      scratch.key_scales.resize(kAttentionTokens);
      scratch.value_scales.resize(kAttentionTokens);
    }
  }
}

void PagedAttention::cut() {
  runs_.clear();
  const uint32_t group = shape_.heads / shape_.kv_heads;
  const auto longest = static_cast<uint32_t>(std::max<int64_t>(1, kTileRows / group));
  for (uint32_t row = 0; row < rows_.size(); ++row) {
    const bool follows = row > 0 && rows_[row].blocks.data() == rows_[row - 1].blocks.data() &&
                         rows_[row].position == rows_[row - 1].position + 1;
    if (!follows || runs_.back().count == longest) {
      runs_.push_back({.first = row});
    }
    ++runs_.back().count;
  }
}

void PagedAttention::run(const Layer& layer, const Buffers& buffers) {
  const auto runs = static_cast<int64_t>(runs_.size());
  const uint32_t group = shape_.heads / shape_.kv_heads;
  const auto heads_at_once = std::min(group, static_cast<uint32_t>(kTileRows));
  team_.run(runs * shape_.kv_heads, [&](int64_t item, uint32_t member) {
    // The latest rows see the most keys: start with them, so that no member ends with a long one.
    Part part{.run = runs_[static_cast<size_t>(runs - 1 - item / shape_.kv_heads)],
              .kv_head = static_cast<uint32_t>(item % shape_.kv_heads)};
    for (uint32_t head = 0; head < group; head += heads_at_once) {
      part.head = part.kv_head * group + head;
      part.heads = std::min(heads_at_once, group - head);
      attend(layer, buffers, part, scratch_[member]);
    }
  });
}

void PagedAttention::attend(const Layer& layer, const Buffers& buffers, const Part& part,
                            Scratch& scratch) {
  const int64_t dim = shape_.head_dim;
  const auto padded = static_cast<int64_t>(cache_.layout().padded_dim());
  const uint32_t rows = part.run.count * part.heads;
  std::array<float, kTileRows> maxima;
  std::array<float, kTileRows> sums;
  std::array<int64_t, kTileRows> begin;
  std::array<int64_t, kTileRows> end;
  const auto position_of = [&](uint32_t row) {
    return rows_[part.run.first + row / part.heads].position;
  };
  const auto head_of = [&](uint32_t row) { return part.head + row % part.heads; };
  std::ranges::fill(scratch.out, 0.0F);
  std::ranges::fill(scratch.queries, 0.0F);
  for (uint32_t row = 0; row < rows; ++row) {
    const float* query = buffers.queries +
                         (part.run.first + row / part.heads) * buffers.query_stride +
                         head_of(row) * dim;
    for (int64_t d = 0; d < dim; ++d) {
      scratch.queries[static_cast<size_t>(d * kTileRows + row)] = query[d];
    }
    maxima[row] = layer.sinks != nullptr ? layer.sinks[head_of(row)] : kNoScore;
    sums[row] = layer.sinks != nullptr ? 1.0F : 0.0F;  // takes its share and gives nothing
  }
  AttentionTile tile{.queries = scratch.queries.data(),
                     .rows = rows,
                     .dim = padded,
                     .scale = shape_.scale,
                     .softcap = shape_.softcap,
                     .begin = begin.data(),
                     .end = end.data(),
                     .maxima = maxima.data(),
                     .sums = sums.data(),
                     .out = scratch.out.data(),
                     .out_stride = padded};
  const auto seen_from = [&](uint32_t position) {
    return layer.window != 0 && position + 1 > layer.window ? position + 1 - layer.window : 0;
  };
  const uint32_t last = position_of(rows - 1);
  const auto round = static_cast<uint32_t>(kAttentionTokens);
  for (uint32_t first = seen_from(position_of(0)) / round * round; first <= last; first += round) {
    tile.count = std::min(round, last + 1 - first);
    for (uint32_t row = 0; row < rows; ++row) {
      const auto relative = [&](uint32_t position) {
        return std::clamp(int64_t{position} - first, int64_t{0}, kAttentionTokens);
      };
      begin[row] = relative(seen_from(position_of(row)));
      end[row] = relative(position_of(row) + 1);
    }
    if (cache_.layout().block_size % kLanes == 0) {
      point(tile, layer, part, first);
    } else {
      gather(tile, layer, part, first, scratch);
    }
    kernels_.attend[static_cast<size_t>(cache_.layout().type)](tile);
  }
  for (uint32_t row = 0; row < rows; ++row) {
    float* from = scratch.out.data() + row * padded;
    kernels_.scale(from, 1.0F / sums[row], padded);
    std::copy_n(from, dim,
                buffers.out + (part.run.first + row / part.heads) * buffers.out_stride +
                    head_of(row) * dim);
  }
}

void PagedAttention::point(AttentionTile& tile, const Layer& layer, const Part& part,
                           uint32_t first) const {
  const KvLayout& layout = cache_.layout();
  const std::span<const kv::BlockId> blocks = rows_[part.run.first].blocks;
  tile.key_stride = layout.block_size;
  for (int64_t group = 0; group * kLanes < tile.count; ++group) {
    const auto token = first + static_cast<uint32_t>(group * kLanes);
    const uint32_t offset = token % layout.block_size;
    const kv::BlockId block = blocks[token / layout.block_size];
    std::byte* keys = cache_.keys(block, layer.index, part.kv_head);
    std::byte* values = cache_.values(block, layer.index, part.kv_head);
    AttentionTile::Tokens& tokens = tile.tokens[group];
    tokens.keys = keys + offset * layout.element_bytes();
    tokens.values = values + offset * layout.padded_dim() * layout.element_bytes();
    if (layout.type == KvType::kInt8) {
      tokens.key_scales = cache_.scales(keys) + offset;
      tokens.value_scales = cache_.scales(values) + offset;
    }
  }
}

void PagedAttention::gather(AttentionTile& tile, const Layer& layer, const Part& part,
                            uint32_t first, Scratch& scratch) const {
  const KvLayout& layout = cache_.layout();
  const std::span<const kv::BlockId> blocks = rows_[part.run.first].blocks;
  const size_t size = layout.element_bytes();
  const size_t dim = layout.padded_dim();
  tile.key_stride = kAttentionTokens;
  for (uint32_t done = 0; done < tile.count;) {
    const uint32_t token = first + done;
    const uint32_t offset = token % layout.block_size;
    const auto count =
        std::min(layout.block_size - offset, static_cast<uint32_t>(tile.count) - done);
    const kv::BlockId block = blocks[token / layout.block_size];
    std::byte* keys = cache_.keys(block, layer.index, part.kv_head);
    std::byte* values = cache_.values(block, layer.index, part.kv_head);
    for (size_t d = 0; d < dim; ++d) {
      std::memcpy(scratch.keys.data() + (d * kAttentionTokens + done) * size,
                  keys + (d * layout.block_size + offset) * size, count * size);
    }
    std::memcpy(scratch.values.data() + done * dim * size, values + offset * dim * size,
                count * dim * size);
    if (layout.type == KvType::kInt8) {
      std::copy_n(cache_.scales(keys) + offset, count, scratch.key_scales.data() + done);
      std::copy_n(cache_.scales(values) + offset, count, scratch.value_scales.data() + done);
    }
    done += count;
  }
  for (size_t group = 0; group < kAttentionTokens / kLanes; ++group) {
    AttentionTile::Tokens& tokens = tile.tokens[group];
    tokens.keys = scratch.keys.data() + group * kLanes * size;
    tokens.values = scratch.values.data() + group * kLanes * dim * size;
    if (layout.type == KvType::kInt8) {
      tokens.key_scales = scratch.key_scales.data() + group * kLanes;
      tokens.value_scales = scratch.value_scales.data() + group * kLanes;
    }
  }
}

}  // namespace stator::engine::cpu
