// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/cli/sim_run.h"
#include "stator/core/clock.h"
#include "stator/lab/simulator/mooncake_trace.h"
#include "stator/lab/simulator/report_html.h"

namespace stator::cli {
namespace {

std::function<void(uint64_t)> make_progress(const Clock& clock) {
  return [&clock, begin = clock.now(), last = clock.now()](uint64_t arrived) mutable {
    const TimePoint now = clock.now();
    if (app::stderr_is_terminal() && now - last >= std::chrono::seconds(1)) {
      last = now;
      const double seconds = std::chrono::duration<double>(now - begin).count();
      print_status(fmt::format("\r\x1b[K{} requests, {:.0f} per second", arrived,
                               static_cast<double>(arrived) / seconds));
    }
  };
}

Status emit_trace(const SimRun& run) {
  STATOR_TRY(const auto requests, open_requests(run));
  STATOR_TRY(OutputFile file, OutputFile::open(run.settings.config.emit_trace));
  simulator::TraceRequest request;
  uint64_t count = 0;
  while (true) {
    STATOR_TRY(const bool found, requests->source->next(request));
    if (!found) {
      break;
    }
    file.write(simulator::render_mooncake(request));
    ++count;
  }
  STATOR_CHECK(file.close());
  print_summary(run.settings.config,
                fmt::format("{} requests written; read them with --trace-block-size {}\n", count,
                            requests->source->block_tokens()));
  return {};
}

Result<SimSettings> read_settings(const Invocation& invocation) {
  SimSettings settings;
  ConfigSchema schema;
  describe(schema, settings);
  ConfigSchema::Sources sources;
  sources.env = app::read_env;
  for (const auto& [flag, value] : invocation.options) {
    if (flag == "--config") {
      sources.file = value;
    } else if (schema.find_flag(flag) != nullptr) {
      sources.flags[flag] = value;
    }
  }
  for (const ConfigField& field : schema.fields()) {  // by the names that other tools use
    const auto peer = invocation.options.find(field.flag_peer);
    if (!field.flag_peer.empty() && peer != invocation.options.end()) {
      sources.flags.emplace(field.flag, peer->second);
    }
  }
  STATOR_CHECK(schema.load(sources));
  return settings;
}

}  // namespace

Status run_sim(Invocation& invocation) {
  if (invocation.options.contains("--fault")) {
    return run_sim_faults(invocation);
  }
  STATOR_TRY(const SimSettings settings, read_settings(invocation));
  const simulator::SimConfig& config = settings.config;
  SimRun run{.settings = settings, .trace = model_of(invocation)};
  const auto option = [&](std::string_view flag) {
    const auto found = invocation.options.find(flag);
    return found == invocation.options.end() ? std::string() : found->second;
  };
  const std::string sweep = option("--sweep");
  const std::string compared = option("--compare");
  if (!sweep.empty() && !compared.empty()) {
    return Error(Code::kInvalidArgument, "either --sweep or --compare, not both");
  }
  STATOR_CHECK(check_outputs(config, !sweep.empty()      ? "--sweep"
                                     : !compared.empty() ? "--compare"
                                                         : ""));
  if (!config.emit_trace.empty()) {
    return emit_trace(run);
  }
  if (run.trace == "-" && !(sweep + compared).empty()) {
    return Error(Code::kInvalidArgument,
                 "--sweep and --compare read the trace more than once: write standard input to a "
                 "file, and name that");
  }
  if (!sweep.empty()) {
    return run_sweep(settings, run.trace, sweep);
  }
  if (!compared.empty()) {
    return run_compare(settings, run.trace, compared);
  }
  STATOR_TRY(OutputFile json, OutputFile::open(config.report_json));
  STATOR_TRY(OutputFile html, OutputFile::open(config.report_html));
  STATOR_TRY(OutputFile lines, OutputFile::open(config.per_request_jsonl));
  const SystemClock clock;
  if (lines.wanted()) {
    run.sink = [&](const simulator::RequestRecord& record) { lines.write(render_json(record)); };
  }
  run.progress = make_progress(clock);
  STATOR_TRY(const simulator::Report report, simulate(run));
  if (app::stderr_is_terminal()) {
    print_status("\r\x1b[K");
  }
  json.write(render_json(report));
  if (html.wanted()) {
    const simulator::NamedReport named{run.trace.empty() ? "requests made up" : run.trace, report};
    html.write(simulator::render_html({&named, 1}));
  }
  STATOR_CHECK(json.close());
  STATOR_CHECK(html.close());
  STATOR_CHECK(lines.close());
  print_summary(config, render_table(report));
  return {};
}

}  // namespace stator::cli
