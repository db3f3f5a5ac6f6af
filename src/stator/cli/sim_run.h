// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/cli/command.h"
#include "stator/core/config.h"
#include "stator/lab/simulator/recorder.h"
#include "stator/lab/simulator/report.h"
#include "stator/lab/simulator/sim_config.h"
#include "stator/lab/simulator/trace_source.h"
#include "stator/router/router.h"

namespace stator::cli {

/// All that `stator sim` can be told: a schema of its own, whose flags may be called like those of
/// servers.
struct SimSettings {
  simulator::SimConfig config;
  router::RouterConfig router;
};
void describe(ConfigSchema& schema, SimSettings& settings);
/// The flags of `stator sim`; their texts live as long as the process.
std::vector<CommandOption> sim_options();

/// One simulation.
struct SimRun {
  const SimSettings& settings;
  std::string trace;  ///< path; empty: requests are made up
  simulator::Recorder::Sink sink{};
  std::function<void(uint64_t arrived)> progress{};
};

/// The requests of a run, with the file they come from.
struct SimRequests {
  std::unique_ptr<std::istream> file;
  std::unique_ptr<simulator::TraceSource> source;
};

Result<std::unique_ptr<SimRequests>> open_requests(const SimRun& run);
/// Simulates from the first request to the end of the last. Runs share nothing: any thread.
Result<simulator::Report> simulate(const SimRun& run);

/// A file that was asked for, standard output for `-`, or nothing.
class OutputFile {
 public:
  enum class Mode : uint8_t { kReplace, kAppend };
  static Result<OutputFile> open(const std::string& path, Mode mode = Mode::kReplace);
  static bool is_standard_output(std::string_view path) { return path == "-"; }
  bool wanted() const { return !path_.empty(); }
  /// Does nothing for a file that was not asked for.
  void write(std::string_view text);
  /// What was written is in the file.
  void flush() { stream_.flush(); }
  Status close();

 private:
  std::string path_;
  std::ofstream stream_;
};

/// What is wanted as files goes together: `mode` is "--sweep", "--compare" or empty.
Status check_outputs(const simulator::SimConfig& config, std::string_view mode);
/// What people read: on standard output, or on standard error if a file goes there.
void print_summary(const simulator::SimConfig& config, std::string_view text);

/// `stator sim --sweep` and `--compare`.
Status run_sweep(const SimSettings& settings, const std::string& trace, std::string_view sweep);
Status run_compare(const SimSettings& settings, const std::string& trace,
                   std::string_view compared);

}  // namespace stator::cli
