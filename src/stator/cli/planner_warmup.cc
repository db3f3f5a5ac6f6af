// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "stator/app/terminal.h"
#include "stator/cli/planner_commands.h"
#include "stator/lab/loadgen/trace_file.h"
#include "stator/lab/simulator/trace_format.h"
#include "stator/planner/warm_start.h"

namespace stator::cli {
namespace {

constexpr std::string_view kPacked = ".gz";

/// Files that a name, a folder or a pattern stands for, in the order of their names.
Result<std::vector<std::string>> find_files(const std::string& trace) {
  std::vector<std::string> out;
  std::error_code error;
  if (std::filesystem::is_directory(trace, error)) {
    for (const auto& entry : std::filesystem::directory_iterator(trace, error)) {
      const std::string name = entry.path().string();
      if (name.ends_with(".jsonl") || name.ends_with(".jsonl.gz")) {
        out.push_back(name);
      }
    }
  } else if (trace.find_first_of("*?[") != std::string::npos) {
    glob_t found{};
    if (::glob(trace.c_str(), 0, nullptr, &found) == 0) {
      for (size_t i = 0; i < found.gl_pathc; ++i) {
        out.emplace_back(found.gl_pathv[i]);
      }
    }
    ::globfree(&found);
  } else {
    out.push_back(trace);
  }
  std::ranges::sort(out);
  if (out.empty()) {
    return Error(Code::kNotFound, fmt::format("'{}' has no .jsonl and no .jsonl.gz", trace));
  }
  const std::set<std::string> names(out.begin(), out.end());
  for (const std::string& name : out) {
    if (names.contains(name + std::string(kPacked))) {
      return Error(
          Code::kInvalidArgument,
          fmt::format("'{}' is there twice, plain and as .gz: requests would count twice", name));
    }
  }
  return out;
}

Status read_past(const std::string& path, double speedup, std::vector<planner::PastRequest>& past) {
  STATOR_TRY(const auto file, loadgen::open_trace_file(path), "--warmup-trace");
  STATOR_TRY(const auto trace, simulator::open_trace(*file, {.name = path, .sort = true}),
             "--warmup-trace");
  simulator::TraceRequest request;
  while (true) {
    STATOR_TRY(const bool found, trace->next(request), "--warmup-trace");
    if (!found) {
      return {};
    }
    past.push_back({.at_s = std::chrono::duration<double>(request.arrival).count() / speedup,
                    .input_tokens = double{1} * request.input_tokens,
                    .output_tokens = double{1} * request.output_tokens});
  }
}

}  // namespace

Status warm_up(const std::string& trace, double speedup, planner::PlannerConfig& config) {
  if (!trace.empty()) {
    std::vector<planner::PastRequest> past;
    STATOR_TRY(const std::vector<std::string> files, find_files(trace), "--warmup-trace");
    for (const std::string& file : files) {
      STATOR_CHECK(read_past(file, speedup, past));
    }
    config.past = planner::bin_requests(past, config.throughput_interval_s);
  }
  if (!config.predictor.select) {
    return {};
  }
  const auto scores = planner::back_test(config.past, config.predictor);
  if (scores.empty()) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("--predictor auto needs --warmup-trace with at least 8 windows of {} s: it has "
                    "{}",
                    config.throughput_interval_s, config.past.size()));
  }
  config.predictor = scores.front().config;
  std::string text = "predictor: " + scores.front().name;
  for (const planner::PredictorScore& score : scores) {
    text += fmt::format("{}{} {:.4f}", &score == &scores.front() ? " (loss: " : ", ", score.name,
                        score.loss);
  }
  app::print_status(text + ")\n");
  return {};
}

}  // namespace stator::cli
