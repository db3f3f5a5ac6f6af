// SPDX-License-Identifier: Apache-2.0
#include "stator/cli/sim_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/app/terminal.h"
#include "stator/core/clock.h"
#include "stator/lab/loadgen/trace_file.h"
#include "stator/lab/simulator/cluster.h"
#include "stator/lab/simulator/sim_setup.h"
#include "stator/perf/timing_spec.h"
#include "stator/router/router_service.h"

namespace stator::cli {
namespace {

constexpr size_t kLengthsMax = 1 << 20;

/// Pairs of prompt and answer lengths of a trace.
Result<std::vector<std::pair<uint32_t, uint32_t>>> read_lengths(const std::string& path) {
  STATOR_TRY(const auto file, loadgen::open_trace_file(path));
  STATOR_TRY(const auto trace, simulator::open_trace(*file, {.name = path, .sort = true}));
  std::vector<std::pair<uint32_t, uint32_t>> lengths;
  simulator::TraceRequest request;
  while (lengths.size() < kLengthsMax) {
    STATOR_TRY(const bool found, trace->next(request));
    if (!found) {
      break;
    }
    lengths.emplace_back(request.input_tokens, request.output_tokens);
  }
  if (lengths.empty()) {
    return Error(Code::kInvalidArgument, "the trace '" + path + "' has no requests");
  }
  return lengths;
}

/// All files that results can go to.
std::vector<std::string_view> files_of(const simulator::SimConfig& config) {
  return {config.report_json, config.report_html, config.emit_trace,
          config.sweep_file,  config.sweep_csv,   config.per_request_jsonl};
}

/// Where a reader finds it in the help.
std::string help_of(const ConfigField& field) {
  std::string help = field.help;
  if (field.kind == "choice") {
    help += fmt::format(" ({})", field.range);
  }
  if (field.is_switch && field.default_text == "true") {
    help += fmt::format(" [true; {}=false]", field.flag);
  } else if (!field.default_text.empty() && !field.is_switch) {
    help += fmt::format(" [{}]", field.default_text);
  }
  return help;
}

}  // namespace

void describe(ConfigSchema& schema, SimSettings& settings) {
  describe(schema, settings.config);
  router::describe(schema, settings.router);
}

std::vector<CommandOption> sim_options() {
  static const std::vector<ConfigField> kFields = [] {
    SimSettings defaults;
    ConfigSchema schema;
    describe(schema, defaults);
    std::vector<ConfigField> fields = schema.fields();
    for (ConfigField& field : fields) {
      field.help = help_of(field);
    }
    return fields;
  }();
  std::vector<CommandOption> options = {
      {"--config", "YAML file with settings: trace: {sort: true}, fleet: {workers: 8}"},
      {"--sweep", "PARAMETER=VALUE,VALUE: simulate each; again for further ones", false, true},
      {"--compare", "PARAMETER=VALUE,VALUE: simulate both and show the difference"},
      {"--fault",
       "TRACE is a model folder: a small cluster under these faults (crash,partition; or all)"},
      {"--seeds", "with --fault: so many seeds in a row, quietly [1]"}};
  for (const ConfigField& field : kFields) {
    options.push_back({field.flag, field.help, field.is_switch});
  }
  for (const ConfigField& field : kFields) {
    if (!field.flag_peer.empty()) {
      options.push_back({field.flag_peer, field.help, field.is_switch});
    }
  }
  return options;
}

Status check_outputs(const simulator::SimConfig& config, std::string_view mode) {
  const auto refuse = [](std::string text) { return Error(Code::kInvalidArgument, text); };
  if (std::ranges::count_if(files_of(config), OutputFile::is_standard_output) > 1) {
    return refuse("only one file can be '-', standard output");
  }
  if (mode != "--sweep") {
    for (const auto& [value, flag] :
         {std::pair(config.sweep_file, "--sweep-file"), std::pair(config.sweep_csv, "--sweep-csv"),
          std::pair(config.sweep_halving, "--sweep-halving")}) {
      if (!value.empty()) {
        return refuse(fmt::format("{} belongs to --sweep, which is not there", flag));
      }
    }
  }
  if (mode.empty()) {
    return {};
  }
  for (const auto& [value, flag] : {std::pair(config.per_request_jsonl, "--per-request-jsonl"),
                                    std::pair(config.emit_trace, "--emit-trace")}) {
    if (!value.empty()) {
      return refuse(fmt::format("{} is of one simulation: leave out {}", flag, mode));
    }
  }
  return {};
}

void print_summary(const simulator::SimConfig& config, std::string_view text) {
  if (std::ranges::any_of(files_of(config), OutputFile::is_standard_output)) {
    print_status(text);
  } else {
    print(text);
  }
}

Result<OutputFile> OutputFile::open(const std::string& path, Mode mode) {
  OutputFile file;
  file.path_ = path;
  if (!path.empty() && !is_standard_output(path)) {
    file.stream_.open(path,
                      std::ios::binary | (mode == Mode::kAppend ? std::ios::app : std::ios::trunc));
    if (!file.stream_) {
      return Error(Code::kIo, "cannot write '" + path + "'");
    }
  }
  return file;
}

void OutputFile::write(std::string_view text) {
  if (is_standard_output(path_)) {
    print(text);
  } else if (wanted()) {
    stream_.write(text.data(), static_cast<std::streamsize>(text.size()));
  }
}

Status OutputFile::close() {
  if (stream_.is_open()) {
    stream_.close();
    if (!stream_) {
      return Error(Code::kIo, "cannot write '" + path_ + "'");
    }
  }
  return {};
}

Result<std::unique_ptr<SimRequests>> open_requests(const SimRun& run) {
  const simulator::SimConfig& config = run.settings.config;
  auto requests = std::make_unique<SimRequests>();
  if (!run.trace.empty()) {
    if (config.requests > 0) {
      return Error(Code::kInvalidArgument,
                   "requests come from a TRACE or are made up (--requests), not both");
    }
    STATOR_TRY(requests->file, loadgen::open_trace_file(run.trace));
    STATOR_TRY(
        requests->source,
        simulator::open_trace(*requests->file, simulator::make_trace_options(config, run.trace)));
    if (config.limit > 0) {
      requests->source = simulator::make_limited(std::move(requests->source), config.limit);
    }
    return requests;
  }
  if (config.requests == 0) {
    return Error(Code::kInvalidArgument,
                 "nothing to simulate: name a TRACE, or have requests made up (--requests 1000)");
  }
  simulator::WorkloadConfig workload = simulator::make_workload_config(config);
  if (!config.lengths_from.empty()) {
    STATOR_TRY(workload.lengths, read_lengths(config.lengths_from));
  }
  STATOR_TRY(requests->source, simulator::make_workload(workload));
  if (config.limit > 0) {
    requests->source = simulator::make_limited(std::move(requests->source), config.limit);
  }
  return requests;
}

Result<simulator::Report> simulate(const SimRun& run) {
  const simulator::SimConfig& config = run.settings.config;
  STATOR_TRY(const simulator::ClusterConfig fleet,
             simulator::make_cluster_config(config, run.settings.router));
  const SystemClock clock;
  const TimePoint begin = clock.now();
  STATOR_TRY(const auto timing, perf::make_timing(config.sim.timing, config.sim.linear));
  STATOR_TRY(const auto cluster, simulator::Cluster::create(fleet, *timing));
  STATOR_TRY(auto planner, simulator::make_planner(config));
  cluster->set_planner(std::move(planner));
  STATOR_TRY(const auto requests, open_requests(run));
  simulator::Recorder recorder(cluster->worker_count(), simulator::make_objectives(config),
                               run.sink);
  cluster->set_progress(run.progress);
  STATOR_CHECK(cluster->run(*requests->source, recorder));
  simulator::Report report = recorder.make_report();
  if (report.requests == 0) {
    return Error(Code::kInvalidArgument, "the trace '" + run.trace + "' has no requests");
  }
  cluster->describe(report);
  report.wall_time_ms = std::chrono::duration<double, std::milli>(clock.now() - begin).count();
  return report;
}

}  // namespace stator::cli
