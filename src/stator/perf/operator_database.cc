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
/// A precision whose shortest kernel takes so many times the shortest of all was measured at the
/// pace of the host; times below so many of its shortest ones are the host's.
constexpr double kHostPace = 4;
constexpr double kHostReach = 2;
/// Precisions that may answer for one another, if bytes and flops agree.
constexpr std::string_view kSiblings[] = {"fp8", "fp8_static", "fp8_block"};

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

/// Rows from which arithmetic is the limit; 0: never.
double kink_of(const EngineSpec& spec, const QuantMode& mode, double n, double k) {
  const double bandwidth = spec.system.memory_bytes_per_s;
  const double per_row =
      2 * n * k / flops_of(spec.system, mode) - (mode.bytes * k + kActivationBytes * n) / bandwidth;
  return per_row > 0 ? mode.bytes * n * k / bandwidth / per_row : 0;
}

/// Light has a kink there, time has none that is known: a sample keeps what lies between on the
/// line of the two beside it, in logarithms.
void add_kink(double m, std::vector<std::pair<double, double>>& times) {
  std::ranges::sort(times);
  const auto high = std::ranges::lower_bound(times, m, {}, &std::pair<double, double>::first);
  if (high == times.begin() || high == times.end() || high->first == m) {
    return;
  }
  const auto& [m0, t0] = *std::prev(high);
  const auto& [m1, t1] = *high;
  const double part = std::log(m / m0) / std::log(m1 / m0);
  times.emplace_back(m, std::exp(std::lerp(std::log(t0), std::log(t1), part)));
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
  const double math = 2 * rows * m.expert_width() * inner * g / flops_of(spec.system, spec.experts);
  const double share = std::min(1.0, 1.0 * m.experts_per_token / m.experts);
  const double chosen =
      m.experts / ep * (share >= 1 ? 1 : 1 - std::exp(tokens * std::log1p(-share)));
  const double traffic = (chosen * g * m.expert_width() * inner * spec.experts.bytes +
                          rows * (2.0 * m.expert_width() + g * inner) * kActivationBytes / 2) /
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

OperatorDatabase::OperatorDatabase(std::shared_ptr<const OperatorTables> tables)
    : tables_(std::move(tables)) {
  each_row(*tables_, OperatorTable::kGemm, [&](std::span<const double> row) {
    double& shortest = shortest_gemm_.try_emplace(row[0], row[4]).first->second;
    shortest = std::min(shortest, row[4]);
  });
}

OperatorDatabase::Times OperatorDatabase::gemm_times(double dtype) const {
  Times out;
  each_row(*tables_, OperatorTable::kGemm, [&](std::span<const double> row) {
    if (row[0] == dtype) {
      out[{row[2], row[3]}].emplace_back(row[1], row[4]);
    }
  });
  return out;
}

bool OperatorDatabase::replace_host_bound(const EngineSpec& spec, std::string_view dtype,
                                          Times& times) const {
  const double own = shortest_gemm_.at(tables_->dtype(dtype));
  double least = own;
  for (const auto& [each, shortest] : shortest_gemm_) {
    least = std::min(least, shortest);
  }
  if (own < kHostPace * least) {
    return false;
  }
  const QuantMode mode = *find_quant(dtype);
  Times siblings;
  for (const std::string_view name : kSiblings) {
    const auto other = find_quant(name);
    const auto known = shortest_gemm_.find(tables_->dtype(name));
    if (other && name != dtype && known != shortest_gemm_.end() &&
        known->second < kHostPace * least && other->bytes == mode.bytes &&
        flops_of(spec.system, *other) == flops_of(spec.system, mode)) {
      siblings = gemm_times(known->first);
      break;
    }
  }
  for (auto& [shape, curve] : times) {
    const auto sibling = siblings.find(shape);
    std::erase_if(curve, [&](std::pair<double, double>& at) {
      if (at.second >= kHostReach * own) {
        return false;
      }
      if (sibling == siblings.end()) {
        return true;
      }
      const auto found =
          std::ranges::find(sibling->second, at.first, &std::pair<double, double>::first);
      at.second = found == sibling->second.end() ? 0 : std::min(at.second, found->second);
      return found == sibling->second.end();
    });
  }
  std::erase_if(times, [](const auto& each) { return each.second.empty(); });
  return true;
}

OperatorCurve OperatorDatabase::gemm(const EngineSpec& spec, double n, double k,
                                     std::string_view dtype) const {
  const auto mode = find_quant(dtype);
  const double wanted = tables_->dtype(dtype);
  const std::string what = fmt::format("gemm {} {}×{}", dtype, n, k);
  if (!mode || wanted < 0 || tables_->rows(OperatorTable::kGemm).empty()) {
    return missing(fmt::format("{}: roofline, that precision was not measured", what));
  }
  Times sites = gemm_times(wanted);
  if (sites.empty()) {
    return missing(fmt::format("{}: roofline, that precision was not measured", what));
  }
  const bool replaced = replace_host_bound(spec, dtype, sites);
  if (sites.empty()) {
    return missing(fmt::format("{}: roofline, its kernels waited for the host", what));
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
    add_kink(kink_of(spec, *mode, shape.first, shape.second), sites[shape]);
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
  if (replaced) {
    out.note = (out.note.empty() ? what + ":" : out.note + ";") +
               " short kernels waited for the host, another precision answers for them";
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
                  m.experts, m.expert_width(), m.expert_intermediate);
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
          log_distance(row[3], m.expert_width()) + log_distance(row[4], m.expert_intermediate) +
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
  measured.model.expert_hidden = static_cast<uint32_t>(shape[2]);
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
