// SPDX-License-Identifier: Apache-2.0
#include "stator/configurator/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

namespace stator::configurator {
namespace {

using perf::EngineModel;
using perf::EngineSpec;
using perf::Parallelism;

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || end.ec != std::errc() || end.ptr != text.data() + text.size() ||
      !std::isfinite(value)) {
    return {};
  }
  return value;
}

/// Reads the fields of one row.
class Row {
 public:
  Row(const CsvTable& table, size_t index) : table_(table), index_(index) {}

  std::string_view text(std::string_view column) const { return table_.at(index_, column); }
  /// `fallback` where the field is empty.
  Result<double> value(const std::string& column, double fallback) const {
    const std::string_view field = text(column);
    if (field.empty()) {
      return fallback;
    }
    const auto got = number(field);
    if (!got || *got < 0 || *got > 1e9) {
      return Error(
          Code::kInvalidArgument,
          fmt::format("row {}: {} must be a number from 0, is '{}'", index_ + 1, column, field));
    }
    return *got;
  }
  Error fail(Error error) const {
    return std::move(error).with_context(fmt::format("row {}", index_ + 1));
  }

 private:
  const CsvTable& table_;
  size_t index_;
};

/// Zero and nothing both mean one.
Result<uint32_t> ranks(const Row& row, const std::string& column, double fallback) {
  STATOR_TRY(const double value, row.value(column, fallback));
  return static_cast<uint32_t>(std::clamp(value > 0 ? value : fallback, 1.0, 65536.0));
}

Result<Parallelism> read_parallel(const Row& row, const std::string& prefix, bool is_moe) {
  Parallelism p;
  STATOR_TRY(p.tp, ranks(row, prefix + "tp_size", 1));
  STATOR_TRY(p.pp, ranks(row, prefix + "pp_size", 1));
  STATOR_TRY(p.dp, ranks(row, prefix + "attention_dp_size", 1));
  if (!is_moe) {
    return p;
  }
  const uint32_t all = p.tp * p.dp;
  STATOR_TRY(p.moe_ep, ranks(row, prefix + "moe_ep_size", 1));
  STATOR_TRY(p.moe_tp, ranks(row, prefix + "moe_tp_size", std::max(1U, all / p.moe_ep)));
  return p;
}

/// GPUs that a row counts twice, or as tensor parallel though they cannot be. A tp that does not
/// divide the heads is the number of GPUs of a wide deployment, each a rank of attention with
/// experts of its own; the square of a node's GPUs is tp times ep of one node. Returns by how much
/// the row's batch, of all of them, is too large.
double correct_parallel(const EngineSpec& spec, Parallelism& p) {
  const uint32_t node = spec.system.gpus_per_node, tp = p.tp;
  if (!spec.model.is_moe() || p.dp > 1 || tp <= 1) {
    return 1;
  }
  if (spec.model.heads % tp != 0) {
    const uint32_t experts = std::min(tp, spec.model.experts);
    p = {.tp = 1, .pp = p.pp, .dp = tp, .moe_tp = 1, .moe_ep = experts};
    return tp;
  }
  if (tp == node * node && p.moe_tp == node && p.moe_ep == node) {
    p.tp = node;
    p.moe_tp = 1;
  }
  return 1;
}

/// What the words of a row mean for the weights of this model on this GPU.
Status read_precision(const Row& row, EngineSpec& spec) {
  std::string_view gemm = row.text("gemm_quant_mode");
  std::string_view experts = row.text("moe_quant_mode");
  const std::string_view precision = row.text("precision");
  const bool said = !gemm.empty() || !precision.empty();
  const std::string_view column = gemm.empty() ? "precision" : "gemm_quant_mode";
  if (gemm.empty()) {
    gemm = precision == "fp4"                                                     ? "nvfp4"
           : precision == "int4"                                                  ? "int4_wo"
           : precision == "int8"                                                  ? "int8_wo"
           : precision == "bf16" || precision == "fp16" || precision == "float16" ? "bfloat16"
           : !precision.empty()                                                   ? precision
           : !spec.model.quantization.empty() ? std::string_view(spec.model.quantization)
                                              : std::string_view("bfloat16");
    gemm = gemm == "mxfp4" ? "w4a16_mxfp4" : gemm;
  }
  auto weights = perf::find_quant(gemm);
  spec.weights = weights ? *weights : *perf::find_quant("bfloat16");
  if (!weights) {
    return std::move(weights.error())
        .with_context(said ? std::string(column) : std::string("quantization_config.quant_method"));
  }
  spec.experts = spec.weights;
  if (!experts.empty()) {
    STATOR_TRY(spec.experts, perf::find_quant(experts), "moe_quant_mode");
  }
  const bool blackwell = spec.system.fp4_flops > 0;
  if (spec.model.quantization == "mxfp4") {  // attention stays as it was trained
    STATOR_TRY(spec.weights, perf::find_quant("bfloat16"));
    STATOR_TRY(spec.experts, perf::find_quant(blackwell ? "w4a8_mxfp4_mxfp8" : "w4a16_mxfp4"));
  } else if (gemm == "int4_wo") {
    STATOR_TRY(spec.weights, perf::find_quant("bfloat16"));
  }
  const bool narrow = spec.weights.lane != perf::QuantMode::Lane::kBfloat16;
  STATOR_TRY(spec.kv, perf::find_quant(
                          narrow && spec.backend == perf::Backend::kTrtllm ? "fp8" : "bfloat16"));
  return {};
}

double concurrency_of(std::string_view source) {
  constexpr std::string_view kKey = "silicon_concurrency=";
  const size_t begin = source.find(kKey);
  if (begin == std::string_view::npos) {
    return 0;
  }
  const std::string_view rest = source.substr(begin + kKey.size());
  return number(rest.substr(0, rest.find_first_not_of("0123456789"))).value_or(0);
}

std::string_view strip(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos
             ? std::string_view()
             : text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace

std::string_view CsvTable::at(size_t row, std::string_view column) const {
  const auto found = std::ranges::find(columns, column);
  const auto index = static_cast<size_t>(found - columns.begin());
  return index < rows[row].size() ? strip(rows[row][index]) : std::string_view();
}

Status check_columns(const CsvTable& table) {
  for (const std::string_view name : {"model_path", "system", "backend", "isl", "osl"}) {
    if (std::ranges::find(table.columns, name) == table.columns.end()) {
      return Error(Code::kInvalidArgument,
                   fmt::format("the first line names no column {}; it names {}", name,
                               fmt::join(table.columns, ", ")));
    }
  }
  return {};
}

Result<CsvTable> parse_csv(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // spreadsheets begin with it
  if (text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  CsvTable table;
  std::vector<std::string> fields(1);
  bool quoted = false, any = false;
  size_t line = 1;
  const auto end_row = [&]() -> Status {
    if (!fields.back().empty() && fields.back().back() == '\r') {
      fields.back().pop_back();
    }
    const bool is_blank = fields.size() == 1 && fields[0].empty();
    if (table.columns.empty() && !is_blank) {
      for (const std::string& field : fields) {
        table.columns.emplace_back(strip(field));
      }
    } else if (!is_blank) {
      if (fields.size() > table.columns.size() || table.rows.size() >= kCsvRowsMax) {
        return Error(
            Code::kInvalidArgument,
            fmt::format("line {}: {} fields, but {} names in the first line (and at most {} rows)",
                        line, fields.size(), table.columns.size(), kCsvRowsMax));
      }
      table.rows.push_back(fields);
    }
    fields.assign(1, "");
    any = false;
    return {};
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
        fields.back() += c;
        ++i;
      } else if (c == '"') {
        quoted = false;
      } else {
        fields.back() += c;
        line += c == '\n' ? 1 : 0;
      }
    } else if (c == '"' && fields.back().empty()) {
      quoted = true;
    } else if (c == ',') {
      fields.emplace_back();
    } else if (c == '\n') {
      STATOR_CHECK(end_row());
      ++line;
      continue;
    } else {
      fields.back() += c;
    }
    any = true;
  }
  if (quoted) {
    return Error(Code::kInvalidArgument, fmt::format("line {}: a quoted field does not end", line));
  }
  if (any) {
    STATOR_CHECK(end_row());
  }
  if (table.columns.empty()) {
    return Error(Code::kInvalidArgument,
                 "the table is empty: the first line must name the columns");
  }
  return table;
}

Result<RowSpec> read_row(const CsvTable& table, size_t index) {
  const Row row(table, index);
  RowSpec out;
  const auto model = perf::find_model(row.text("model_path"));
  auto read = model ? Result<perf::ModelConfig>(*model)
                    : perf::read_model_config(std::string(row.text("model_path")));
  if (!read) {
    return row.fail(std::move(read.error()));
  }
  EngineSpec spec;
  spec.model = std::move(*read);
  STATOR_TRY(spec.system, perf::find_system(row.text("system")), fmt::format("row {}", index + 1));
  STATOR_TRY(spec.backend, perf::find_backend(row.text("backend")),
             fmt::format("row {}", index + 1));
  STATOR_CHECK(read_precision(row, spec), fmt::format("row {}", index + 1));
  STATOR_TRY(out.work.input_tokens, row.value("isl", 0));
  STATOR_TRY(out.work.output_tokens, row.value("osl", 0));
  if (!(out.work.input_tokens >= 1) || !(out.work.output_tokens >= 1)) {
    return Error(Code::kInvalidArgument,
                 fmt::format("row {}: isl and osl must be 1 or more", index + 1));
  }
  const bool is_moe = spec.model.is_moe();
  const double concurrency = concurrency_of(row.text("silicon_data_source"));
  out.decode = spec;
  if (row.text("mode") == "disagg") {
    out.mode = Mode::kDisaggregated;
    out.prefill = spec;
    STATOR_TRY(out.prefill.parallel, read_parallel(row, "prefill_", is_moe));
    STATOR_TRY(out.decode.parallel, read_parallel(row, "decode_", is_moe));
    correct_parallel(out.prefill, out.prefill.parallel);
    const double over = correct_parallel(out.decode, out.decode.parallel);
    const FleetGuess guess = guess_fleet(spec.backend, concurrency, out.prefill.parallel.gpus(),
                                         out.decode.parallel.gpus());
    if (row.text("decode_num_workers").empty()) {
      out.ttft_scale = guess.ttft_scale;
      out.itl_scale = guess.itl_scale;
    }
    STATOR_TRY(out.prefill_workers, row.value("prefill_num_workers", guess.prefill_workers));
    STATOR_TRY(out.decode_workers, row.value("decode_num_workers", guess.decode_workers));
    const double places = std::max(1.0, out.decode_workers * out.decode.parallel.dp);
    STATOR_TRY(out.batch, row.value("decode_batch_size", std::max(1.0, concurrency / places)));
    out.batch /= row.text("decode_batch_size").empty() ? 1 : over;
  } else if (row.text("mode") == "agg" || row.text("mode").empty()) {
    STATOR_TRY(out.decode.parallel, read_parallel(row, "", is_moe));
    const double over = correct_parallel(out.decode, out.decode.parallel);
    const Parallelism& p = out.decode.parallel;
    STATOR_TRY(out.batch, row.value("batch_size", std::max(1.0, concurrency / p.dp / p.pp)));
    out.batch /= row.text("batch_size").empty() ? 1 : over;
    out.prefill = out.decode;
  } else {
    return Error(Code::kInvalidArgument, fmt::format("row {}: mode must be agg or disagg, is '{}'",
                                                     index + 1, row.text("mode")));
  }
  out.batch = std::max(1.0, out.batch);
  return out;
}

namespace {

RowEstimate estimate(const RowSpec& row, const EngineModel& prefill, const EngineModel& decode) {
  RowEstimate out;
  const QueueModel queue = find_queue(row.decode.backend, row.mode, decode.parts_of());
  ServingPoint point;
  if (row.mode == Mode::kAggregated) {
    out.parts = aggregated_parts(decode, row.work, row.batch);
    point = aggregated_point(decode, row.work, row.batch, queue);
  } else {
    const Disaggregated fleet{.prefill = prefill,
                              .decode = decode,
                              .prefill_workers = std::max(1.0, row.prefill_workers),
                              .decode_workers = std::max(1.0, row.decode_workers),
                              .prefill_batch = 1,
                              .decode_batch = row.batch};
    out.parts = disaggregated_parts(fleet, row.work);
    point = disaggregated_point(fleet, row.work, queue);
  }
  out.ttft_ms = point.ttft_ms * row.ttft_scale;
  out.itl_ms = point.itl_ms * row.itl_scale;
  out.provenance = std::max(prefill.provenance(), decode.provenance());
  out.gaps = decode.gaps();
  for (const std::string& gap : prefill.gaps()) {
    if (std::ranges::find(out.gaps, gap) == out.gaps.end()) {
      out.gaps.push_back(gap);
    }
  }
  out.family = perf::family_of(row.decode);
  out.shape = perf::shape_of(row.decode.model);
  return out;
}

/// Engine models of rows before: tables repeat engines, and reading measured kernels takes long.
class Engines {
 public:
  explicit Engines(const FindDatabase& find) : find_(find) {}

  std::shared_ptr<const Result<EngineModel>> get(const EngineSpec& spec) {
    const Parallelism& p = spec.parallel;
    const std::string key =
        fmt::format("{} {} {} {}/{}/{}/{}/{} {} {} {}", spec.model.name, spec.system.name,
                    perf::name_of(spec.backend), p.tp, p.pp, p.dp, p.moe_tp, p.moe_ep,
                    spec.weights.name, spec.experts.name, spec.kv.name);
    auto& known = known_[key];
    if (known == nullptr) {
      known = std::make_shared<Result<EngineModel>>(
          EngineModel::create(spec, find_ ? find_(spec) : nullptr));
    }
    auto out = known;
    if (known_.size() > kEnginesMax) {
      known_.clear();
    }
    return out;
  }

 private:
  static constexpr size_t kEnginesMax = 1024;
  const FindDatabase& find_;
  std::map<std::string, std::shared_ptr<const Result<EngineModel>>> known_;
};

RowEstimate estimate(const RowSpec& row, Engines& engines) {
  const auto decode = engines.get(row.decode), prefill = engines.get(row.prefill);
  if (!*decode || !*prefill) {
    return {.error = (*decode ? prefill->error() : decode->error()).message()};
  }
  return estimate(row, **prefill, **decode);
}

}  // namespace

RowEstimate estimate_row(const RowSpec& row, const FindDatabase& database) {
  Engines engines(database);
  return estimate(row, engines);
}

std::vector<RowEstimate> estimate_rows(const CsvTable& table, const FindDatabase& database) {
  std::vector<RowEstimate> out;
  out.reserve(table.rows.size());
  Engines engines(database);
  for (size_t i = 0; i < table.rows.size(); ++i) {
    auto row = read_row(table, i);
    if (row) {
      out.push_back(estimate(*row, engines));
    } else {
      out.push_back({.error = row.error().message()});
    }
  }
  return out;
}

std::vector<ErrorSummary> summarize(const CsvTable& table, const std::vector<RowEstimate>& rows) {
  std::map<std::pair<std::string, std::string>, ErrorSummary> sums;
  ErrorSummary all{.system = "all", .backend = "all"};
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto ttft = number(table.at(i, "silicon_ttft_ms"));
    const auto itl = number(table.at(i, "silicon_tpot_ms"));
    if (!rows[i].error.empty() || !ttft || !itl || *ttft <= 0 || *itl <= 0) {
      continue;
    }
    const std::string system(table.at(i, "system")), backend(table.at(i, "backend"));
    ErrorSummary& mine = sums[{system, backend}];
    mine.system = system;
    mine.backend = backend;
    for (ErrorSummary* sum : {&mine, &all}) {
      ++sum->rows;
      sum->ttft += std::abs(rows[i].ttft_ms / *ttft - 1);
      sum->itl += std::abs(rows[i].itl_ms / *itl - 1);
    }
  }
  std::vector<ErrorSummary> out;
  for (auto& [key, sum] : sums) {
    out.push_back(sum);
  }
  if (all.rows > 0) {
    out.push_back(all);
  }
  for (ErrorSummary& sum : out) {
    sum.ttft *= 100.0 / static_cast<double>(sum.rows);
    sum.itl *= 100.0 / static_cast<double>(sum.rows);
  }
  return out;
}

}  // namespace stator::configurator
