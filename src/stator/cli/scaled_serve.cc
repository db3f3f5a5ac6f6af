// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <thread>

#include "stator/app/admin_server.h"
#include "stator/app/option_number.h"
#include "stator/app/planner_file.h"
#include "stator/app/process_metrics.h"
#include "stator/app/run_server.h"
#include "stator/app/signals.h"
#include "stator/app/worker_host.h"
#include "stator/cli/planner_commands.h"
#include "stator/core/log.h"
#include "stator/io/replace_file.h"
#include "stator/perf/timing_spec.h"
#include "stator/scaling/connector.h"
#include "stator/scaling/metrics_page.h"
#include "stator/session/connector.h"

namespace stator::cli {
namespace {

constexpr uint32_t kSimWorkersMax = 16;
constexpr double kStartUp_s = 3;
constexpr double kInterval_s = 5;
constexpr double kDownHold_s = 60;
constexpr Duration kPoll = std::chrono::milliseconds(20);
constexpr std::string_view kHidden = "***";

/// A folder that only this user can read, gone when the object goes.
class PrivateFolder {
 public:
  static Result<PrivateFolder> create() {
    std::string name = (std::filesystem::temp_directory_path() / "stator-serve-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      return Error(Code::kIo, fmt::format("cannot make a folder like '{}'", name));
    }
    return PrivateFolder(std::move(name));
  }
  PrivateFolder(PrivateFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  PrivateFolder& operator=(PrivateFolder&&) = delete;
  ~PrivateFolder() {
    std::error_code ignored;
    if (!path_.empty()) {
      std::filesystem::remove_all(path_, ignored);
    }
  }
  const std::string& path() const { return path_; }

 private:
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// What the workers of this process would be told, as the file of a `stator worker`. Secrets stay
/// out of it: workers inherit the environment.
std::string worker_settings(Settings settings, const std::string& folder) {
  settings.worker.count = 1;
  settings.worker.port = 0;
  settings.system.port = -1;
  settings.announce = false;
  settings.discovery = "file:" + folder;
  ConfigSchema schema;
  describe(schema, settings);
  std::string out, section;
  for (const ConfigField& field : schema.fields()) {
    const size_t dot = field.key.find('.');
    const std::string value = field.get();
    const std::string key = dot == std::string::npos ? field.key : field.key.substr(dot + 1);
    const std::string in = dot == std::string::npos ? "" : field.key.substr(0, dot);
    if (value == kHidden || in == "http" || in == "access" || in == "admin") {
      continue;
    }
    if (in != section) {
      out += in.empty() ? std::string() : in + ":\n";
      section = in;
    }
    std::string quoted = value;
    for (size_t at = quoted.find('\''); at != std::string::npos; at = quoted.find('\'', at + 2)) {
      quoted.insert(at, 1, '\'');
    }
    out += fmt::format("{}{}: '{}'\n", in.empty() ? "" : "  ", key, quoted);
  }
  return out;
}

Result<std::vector<std::string>> worker_command(const Invocation& invocation,
                                                const std::string& folder) {
  const std::string file = folder + "/worker.yaml";
  const std::string discovery = folder + "/fleet";
  std::error_code failed;
  std::filesystem::create_directories(discovery, failed);
  STATOR_CHECK(io::replace_file(file, worker_settings(invocation.settings, discovery)));
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) {
    return Error(Code::kIo, "cannot find this program in /proc to start workers");
  }
  std::vector<std::string> out = {self.string(), "worker"};
  if (const std::string model = model_of(invocation); !model.empty()) {
    out.push_back(model);
  }
  out.insert(out.end(), {"--config", file, "--exit-with-parent"});
  return out;
}

Result<scaling::ServiceConfig> read_service(const Invocation& invocation) {
  const Settings& settings = invocation.settings;
  const engine::EngineConfig& engine = settings.worker.engine_config;
  const bool simulated = settings.worker.engine == "sim";
  app::EngineLimits limits{.max_num_seqs = double{1} * engine.max_num_seqs,
                           .block_size = double{1} * engine.block_size};
  limits.max_num_batched_tokens = engine.max_num_batched_tokens > 0
                                      ? double{1} * engine.max_num_batched_tokens
                                      : (simulated ? 8192 : 512);
  limits.max_kv_tokens = double{1} * engine.total_blocks * engine.block_size;
  planner::PlannerConfig defaults;
  defaults.start_up_s =
      kStartUp_s + std::chrono::duration<double>(settings.worker.sim_startup_time).count();
  defaults.mpc_interval_s = kInterval_s;
  defaults.down_hold_min_s = kDownHold_s;
  defaults.spend_limit = 0;  // processes of this machine: the goals come first
  defaults.max_workers =
      simulated ? kSimWorkersMax : std::max(1U, std::thread::hardware_concurrency());
  scaling::ServiceConfig out;
  STATOR_TRY(out.planner, app::read_planner_config(invocation, limits, defaults));
  out.advisory = invocation.options.contains("--advisory");
  if (const auto file = invocation.options.find("--planner-config");
      file != invocation.options.end()) {
    planner::PlannerConfig again;
    app::PlannerFileFacts facts;
    STATOR_CHECK(app::read_planner_file(file->second, again, &facts));
    out.advisory = out.advisory || facts.advisory;
    STATOR_CHECK(warm_up(facts.warmup_trace, 1, out.planner));
  }
  if (const auto file = invocation.options.find("--journal"); file != invocation.options.end()) {
    out.journal = file->second;
  }
  out.timing = settings.worker.sim.timing;
  out.learn_from_clients = !simulated;
  out.observer = {.prefix = settings.frontend.metrics_prefix,
                  .model = {},
                  .name_space = {},
                  .block_size = limits.block_size,
                  .ttft_ms = out.planner.ttft_ms,
                  .itl_ms = out.planner.itl_ms,
                  .from_router = false};
  return out;
}

/// Until the frontend has a worker; false when a signal came first.
bool wait_for_worker(const Metrics& metrics, Signals& signals) {
  const auto registered = [&] {
    const auto page = scaling::MetricsPage::parse(metrics.render());
    return page ? page->sum("dynamo_component_router_worker_registered").value_or(0) : 0;
  };
  while (registered() < 1) {
    if (signals.wait_for(kPoll)) {
      return false;
    }
  }
  return true;
}

}  // namespace

Status run_scaled_serve(Invocation& invocation) {
  Settings& settings = invocation.settings;
  if (settings.worker.engine != "cpu" && settings.worker.engine != "sim") {
    return Error(Code::kInvalidArgument,
                 fmt::format("--planner starts and ends workers of our own engines (cpu, sim); "
                             "servers of engine '{}' are scaled with `stator planner`",
                             settings.worker.engine));
  }
  STATOR_TRY(scaling::ServiceConfig config, read_service(invocation));
  STATOR_TRY(const auto timing, perf::make_timing(config.timing, settings.worker.sim.linear));
  SystemClock clock;
  Metrics metrics;
  app::add_process_metrics(metrics);
  Signals signals;
  STATOR_TRY(auto process, app::FrontendProcess::create(settings, clock, metrics));
  STATOR_CHECK(app::check_model(model_of(invocation), settings));
  STATOR_TRY(const PrivateFolder folder, PrivateFolder::create());
  STATOR_TRY(const auto command, worker_command(invocation, folder.path()));
  settings.discovery = fmt::format("file:{}/fleet", folder.path());
  STATOR_TRY(const auto discovery, app::open_discovery(settings, clock, metrics));
  STATOR_TRY(const auto sessions, session::make_grpc_connector({}, metrics));
  STATOR_CHECK(process->start(*discovery, *sessions));
  if (!process->join_port(*discovery, signals)) {
    return {};
  }
  STATOR_TRY(const auto admin,
             app::start_admin_server(settings, *process, {*discovery}, clock, metrics));
  const auto connector = scaling::make_process_connector(
      {.command = command,
       .prefill_command = {},
       .stop_timeout = settings.worker.drain_timeout + std::chrono::seconds(10),
       .processes_max = config.planner.max_workers},
      clock, metrics);
  scaling::ServiceParts parts{.timing = timing.get(), .connector = connector.get()};
  parts.initial.decode = std::clamp(settings.worker.count, std::max(1U, config.planner.min_workers),
                                    config.planner.max_workers);
  STATOR_CHECK(connector->set(parts.initial, "start"));
  parts.sources.push_back(scaling::make_own_source([&metrics] { return metrics.render(); }));
  parts.count_fleet = app::count_by(*discovery);
  STATOR_TRY(const auto planner,
             scaling::PlannerService::start(std::move(config), std::move(parts), clock, metrics));
  uint32_t wanted_port = 0;
  STATOR_CHECK(read_number<uint32_t>(invocation, "--planner-port", 0, 65'535, wanted_port));
  app::PlannerServer server(*planner, clock, metrics);
  STATOR_CHECK(server.open("127.0.0.1", static_cast<uint16_t>(wanted_port), metrics),
               "--planner-port");
  if (!wait_for_worker(metrics, signals)) {
    server.close();
    planner->stop();
    return {};
  }
  log::info("serve", "ready",
            {{"url", process->url()},
             {"engine", settings.worker.engine},
             {"planner", fmt::format("http://127.0.0.1:{}/", server.port())}});
  app::announce(
      settings, "serve",
      fmt::format(R"("url":"{}","port":{},"planner_port":{},"admin_port":{})", process->url(),
                  process->port(), server.port(), admin == nullptr ? -1 : int32_t{admin->port()}));
  signals.wait();
  process->drain_and_stop(signals);  // the workers stay until the last stream is over
  server.close();
  planner->stop();
  if (admin != nullptr) {
    admin->close();
  }
  return {};
}

}  // namespace stator::cli
