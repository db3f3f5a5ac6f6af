// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/cli/sim_run.h"
#include "stator/core/clock.h"
#include "stator/core/hash.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/lab/simulator/compare.h"
#include "stator/lab/simulator/report_html.h"
#include "stator/lab/simulator/sweep.h"
#include "stator/net/compute_pool.h"

namespace stator::cli {
namespace {

using simulator::SweepPoint;
using Values = std::vector<std::pair<std::string, std::string>>;

/// The settings with some of them changed.
Result<SimSettings> change(const SimSettings& settings, const Values& values) {
  SimSettings changed = settings;
  ConfigSchema schema;
  describe(schema, changed);
  ConfigSchema::Sources sources;
  for (const auto& [key, value] : values) {
    const auto field = std::ranges::find_if(schema.fields(), [&](const ConfigField& one) {
      const std::string flag = "--" + key;
      return one.flag == flag || one.flag_peer == flag || one.key == key;
    });
    if (field == schema.fields().end()) {
      return Error(Code::kInvalidArgument,
                   "there is no parameter '" + key + "' to change (see `stator sim --help`)");
    }
    if (field->key.starts_with("report.") || field->key.starts_with("sweep.")) {
      return Error(Code::kInvalidArgument,
                   "'" + key + "' says where results go: it cannot differ between simulations");
    }
    sources.flags[field->flag] = value;
  }
  STATOR_CHECK(schema.load(sources));
  return changed;
}

/// Identity of all that a simulation depends on but for where its results go.
std::string base_of(const SimSettings& settings, const std::string& trace) {
  SimSettings base = settings;
  simulator::SimConfig& config = base.config;
  config.report_json = config.report_html = config.per_request_jsonl = config.sweep_file =
      config.sweep_csv = config.sweep_halving = {};
  config.sweep_first_requests = 1;
  config.threads = 0;
  ConfigSchema schema;
  describe(schema, base);
  std::ifstream file(trace, std::ios::binary | std::ios::ate);
  return fmt::format("{:016x}",
                     xxh3_64(fmt::format("{}\n{} {}", schema.render_yaml(), trace,
                                         file ? static_cast<int64_t>(file.tellg()) : -1)));
}

/// Calls `part` for 0 … count − 1 on as many threads as asked for.
void run_parallel(uint32_t threads, size_t count, const std::function<void(size_t)>& part) {
  const uint32_t wanted = threads == 0 ? net::usable_cores() : threads;
  if (wanted == 1 || count < 2) {
    for (size_t i = 0; i < count; ++i) {
      part(i);
    }
    return;
  }
  const SystemClock clock;
  Metrics metrics;
  net::ComputePool pool({.threads = wanted - 1}, clock, metrics);
  pool.run_parts(count, part);
}

/// What a sweep has found so far.
class Sweep {
 public:
  Sweep(const simulator::SweepSpec& spec, std::string trace, OutputFile file)
      : trace_(std::move(trace)), file_(std::move(file)) {
    for (size_t i = 0; i < spec.size(); ++i) {
      points_.push_back({.values = spec.point(i), .figures = {}, .error = {}, .base = {}});
    }
  }

  /// What an earlier run has found need not be simulated again.
  void resume(std::istream& earlier) {
    std::string line;
    while (std::getline(earlier, line)) {
      if (earlier.eof()) {
        file_.write("\n");  // cut off: what is found now begins a line of its own
      }
      auto known = simulator::parse_sweep_point(line);
      if (known && known->error.empty()) {  // else cut off when that run ended
        earlier_.push_back(std::move(*known));
      }
    }
  }

  /// Simulates these points, on all cores.
  void run(const SimSettings& settings, std::span<const size_t> which) {
    const std::string base = base_of(settings, trace_);
    std::vector<size_t> missing;
    for (const size_t i : which) {
      const auto known = std::ranges::find_if(earlier_, [&](const SweepPoint& point) {
        return point.base == base && point.values == points_[i].values;
      });
      if (known != earlier_.end()) {
        points_[i] = *known;
      } else {
        points_[i] = {.values = points_[i].values, .figures = {}, .error = {}, .base = base};
        missing.push_back(i);
      }
    }
    done_ = 0;
    run_parallel(settings.config.threads, missing.size(), [&](size_t part) {
      simulate_point(missing[part], settings);
      if (app::stderr_is_terminal()) {
        draw_bar(missing.size());
      }
    });
    if (app::stderr_is_terminal()) {
      print_status("\r\x1b[K");
    }
  }

  const std::vector<SweepPoint>& points() const { return points_; }
  OutputFile& file() { return file_; }

 private:
  void simulate_point(size_t index, const SimSettings& settings) {
    SweepPoint point = points_[index];  // nobody else touches this one
    const auto changed = change(settings, point.values);
    if (changed) {
      const auto report = simulate({.settings = *changed, .trace = trace_});
      if (report) {
        point.figures = simulator::key_figures(*report);
      } else {
        point.error = report.error().message();
      }
    } else {
      point.error = changed.error().message();
    }
    const MutexLock lock(mutex_);
    file_.write(render_json(point));
    file_.flush();
    points_[index] = std::move(point);
    ++done_;
  }

  void draw_bar(size_t count) {
    const MutexLock lock(mutex_);
    constexpr size_t kWidth = 40;
    const size_t full = count == 0 ? kWidth : kWidth * done_ / count;
    print_status(fmt::format("\r\x1b[K[{:#<{}}{:.<{}}] {} of {} simulated", "", full, "",
                             kWidth - full, done_, count));
  }

  const std::string trace_;
  std::vector<SweepPoint> earlier_;
  Mutex mutex_;
  OutputFile file_;
  std::vector<SweepPoint> points_;
  size_t done_ = 0;
};

/// Successive halving (Jamieson & Talwalkar, 2016): what a short trace shows to be bad is not
/// simulated on a long one. The last ones have seen all requests.
Status run_halving(const SimSettings& settings, std::vector<size_t> alive, Sweep& sweep) {
  constexpr size_t kKeepOneOf = 3;
  const std::string& figure = settings.config.sweep_halving;
  const std::vector<simulator::Figure> known = simulator::key_figures({});
  if (std::ranges::find(known, figure, &simulator::Figure::name) == known.end()) {
    std::string names;
    for (const auto& one : known) {
      names += (names.empty() ? "" : ", ") + one.name;
    }
    return Error(Code::kInvalidArgument,
                 fmt::format("--sweep-halving must be one of {}, not '{}'", names, figure));
  }
  const uint64_t all = settings.config.limit > 0 ? settings.config.limit : UINT64_MAX;
  SimSettings round = settings;
  for (uint64_t limit = settings.config.sweep_first_requests; alive.size() > 1 && limit < all;
       limit *= kKeepOneOf) {
    round.config.limit = limit;
    sweep.run(round, alive);
    const bool saw_all = std::ranges::all_of(alive, [&](size_t i) {
      const SweepPoint& point = sweep.points()[i];
      return point.figure("completed_requests") + point.figure("failed_requests") <
             static_cast<double>(limit);
    });
    if (saw_all) {
      return {};
    }
    const size_t keep = (alive.size() + kKeepOneOf - 1) / kKeepOneOf;
    alive = simulator::best_points(sweep.points(), alive, figure, keep);
  }
  sweep.run(settings, alive);
  return {};
}

Status write_file(const std::string& path, const std::string& text) {
  STATOR_TRY(OutputFile file, OutputFile::open(path));
  file.write(text);
  return file.close();
}

}  // namespace

Status run_sweep(const SimSettings& settings, const std::string& trace, std::string_view text) {
  const simulator::SimConfig& config = settings.config;
  STATOR_TRY(const simulator::SweepSpec spec, simulator::parse_sweep(text));
  for (size_t i = 0; i < spec.size(); ++i) {  // what cannot be is said before hours of work
    STATOR_CHECK(change(settings, spec.point(i)));
  }
  std::ifstream earlier(config.sweep_file);
  STATOR_TRY(OutputFile file, OutputFile::open(config.sweep_file, OutputFile::Mode::kAppend));
  Sweep sweep(spec, trace, std::move(file));
  if (earlier) {
    sweep.resume(earlier);
  }
  std::vector<size_t> all(spec.size());
  std::iota(all.begin(), all.end(), size_t{0});
  if (config.sweep_halving.empty()) {
    sweep.run(settings, all);
  } else {
    STATOR_CHECK(run_halving(settings, std::move(all), sweep));
  }
  STATOR_CHECK(sweep.file().close());
  if (!config.sweep_csv.empty()) {
    STATOR_CHECK(write_file(config.sweep_csv, simulator::render_csv(sweep.points())));
  }
  if (!config.report_json.empty()) {
    STATOR_CHECK(write_file(config.report_json, simulator::render_json(sweep.points())));
  }
  if (!config.report_html.empty()) {
    STATOR_CHECK(write_file(config.report_html, simulator::render_html(spec, sweep.points())));
  }
  print_summary(config, simulator::render_table(sweep.points()));
  const auto failed = std::ranges::find_if(
      sweep.points(), [](const SweepPoint& point) { return !point.error.empty(); });
  if (failed != sweep.points().end()) {
    return Error(Code::kInvalidArgument, "not all points could be simulated: " + failed->error);
  }
  return {};
}

Status run_compare(const SimSettings& settings, const std::string& trace, std::string_view text) {
  const simulator::SimConfig& config = settings.config;
  STATOR_TRY(const simulator::SweepSpec spec, simulator::parse_sweep(text));
  if (spec.size() != 2) {
    return Error(
        Code::kInvalidArgument,
        "--compare takes one parameter with two values, for example router=round_robin,kv");
  }
  std::vector<SimSettings> changed;
  std::vector<Result<simulator::Report>> reports(2);
  std::vector<simulator::RequestTimes> times(2);
  for (size_t i = 0; i < 2; ++i) {
    STATOR_TRY(SimSettings one, change(settings, spec.point(i)));
    changed.push_back(std::move(one));
  }
  run_parallel(config.threads, 2, [&](size_t i) {
    reports[i] = simulate(
        {.settings = changed[i],
         .trace = trace,
         .sink = [&times, i](const simulator::RequestRecord& record) { times[i].add(record); }});
  });
  for (const auto& report : reports) {
    if (!report) {
      return report.error().clone();
    }
  }
  const auto& names = spec.axes.front().values;
  const auto differences = simulator::compare(*reports[0], times[0], *reports[1], times[1]);
  const std::vector<simulator::NamedReport> named = {{names[0], *reports[0]},
                                                     {names[1], *reports[1]}};
  if (!config.report_json.empty()) {
    const std::string& parameter = spec.axes.front().key;
    STATOR_CHECK(
        write_file(config.report_json, simulator::render_json(parameter, named, differences)));
  }
  if (!config.report_html.empty()) {
    STATOR_CHECK(write_file(config.report_html, simulator::render_html(named, differences)));
  }
  print_summary(config, simulator::render_table(differences, names[0], names[1]));
  return {};
}

}  // namespace stator::cli
