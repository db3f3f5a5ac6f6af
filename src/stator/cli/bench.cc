// SPDX-License-Identifier: Apache-2.0
#include "stator/cli/bench.h"

#include <fmt/format.h>

#include <fstream>

#include "stator/app/signals.h"
#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/lab/loadgen/bench_service.h"
#include "stator/lab/loadgen/dashboard.h"

namespace stator::cli {
namespace {

constexpr Duration kTick = std::chrono::milliseconds(250);
constexpr double kSecondsPerLine = 1;

/// Draws on the terminal, or prints a line per second when standard error is none.
class Screen {
 public:
  explicit Screen(Signals& signals) : signals_(signals) {}

  bool tick(const loadgen::BenchProgress& progress, const loadgen::LiveView& view) {
    if (signals_.wait_for(kTick)) {
      return false;
    }
    if (app::stderr_is_terminal()) {
      print_status(erase() + dashboard_.draw_frame(progress, view));
      drawn_ = true;
    } else if (view.elapsed_s < last_line_s_ || view.elapsed_s >= last_line_s_ + kSecondsPerLine) {
      last_line_s_ = view.elapsed_s;
      print_status(dashboard_.draw_line(progress, view));
    }
    return true;
  }

  /// Takes the dashboard off the terminal.
  void clear() { print_status(erase()); }

 private:
  std::string erase() const {
    return drawn_ ? fmt::format("\x1b[{}A\x1b[J", loadgen::Dashboard::kLines) : std::string();
  }

  Signals& signals_;
  loadgen::Dashboard dashboard_;
  bool drawn_ = false;
  double last_line_s_ = 0;
};

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) {
    return Error(Code::kIo, "cannot write '" + path + "'");
  }
  return {};
}

Status write_report(const loadgen::BenchConfig& config, const loadgen::Report& report) {
  if (!config.csv.empty()) {
    STATOR_CHECK(write_file(config.csv, loadgen::to_csv(report)));
  }
  if (!config.html.empty()) {
    STATOR_CHECK(write_file(config.html, loadgen::to_html(report)));
  }
  if (config.json == "-") {
    print(loadgen::to_json(report));
    return {};
  }
  if (!config.json.empty()) {
    STATOR_CHECK(write_file(config.json, loadgen::to_json(report)));
  }
  print(loadgen::to_text(report));
  return {};
}

/// Figures of a generator that was the bottleneck are marked in every format, and no success.
Status publish(const loadgen::BenchConfig& config, const loadgen::Report& report) {
  STATOR_CHECK(write_report(config, report));
  const auto reasons = loadgen::reasons_not_to_publish(report);
  if (reasons.empty() || config.allow_client_bound) {
    return {};
  }
  std::string text =
      "the figures are marked as not valid: the generator was the bottleneck, and they say more "
      "about it than about the server (--allow-client-bound makes this no failure)";
  for (const std::string& reason : reasons) {
    text += "\n  - " + reason;
  }
  return Error(Code::kOverloaded, text);
}

}  // namespace

std::vector<CommandOption> bench_options() {
  // The schema's texts live as long as the process, like the literals of the other commands.
  static const std::vector<ConfigField> kFields = [] {
    loadgen::BenchConfig defaults;
    ConfigSchema schema;
    describe(schema, defaults);
    std::vector<ConfigField> fields = schema.fields();
    for (ConfigField& field : fields) {
      if (!field.default_text.empty() && !field.is_switch) {
        field.help += fmt::format(" [{}]", field.default_text);
      }
      if (!field.range.empty() && field.kind == "choice") {
        field.help += fmt::format(" ({})", field.range);
      }
    }
    return fields;
  }();
  std::vector<CommandOption> options;
  for (const ConfigField& field : kFields) {
    options.push_back({field.flag, field.help, field.is_switch});
  }
  return options;
}

Status run_bench(Invocation& invocation) {
  Signals signals;
  loadgen::BenchConfig config;
  ConfigSchema schema;
  describe(schema, config);
  STATOR_CHECK(schema.load({.env = [](const std::string&) { return std::nullopt; },
                            .flags = {invocation.options.begin(), invocation.options.end()}}));
  Screen screen(signals);
  const SystemClock clock;
  const auto report = loadgen::run_bench(
      config, clock, [&](const loadgen::BenchProgress& progress, const loadgen::LiveView& view) {
        return screen.tick(progress, view);
      });
  screen.clear();
  if (!report) {
    return report.error().clone();
  }
  return publish(config, *report);
}

}  // namespace stator::cli
