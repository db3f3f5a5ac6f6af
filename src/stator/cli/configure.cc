// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "stator/app/option_number.h"
#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/cli/configure_trace.h"
#include "stator/cli/sim_run.h"
#include "stator/configurator/estimate.h"
#include "stator/configurator/output.h"
#include "stator/configurator/search.h"
#include "stator/core/clock.h"
#include "stator/io/read_file.h"
#include "stator/io/replace_file.h"
#include "stator/json/value.h"
#include "stator/lab/loadgen/trace_file.h"
#include "stator/lab/simulator/trace_format.h"
#include "stator/perf/operator_database.h"

namespace stator::cli {
namespace {

constexpr uint64_t kCsvBytesMax = 1ULL << 30;

json::Value to_json(const perf::PassParts& parts) {
  json::Value out = json::Value::array();
  for (const double part : parts) {
    out.push_back(part);
  }
  return out;
}

json::Value render(const configurator::CsvTable& table, size_t index,
                   const configurator::RowEstimate& row, bool parts) {
  json::Value out = json::Value::object();
  for (const std::string& column : table.columns) {
    out[column] = std::string(table.at(index, column));
  }
  if (!row.error.empty()) {
    out["ttft_ms"] = nullptr;
    out["itl_ms"] = nullptr;
    out["error"] = row.error;
    return out;
  }
  out["ttft_ms"] = row.ttft_ms;
  out["itl_ms"] = row.itl_ms;
  out["provenance"] = perf::name_of(row.provenance);
  if (!row.gaps.empty()) {
    json::Value& gaps = out["gaps"] = json::Value::array();
    for (const std::string& gap : row.gaps) {
      gaps.push_back(gap);
    }
  }
  if (parts) {
    json::Value& of = out["parts"];
    of["decode"] = to_json(row.parts.decode);
    of["prompt"] = to_json(row.parts.prompt);
    of["batch"] = row.parts.batch;
    of["others"] = row.parts.others;
    of["queued"] = row.parts.queued;
    of["family"] = row.family;
    of["shape"] = row.shape;
  }
  return out;
}

std::string quote(std::string_view field) {
  if (field.find_first_of(",\"\n") == std::string_view::npos) {
    return std::string(field);
  }
  std::string out = "\"";
  for (const char c : field) {
    out += c;
    out += c == '"' ? "\"" : "";
  }
  return out + '"';
}

void print_csv(const configurator::CsvTable& table,
               const std::vector<configurator::RowEstimate>& rows) {
  std::string out;
  for (const std::string& column : table.columns) {
    if (column != "ttft_ms" && column != "itl_ms") {
      out += quote(column) + ',';
    }
  }
  out += "ttft_ms,itl_ms\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const std::string& column : table.columns) {
      if (column != "ttft_ms" && column != "itl_ms") {
        out += quote(table.at(i, column)) + ',';
      }
    }
    out += rows[i].error.empty() ? fmt::format("{},{}\n", rows[i].ttft_ms, rows[i].itl_ms)
                                 : std::string(",\n");
  }
  print(out);
}

Status run_estimate(const Invocation& invocation) {
  const std::string path = option_of(invocation, "--csv", "");
  if (path.empty()) {
    return Error(
        Code::kInvalidArgument,
        "configure estimate needs --csv FILE, a table of deployments ('-': standard input)");
  }
  std::string text;
  if (path == "-") {
    text = app::read_input();
  } else {
    STATOR_TRY(text, io::read_file(path, kCsvBytesMax), "--csv");
  }
  STATOR_TRY(const configurator::CsvTable table, configurator::parse_csv(text), path);
  STATOR_CHECK(configurator::check_columns(table), path);
  const std::string folder = option_of(invocation, "--database", "");
  std::map<std::string, std::shared_ptr<const perf::OperatorDatabase>> databases;
  std::vector<std::string> absent;
  const configurator::FindDatabase find = [&](const perf::EngineSpec& spec) {
    const std::string key = fmt::format("{} on {}", perf::name_of(spec.backend), spec.system.name);
    const auto known = databases.find(key);
    if (known != databases.end()) {
      return known->second;
    }
    const auto read = perf::OperatorDatabase::read(folder, spec);
    if (!read) {
      absent.push_back(read.error().message());
    }
    return databases.emplace(key, read ? *read : nullptr).first->second;
  };
  const auto rows =
      configurator::estimate_rows(table, folder.empty() ? configurator::FindDatabase() : find);
  for (const std::string& each : absent) {
    print_status("no measured operators, fitted model instead: " + each + "\n");
  }
  const bool parts = invocation.options.contains("--parts");
  if (invocation.options.contains("--json")) {
    json::Value out = json::Value::array();
    for (size_t i = 0; i < rows.size(); ++i) {
      out.push_back(render(table, i, rows[i], parts));
    }
    print(json::to_text(out) + "\n");
  } else {
    print_csv(table, rows);
  }
  for (const auto& sum : configurator::summarize(table, rows)) {
    print_status(
        fmt::format("{:<20} {:<7} {:>5} rows: off by {:.1f} % (TTFT), {:.1f} % (ITL) on average\n",
                    sum.system, sum.backend, sum.rows, sum.ttft, sum.itl));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].error.empty()) {
      print_status(rows[i].error + "\n");  // begins with the row's number
    }
  }
  return {};
}

/// The precision that a checkpoint, or its name, says.
std::string_view precision_of(const perf::ModelConfig& model, std::string_view path) {
  std::string name(path);
  std::ranges::transform(name, name.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  if (model.quantization == "mxfp4" || name.find("nvfp4") != std::string::npos) {
    return model.quantization == "mxfp4" ? "w4a16_mxfp4" : "nvfp4";
  }
  if (model.quantization == "fp8" || name.find("fp8") != std::string::npos) {
    return name.find("static") == std::string::npos ? "fp8_block" : "fp8_static";
  }
  return model.quantization.empty() ? "bfloat16" : std::string_view(model.quantization);
}

Status read_precisions(const Invocation& invocation, const std::string& path,
                       configurator::Goal& goal) {
  const std::string_view own = precision_of(goal.engine.model, path);
  if (!perf::find_quant(own) && option_of(invocation, "--quantization", "").empty()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--model: quantization_config.quant_method '{}' is not modelled: give "
                             "--quantization",
                             own));
  }
  const auto choose = [&](std::string_view flag, std::string_view fallback) {
    const std::string text = option_of(invocation, flag, "");
    return text.empty() ? std::string(fallback) : text;
  };
  const std::string weights =
      choose("--quantization", own == "w4a16_mxfp4" ? std::string_view("bfloat16") : own);
  const std::string experts =
      choose("--moe-quantization", perf::find_quant(own) ? own : std::string_view(weights));
  STATOR_TRY(goal.engine.weights, perf::find_quant(weights), "--quantization");
  STATOR_TRY(goal.engine.experts, perf::find_quant(experts), "--moe-quantization");
  const bool narrow = goal.engine.weights.lane != perf::QuantMode::Lane::kBfloat16 &&
                      goal.engine.backend == perf::Backend::kTrtllm;
  STATOR_TRY(goal.engine.kv,
             perf::find_quant(choose("--kv-quantization", narrow ? "fp8" : "bfloat16")),
             "--kv-quantization");
  return {};
}

/// Mean lengths of a trace's requests, where the command line gives none.
Status read_trace(const std::string& path, configurator::Goal& goal) {
  STATOR_TRY(const auto file, loadgen::open_trace_file(path), "--trace");
  STATOR_TRY(const auto trace, simulator::open_trace(*file, {.name = path, .sort = true}),
             "--trace");
  simulator::TraceRequest request;
  double count = 0, input = 0, output = 0;
  while (true) {
    STATOR_TRY(const bool found, trace->next(request), "--trace");
    if (!found) {
      break;
    }
    ++count;
    input += request.input_tokens;
    output += request.output_tokens;
  }
  if (count == 0) {
    return Error(Code::kInvalidArgument, fmt::format("--trace '{}' has no requests", path));
  }
  goal.work.input_tokens = std::round(input / count);
  goal.work.output_tokens = std::max(1.0, std::round(output / count));
  return {};
}

Result<configurator::Goal> read_goal(const Invocation& invocation) {
  configurator::Goal goal;
  for (const std::string_view flag : {"--model", "--system"}) {
    if (option_of(invocation, flag, "").empty()) {
      return Error(Code::kInvalidArgument, fmt::format("configure needs {}", flag));
    }
  }
  const std::string model = option_of(invocation, "--model", "");
  STATOR_TRY(goal.engine.model, perf::read_model_config(model), "--model");
  STATOR_TRY(goal.engine.system, perf::find_system(option_of(invocation, "--system", "")),
             "--system");
  const std::string backend = option_of(invocation, "--backend", "");
  STATOR_TRY(goal.engine.backend, perf::find_backend(backend.empty() ? "vllm" : backend),
             "--backend");
  STATOR_CHECK(read_precisions(invocation, model, goal));
  const std::string trace = option_of(invocation, "--trace", "");
  if (!trace.empty()) {
    STATOR_CHECK(read_trace(trace, goal));
  }
  STATOR_CHECK(read_number<uint32_t>(invocation, "--gpus", 1, 4096, goal.gpus));
  STATOR_CHECK(read_number(invocation, "--isl", 1.0, 1e8, goal.work.input_tokens));
  STATOR_CHECK(read_number(invocation, "--osl", 1.0, 1e8, goal.work.output_tokens));
  STATOR_CHECK(read_number(invocation, "--prefix", 0.0, 1e8, goal.work.cached_tokens));
  STATOR_CHECK(read_number(invocation, "--ttft", 1e-3, 1e9, goal.ttft_ms));
  STATOR_CHECK(read_number(invocation, "--itl", 1e-3, 1e9, goal.itl_ms));
  STATOR_CHECK(read_number<uint32_t>(invocation, "--batch-max", 1, 4096, goal.batch_max));
  STATOR_CHECK(read_number<uint32_t>(invocation, "--best", 1, 100, goal.best));
  if (goal.work.cached_tokens >= goal.work.input_tokens) {
    return Error(Code::kInvalidArgument, "--prefix must be less than --isl");
  }
  const std::string database = option_of(invocation, "--database", "");
  if (!database.empty()) {
    STATOR_TRY(goal.database, perf::OperatorDatabase::read(database, goal.engine), "--database");
  }
  return goal;
}

/// The shortlist on the user's trace, behind what was searched.
Status add_simulations(const Invocation& invocation, const configurator::Goal& goal,
                       const configurator::SearchResult& result, json::Value& shown,
                       std::string& table) {
  const std::string trace = option_of(invocation, "--trace", "");
  if (trace.empty() || result.best.empty()) {
    return {};
  }
  STATOR_TRY(const json::Value simulated, simulate_shortlist(goal, result, trace));
  table += fmt::format(
      "\non the trace, simulated behind the router:\n{:<3} {:>8} {:>12} {:>12} {:>11} {:>11} "
      "{:>10}\n",
      "#", "goals", "TTFT p50 ms", "TTFT p95 ms", "ITL p50 ms", "ITL p95 ms", "tok/s/GPU");
  for (size_t i = 0; i < simulated.size(); ++i) {
    const json::Value& each = simulated.at(i);
    const auto number = [&](std::string_view key) { return each.at(key).as_double().value_or(0); };
    table +=
        fmt::format("{:<3} {:>6.1f} % {:>12.1f} {:>12.1f} {:>11.2f} {:>11.2f} {:>10.1f}\n", i + 1,
                    number("goals_met") * 100, number("ttft_ms_p50"), number("ttft_ms_p95"),
                    number("itl_ms_p50"), number("itl_ms_p95"), number("tokens_per_s_per_gpu"));
    (*shown["best"].mutable_elements())[i]["simulated"] = each;
  }
  return {};
}

/// --database-file: what was read of --database, as one file that later runs map.
Status write_database(const Invocation& invocation, const configurator::Goal& goal) {
  const std::string path = option_of(invocation, "--database-file", "");
  if (path.empty()) {
    return {};
  }
  if (goal.database == nullptr) {
    return Error(Code::kInvalidArgument, "--database-file needs --database DIR");
  }
  const perf::OperatorTables& tables = goal.database->tables();
  STATOR_CHECK(io::replace_file(path, tables.save(), 0644), "--database-file");
  for (const std::string& note : tables.notes()) {
    print_status(note + "\n");
  }
  return {};
}

Status write_outputs(const Invocation& invocation, const configurator::Goal& goal,
                     const configurator::SearchResult& result, double elapsed_ms) {
  const std::string html = option_of(invocation, "--html", "");
  if (!html.empty()) {
    STATOR_TRY(OutputFile file, OutputFile::open(html), "--html");
    file.write(configurator::render_html(goal, result, elapsed_ms));
    STATOR_CHECK(file.close(), "--html");
  }
  const std::string folder = option_of(invocation, "--output", "");
  if (folder.empty()) {
    return {};
  }
  if (result.best.empty()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--output: nothing to write: {}", result.explanation));
  }
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  auto files =
      configurator::render_files(goal, result.best.front(), option_of(invocation, "--model", ""));
  files.emplace_back("report.html", configurator::render_html(goal, result, elapsed_ms));
  files.emplace_back("result.json",
                     json::to_pretty_text(configurator::to_json(goal, result, elapsed_ms)) + "\n");
  for (const auto& [name, content] : files) {
    STATOR_TRY(OutputFile file, OutputFile::open((std::filesystem::path(folder) / name).string()),
               "--output");
    file.write(content);
    STATOR_CHECK(file.close(), "--output");
  }
  return {};
}

}  // namespace

Status run_configure(Invocation& invocation) {
  if (!invocation.positionals.empty() && invocation.positionals.front() == "estimate") {
    return run_estimate(invocation);
  }
  if (!invocation.positionals.empty()) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("'configure {}' is unknown: 'configure estimate', or no word and --model",
                    invocation.positionals.front()));
  }
  STATOR_TRY(const configurator::Goal goal, read_goal(invocation));
  STATOR_CHECK(write_database(invocation, goal));
  const SystemClock clock;
  const TimePoint begin = clock.now();
  STATOR_TRY(const configurator::SearchResult result, configurator::search(goal));
  const double elapsed_ms = std::chrono::duration<double, std::milli>(clock.now() - begin).count();
  json::Value shown = configurator::to_json(goal, result, elapsed_ms);
  std::string table = configurator::render_table(goal, result, elapsed_ms);
  STATOR_CHECK(add_simulations(invocation, goal, result, shown, table));
  print(invocation.options.contains("--json") ? json::to_text(shown) + "\n" : table);
  return write_outputs(invocation, goal, result, elapsed_ms);
}

}  // namespace stator::cli
