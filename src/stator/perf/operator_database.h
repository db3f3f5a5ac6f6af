// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/perf/measured_costs.h"
#include "stator/perf/operator_tables.h"

namespace stator::perf {

struct EngineSpec;
enum class Provenance : uint8_t;

/// What part of the speed of light one operator reached when it was measured, over its sizes, and
/// how well that fits the operator asked for.
struct OperatorCurve {
  UtilisationGrid utilisation;
  double low = 0, high = 0;  ///< sizes that were measured, of the first axis
  Provenance provenance{};   ///< worst of: measured shape, blended from others, beyond all
  std::string note;          ///< what is missing; empty: it was measured
  bool empty() const { return utilisation.empty(); }
};

/// Measured kernels by operator, for engine models of one GPU and framework. Immutable; shared by
/// all of them.
///
/// A shape that was measured answers from its own curve: exact where a size was measured, blended
/// by logarithms between, with the border's utilisation beyond. A matrix shape that was not is
/// blended from the nearest ones in log2 of both sides; heads, experts from the nearest measured
/// set. Utilisation is carried over, never time, so that work and light still count. What has no
/// anchor at all gives an empty curve: the caller falls back on the roofline and says so.
class OperatorDatabase {
 public:
  /// `path`: a folder as OperatorTables::read() takes it, or a file of OperatorTables::save(),
  /// which must be of the spec's GPU and framework.
  static Result<std::shared_ptr<const OperatorDatabase>> read(const std::string& path,
                                                              const EngineSpec& spec);
  explicit OperatorDatabase(std::shared_ptr<const OperatorTables> tables);

  /// Of products with so many columns over so many; the axis is rows. A precision whose kernels
  /// were launched one by one, and waited for the host, says nothing about the GPU where they were
  /// short: there the sibling with as many bytes and flops answers, and the note says so.
  OperatorCurve gemm(const EngineSpec& spec, double n, double k, std::string_view dtype) const;
  OperatorCurve attention(const EngineSpec& spec, bool generation, double heads, double kv_heads,
                          double head_dim, double window) const;
  OperatorCurve experts(const EngineSpec& spec) const;
  OperatorCurve all_reduce(const EngineSpec& spec, uint32_t ranks) const;
  const OperatorTables& tables() const { return *tables_; }

 private:
  using GemmShape = std::pair<double, double>;  // columns, and what is summed over
  using Times = std::map<GemmShape, std::vector<std::pair<double, double>>>;  // rows, milliseconds
  Times gemm_times(double dtype) const;
  bool replace_host_bound(const EngineSpec& spec, std::string_view dtype, Times& times) const;

  std::shared_ptr<const OperatorTables> tables_;
  std::map<double, double> shortest_gemm_;  // ms by dtype: what a launch takes at least
};

/// What OperatorDatabase knows of one engine model's operators.
struct OperatorCurves {
  std::vector<OperatorCurve> products;  ///< as the model's
  OperatorCurve head;
  std::vector<OperatorCurve> context, generation;  ///< as the model's attentions
  OperatorCurve experts, all_reduce;
  uint64_t measured = 0;  ///< curves that are there
};

}  // namespace stator::perf
