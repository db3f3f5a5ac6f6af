// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/operator_database.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <utility>

#include "stator/perf/engine_model.h"

namespace stator::perf {
namespace {

constexpr double kMs = 1e3;
constexpr size_t kNear = 4;
constexpr double kActivationBytes = 2;

double log_distance(double a, double b) {
  return std::abs(std::log2(std::max(1e-9, a) / std::max(1e-9, b)));
}

/// Arithmetic or traffic, whichever takes longer, of a product with m rows.
double gemm_light_ms(const EngineSpec& spec, const QuantMode& mode, double m, double n, double k) {
  const double math = 2 * m * n * k / flops_of(spec.system, mode);
  const double traffic =
      (mode.bytes * (n * k + m * k) + kActivationBytes * m * n) / spec.system.memory_bytes_per_s;
  return std::max(math, traffic) * kMs;
}

double attention_light_ms(const EngineSpec& spec, bool generation, double heads, double kv_heads,
                          double dim, double tokens, double batch) {
  const double bandwidth = spec.system.memory_bytes_per_s;
  if (generation) {
    const double flops =
        spec.system.bfloat16_flops * (spec.kv.lane == QuantMode::Lane::kFp8 ? 2 : 1);
    const double math = 4 * batch * heads * dim * tokens / flops;
    const double traffic =
        batch * (4 * heads * dim + 2 * kv_heads * tokens * dim * spec.kv.bytes) / bandwidth;
    return std::max(math, traffic) * kMs;
  }
  const double math = 2 * batch * tokens * tokens * heads * dim / spec.system.bfloat16_flops;
  const double traffic = batch * tokens * dim *
                         (2 * kActivationBytes * heads + 2 * spec.kv.bytes * kv_heads) / bandwidth;
  return std::max(math, traffic) * kMs;
}

double experts_light_ms(const EngineSpec& spec, double tokens, double tp, double ep) {
  const ModelConfig& m = spec.model;
  const double rows = tokens * m.experts_per_token / ep;
  const double inner = m.expert_intermediate / tp, g = m.gemms_per_ffn;
  const double math = 2 * rows * m.hidden * inner * g / flops_of(spec.system, spec.experts);
  const double share = std::min(1.0, 1.0 * m.experts_per_token / m.experts);
  const double chosen =
      m.experts / ep * (share >= 1 ? 1 : 1 - std::exp(tokens * std::log1p(-share)));
  const double traffic = (chosen * g * m.hidden * inner * spec.experts.bytes +
                          rows * (2.0 * m.hidden + g * inner) * kActivationBytes / 2) /
                         spec.system.memory_bytes_per_s;
  return std::max(math, traffic) * kMs;
}

/// Rows of a table as spans of their columns.
template <typename Visit>
void each_row(const OperatorTables& tables, OperatorTable table, Visit visit) {
  const size_t columns = columns_of(table);
  const std::span<const double> rows = tables.rows(table);
  for (size_t at = 0; at + columns <= rows.size(); at += columns) {
    const std::span<const double> row = rows.subspan(at, columns);
    if (row.back() > 0 && std::isfinite(row.back())) {
      visit(row);
    }
  }
}

void note_size(OperatorCurve& curve, double size) {
  curve.low = curve.low == 0 ? size : std::min(curve.low, size);
  curve.high = std::max(curve.high, size);
}

OperatorCurve missing(std::string note) {
  OperatorCurve out;
  out.provenance = Provenance::kRoofline;
  out.note = std::move(note);
  return out;
}

}  // namespace

Result<std::shared_ptr<const OperatorDatabase>> OperatorDatabase::read(const std::string& path,
                                                                       const EngineSpec& spec) {
  std::error_code ignored;
  std::shared_ptr<const OperatorTables> tables;
  if (std::filesystem::is_regular_file(path, ignored)) {
    STATOR_TRY(tables, OperatorTables::open(path));
    if (tables->system() != spec.system.name || tables->backend() != name_of(spec.backend)) {
      return Error(Code::kInvalidArgument,
                   fmt::format("'{}' is of {} on {}, wanted is {} on {}", path, tables->backend(),
                               tables->system(), name_of(spec.backend), spec.system.name));
    }
  } else {
    STATOR_TRY(tables, OperatorTables::read(path, spec.system.name, name_of(spec.backend)));
  }
  return std::make_shared<const OperatorDatabase>(std::move(tables));
}

OperatorCurve OperatorDatabase::gemm(const EngineSpec& spec, double n, double k,
                                     std::string_view dtype) const {
  const auto mode = find_quant(dtype);
  const double wanted = tables_->dtype(dtype);
  const std::string what = fmt::format("gemm {} {}×{}", dtype, n, k);
  if (!mode || wanted < 0 || tables_->rows(OperatorTable::kGemm).empty()) {
    return missing(fmt::format("{}: roofline, that precision was not measured", what));
  }
  std::map<std::pair<double, double>, std::vector<std::pair<double, double>>> sites;
  each_row(*tables_, OperatorTable::kGemm, [&](std::span<const double> row) {
    if (row[0] == wanted) {
      sites[{row[2], row[3]}].emplace_back(row[1], row[4]);
    }
  });
  if (sites.empty()) {
    return missing(fmt::format("{}: roofline, that precision was not measured", what));
  }
  std::vector<std::pair<double, std::pair<double, double>>> near;
  for (const auto& [shape, curve] : sites) {
    near.emplace_back(std::hypot(log_distance(shape.first, n), log_distance(shape.second, k)),
                      shape);
  }
  std::ranges::sort(near);
  OperatorCurve out;
  const bool exact = near.front().first < 1e-9;
  near.resize(exact ? 1 : std::min(kNear, near.size()));
  std::set<double> sizes;
  std::vector<UtilisationGrid> grids(near.size());
  for (size_t i = 0; i < near.size(); ++i) {
    const auto& [distance, shape] = near[i];
    for (const auto& [m, latency] : sites[shape]) {
      grids[i].add(m, 1, gemm_light_ms(spec, *mode, m, shape.first, shape.second) / latency);
      sizes.insert(m);
    }
  }
  for (const double m : sizes) {
    double weights = 0, sum = 0;
    for (size_t i = 0; i < near.size(); ++i) {
      const double weight = exact ? 1 : 1 / (near[i].first * near[i].first);
      weights += weight;
      sum += weight * grids[i].at(m, 1);
    }
    out.utilisation.add(m, 1, sum / weights);
    note_size(out, m);
  }
  out.provenance = exact                      ? Provenance::kInterpolated
                   : near.front().first < 1.5 ? Provenance::kInterpolated
                                              : Provenance::kExtrapolated;
  if (!exact) {
    out.note = fmt::format("{}: blended from {} other shapes, the nearest {}×{}", what, near.size(),
                           near.front().second.first, near.front().second.second);
  }
  return out;
}

OperatorCurve OperatorDatabase::attention(const EngineSpec& spec, bool generation, double heads,
                                          double kv_heads, double head_dim, double window) const {
  const OperatorTable table = generation ? OperatorTable::kGeneration : OperatorTable::kContext;
  const std::string what = fmt::format("{} {}/{} heads of {}{}", name_of(table), heads, kv_heads,
                                       head_dim, window > 0 ? " with a window" : "");
  const double wanted = tables_->dtype(spec.kv.name == "bfloat16" ? "bfloat16" : spec.kv.name);
  using Shape = std::array<double, 5>;  // kv dtype, heads, kv heads, dim, window
  std::map<Shape, double> distances;
  each_row(*tables_, table, [&](std::span<const double> row) {
    const double kv = row[2] == 0 ? row[1] : row[2];
    const Shape shape{row[0], row[1], kv, row[3], row[4]};
    if (distances.contains(shape) || (window > 0) != (row[4] > 0)) {
      return;
    }
    distances[shape] = std::hypot(log_distance(row[1], heads), log_distance(kv, kv_heads)) +
                       2 * log_distance(row[3], head_dim) + (row[0] == wanted ? 0 : 0.5) +
                       (window > 0 ? log_distance(row[4], window) : 0);
  });
  if (distances.empty()) {
    return missing(fmt::format("{}: roofline, nothing like it was measured", what));
  }
  const auto best =
      std::ranges::min_element(distances, {}, [](const auto& each) { return each.second; });
  const Shape& shape = best->first;
  OperatorCurve out;
  each_row(*tables_, table, [&](std::span<const double> row) {
    const double kv = row[2] == 0 ? row[1] : row[2];
    if (Shape{row[0], row[1], kv, row[3], row[4]} != shape || !(row[5] > 0) || !(row[6] > 0)) {
      return;
    }
    const double reach = window > 0 && generation ? std::min(row[5], row[4]) : row[5];
    out.utilisation.add(
        row[5], row[6],
        attention_light_ms(spec, generation, row[1], kv, row[3], reach, row[6]) / row[7]);
    note_size(out, row[5]);
  });
  out.provenance = best->second < 1e-9 ? Provenance::kInterpolated : Provenance::kExtrapolated;
  if (best->second >= 1e-9) {
    out.note = fmt::format("{}: as {}/{} heads of {}", what, shape[1], shape[2], shape[3]);
  }
  return out;
}

OperatorCurve OperatorDatabase::experts(const EngineSpec& spec) const {
  const ModelConfig& m = spec.model;
  const std::string what =
      fmt::format("moe {} {} of {} experts, {}×{}", spec.experts.name, m.experts_per_token,
                  m.experts, m.hidden, m.expert_intermediate);
  const double wanted = tables_->dtype(spec.experts.name);
  using Shape = std::array<double, 6>;  // top k, experts, hidden, inner, tp, ep
  std::map<Shape, double> distances;
  each_row(*tables_, OperatorTable::kMoe, [&](std::span<const double> row) {
    if (row[0] != wanted) {
      return;
    }
    const Shape shape{row[1], row[2], row[3], row[4], row[5], row[6]};
    if (!distances.contains(shape)) {
      distances[shape] =
          log_distance(row[1], m.experts_per_token) + log_distance(row[2], m.experts) +
          log_distance(row[3], m.hidden) + log_distance(row[4], m.expert_intermediate) +
          log_distance(row[5], spec.parallel.moe_tp) + log_distance(row[6], spec.parallel.moe_ep);
    }
  });
  if (distances.empty()) {
    return missing(fmt::format("{}: roofline, that precision was not measured", what));
  }
  const auto best =
      std::ranges::min_element(distances, {}, [](const auto& each) { return each.second; });
  const Shape& shape = best->first;
  EngineSpec measured = spec;
  measured.model.experts_per_token = static_cast<uint32_t>(shape[0]);
  measured.model.experts = static_cast<uint32_t>(shape[1]);
  measured.model.hidden = static_cast<uint32_t>(shape[2]);
  measured.model.expert_intermediate = static_cast<uint32_t>(shape[3]);
  OperatorCurve out;
  each_row(*tables_, OperatorTable::kMoe, [&](std::span<const double> row) {
    if (row[0] == wanted && Shape{row[1], row[2], row[3], row[4], row[5], row[6]} == shape) {
      out.utilisation.add(row[7], 1, experts_light_ms(measured, row[7], row[5], row[6]) / row[8]);
      note_size(out, row[7]);
    }
  });
  out.provenance = best->second < 1e-9 ? Provenance::kInterpolated : Provenance::kExtrapolated;
  if (best->second >= 1e-9) {
    out.note = fmt::format("{} over tp {} ep {}: as {} of {} experts, {}×{} over tp {} ep {}", what,
                           spec.parallel.moe_tp, spec.parallel.moe_ep, shape[0], shape[1], shape[2],
                           shape[3], shape[4], shape[5]);
  }
  return out;
}

OperatorCurve OperatorDatabase::all_reduce(const EngineSpec& spec, uint32_t ranks) const {
  OperatorCurve out;
  double most = 0;
  each_row(*tables_, OperatorTable::kAllReduce, [&](std::span<const double> row) {
    most = std::max(most, std::min<double>(row[0], ranks));
  });
  each_row(*tables_, OperatorTable::kAllReduce, [&](std::span<const double> row) {
    if (row[0] == most && row[1] > 0) {
      const double light = 2 * kActivationBytes * row[1] * (most - 1) / most /
                           spec.system.link_bytes_per_s(static_cast<uint32_t>(most)) * kMs;
      out.utilisation.add(row[1], 1, light / row[2]);
      note_size(out, row[1]);
    }
  });
  if (out.empty()) {
    return missing(fmt::format("all-reduce over {} GPUs: roofline, not measured", ranks));
  }
  out.provenance = most == ranks ? Provenance::kInterpolated : Provenance::kExtrapolated;
  if (most != ranks) {
    out.note = fmt::format("all-reduce over {} GPUs: as over {}", ranks, most);
  }
  return out;
}

}  // namespace stator::perf
