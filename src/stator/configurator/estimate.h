// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/configurator/serving_point.h"
#include "stator/core/result.h"

namespace stator::configurator {

/// A table of deployments: one line of names, then one line per deployment (RFC 4180).
struct CsvTable {
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
  /// The field; empty if there is no such column.
  std::string_view at(size_t row, std::string_view column) const;
};
inline constexpr size_t kCsvRowsMax = 1'000'000;
/// kInvalidArgument names the line.
Result<CsvTable> parse_csv(std::string_view text);
/// kInvalidArgument names the first column that estimates need and the table lacks.
Status check_columns(const CsvTable& table);

/// What a row says: which engines, under which load.
struct RowSpec {
  Mode mode = Mode::kAggregated;
  perf::EngineSpec prefill, decode;  ///< the same where nothing is disaggregated
  Workload work;
  double batch = 1;
  double prefill_workers = 1, decode_workers = 1;
  double ttft_scale = 1,
         itl_scale = 1;  ///< of FleetGuess, where the row says no numbers of engines
};

/// Columns: model_path, system, backend, mode (agg, disagg), isl, osl, precision, gemm_quant_mode,
/// moe_quant_mode, batch_size, {tp, pp, attention_dp, moe_tp, moe_ep}_size and the same behind
/// prefill_ and decode_ with num_workers. A batch that is missing is what `silicon_concurrency=` in
/// silicon_data_source says. kInvalidArgument names the column.
Result<RowSpec> read_row(const CsvTable& table, size_t row);

struct RowEstimate {
  double ttft_ms = 0;
  double itl_ms = 0;
  PointParts parts;
  std::string family, shape;  ///< what the fitted factors of its engines are called
  std::string error;          ///< why there is none; else empty
  perf::Provenance provenance = perf::Provenance::kRoofline;  ///< of the worst operator
  std::vector<std::string> gaps;  ///< one line per operator that no table covers
};
/// Measured operators for a row's engine; null: there are none. May be empty itself.
using FindDatabase =
    std::function<std::shared_ptr<const perf::OperatorDatabase>(const perf::EngineSpec&)>;
RowEstimate estimate_row(const RowSpec& row, const FindDatabase& database = {});
/// Of every row, errors included.
std::vector<RowEstimate> estimate_rows(const CsvTable& table, const FindDatabase& database = {});

/// Mean absolute percentage errors against silicon_ttft_ms and silicon_tpot_ms.
struct ErrorSummary {
  std::string system, backend;
  size_t rows = 0;
  double ttft = 0, itl = 0;
};
/// By system and backend, then of all rows (named "all"). Empty without measured columns.
std::vector<ErrorSummary> summarize(const CsvTable& table, const std::vector<RowEstimate>& rows);

}  // namespace stator::configurator
