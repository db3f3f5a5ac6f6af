// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/perf/roofline.h"

namespace stator::perf {

/// What part of the speed of light was measured, over two axes (both > 0, compared by their
/// logarithms). Between samples it is interpolated, outside it stays what it is at the border: so
/// times are exact where they were measured, bounded by measurements where they lie between, and
/// grow with the work where they lie beyond.
class UtilisationGrid {
 public:
  void add(double x, double y, double utilisation);
  bool empty() const { return rows_.empty(); }
  /// The grid has a sample.
  double at(double x, double y) const;
  /// The same of logarithms, for those who ask many grids about one size.
  double at_logs(double log_x, double log_y) const;

 private:
  /// Sorted by what they lie at; natural logarithms, since that is how they are blended.
  struct Sample {
    double log_y = 0, log_utilisation = 0;
  };
  struct Row {
    double log_x = 0;
    std::vector<Sample> samples;
  };
  static double on(const Row& row, double log_y);
  std::vector<Row> rows_;
};

/// Which measurements of AIConfigurator's database are read.
struct MeasuredSource {
  std::string folder;            ///< of one accelerator, e.g. …/systems/data/h200_sxm
  std::string backend = "vllm";  ///< framework/version, or a framework with one version only
  Precision weights = Precision::kBfloat16;
  Precision kv = Precision::kBfloat16;
  AttentionShape attention;  ///< of a rank
};

/// Costs measured on real hardware: gemm_perf, context_attention_perf and
/// generation_attention_perf, Parquet files of AIConfigurator's database. What those do not have
/// (all-reduces, small kernels) is the roofline's.
class MeasuredCosts final : public OperatorCosts {
 public:
  /// Reads the files. kNotFound names the file, column, or combination of heads and precisions that
  /// is missing, and which there are.
  static Result<std::shared_ptr<const MeasuredCosts>> read(const MeasuredSource& source,
                                                           const SpeedOfLight& light);

  double gemm_ms(double m, double n, double k) const override;
  double context_attention_ms(const AttentionShape& shape, double batch, double new_tokens,
                              double prefix) const override;
  double generation_attention_ms(const AttentionShape& shape, double batch,
                                 double context) const override;
  double all_reduce_ms(double elements, uint32_t ranks) const override;
  double small_ms(double bytes) const override;

 private:
  /// Weights of one shape; utilisation over the rows of the other operand.
  struct Site {
    double n = 0;
    double k = 0;
    UtilisationGrid by_rows;  // the second axis is not used
  };

  explicit MeasuredCosts(const SpeedOfLight& light) : light_(light), rest_(light, {}) {}
  Status read_gemms(const MeasuredSource& source);
  Status read_attention(const MeasuredSource& source, bool generation);

  SpeedOfLight light_;
  RooflineCosts rest_;
  std::vector<Site> sites_;
  UtilisationGrid context_;     // prompt tokens, batch
  UtilisationGrid generation_;  // context tokens, batch
};

}  // namespace stator::perf
