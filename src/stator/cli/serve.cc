// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "stator/app/admin_server.h"
#include "stator/app/model_hosts.h"
#include "stator/app/process_metrics.h"
#include "stator/app/run_server.h"
#include "stator/app/signals.h"
#include "stator/app/system_server.h"
#include "stator/app/worker_host.h"
#include "stator/cli/command.h"
#include "stator/cli/planner_commands.h"
#include "stator/core/log.h"
#include "stator/discovery/memory_discovery.h"
#include "stator/session/connector.h"
#include "stator/session/local_worker.h"

namespace stator::cli {
namespace {

constexpr uint32_t kServeWorkersDefault = 2;

/// The workers of one process, offered to its own frontend.
struct LocalWorkers {
  std::vector<app::WorkerHost::Worker> hosted;
  std::vector<std::unique_ptr<session::LocalWorker>> local;

  std::vector<session::LocalWorker*> pointers() const {
    std::vector<session::LocalWorker*> out;
    for (const auto& worker : local) {
      out.push_back(worker.get());
    }
    return out;
  }
};

/// What operators talk to. Closed before the workers go, also when something later fails.
struct OperatorPorts {
  std::unique_ptr<app::SystemServer> system;
  std::unique_ptr<app::AdminServer> admin;

  struct Closing {
    explicit Closing(OperatorPorts& ports) : ports(ports) {}
    Closing(const Closing&) = delete;
    Closing& operator=(const Closing&) = delete;
    ~Closing() {
      if (ports.system != nullptr) {
        ports.system->close();
      }
      if (ports.admin != nullptr) {
        ports.admin->close();
      }
    }
    OperatorPorts& ports;
  };
};

Status add_workers(LocalWorkers& workers, app::WorkerHost& host, Metrics& metrics) {
  for (uint32_t i = 0; i < host.count(kServeWorkersDefault); ++i) {
    STATOR_TRY(auto worker, host.make_worker());
    // Nobody connects to it; people want to know which engine it stands for.
    worker.record.address = host.shown_place();
    workers.local.push_back(std::make_unique<session::LocalWorker>(
        worker.record.key.worker, worker.record.incarnation, *worker.engine, metrics));
    workers.hosted.push_back(std::move(worker));
  }
  return {};
}

/// Makes the workers of every model, and tells the frontend what it need not load again.
Status add_models(LocalWorkers& workers, const app::ModelHosts& hosts,
                  app::FrontendProcess& process, Metrics& metrics) {
  for (const auto& host : hosts.all()) {
    const size_t first = workers.hosted.size();
    STATOR_CHECK(add_workers(workers, *host, metrics));
    process.know_assets(host->model_dir(), host->assets());
    STATOR_CHECK(process.catalog().preload(workers.hosted[first].record.model));
  }
  return {};
}

}  // namespace

Status run_serve(Invocation& invocation) {
  if (invocation.options.contains("--planner")) {
    if (invocation.positionals.size() > 1) {
      return Error(Code::kInvalidArgument, "--planner scales the workers of one MODEL");
    }
    return run_scaled_serve(invocation);
  }
  const Settings& settings = invocation.settings;
  SystemClock clock;
  Metrics metrics;
  app::add_process_metrics(metrics);
  app::label_fleet_metrics(metrics, settings);
  Signals signals;
  // The port first: a taken one should be told before seconds of loading.
  STATOR_TRY(auto process, app::FrontendProcess::create(settings, clock, metrics));
  STATOR_CHECK(app::check_models(invocation, settings));
  STATOR_CHECK(app::check_kv_budgets(
      settings, kServeWorkersDefault *
                    static_cast<uint32_t>(std::max<size_t>(1, invocation.positionals.size()))));
  // Outlives everything that talks to it.
  STATOR_TRY(const auto launched, app::launch_server(invocation, clock, metrics));
  STATOR_TRY(const auto servers, app::connect_servers(settings, signals, clock, metrics));
  STATOR_TRY(const auto hosts, app::ModelHosts::open(invocation, settings, clock, metrics,
                                                     {.servers = servers.get(),
                                                      .texts = app::WorkerHost::Texts::kKept}));
  OperatorPorts ports;  // outlive the workers, which may have wishes to answer
  LocalWorkers workers;
  STATOR_CHECK(add_models(workers, *hosts, *process, metrics));

  const auto discovery = discovery::make_memory_discovery(metrics);
  session::LocalConnector connector(workers.pointers(), nullptr, metrics);
  std::vector<std::unique_ptr<discovery::Registration>> registrations;  // go before their discovery
  for (const app::WorkerHost::Worker& worker : workers.hosted) {
    STATOR_TRY(auto registration, discovery->register_instance(worker.record));
    registrations.push_back(std::move(registration));
  }
  STATOR_CHECK(process->start(*discovery, connector));
  if (!process->join_port(*discovery, signals)) {
    return {};
  }
  const OperatorPorts::Closing closing(ports);
  STATOR_TRY(ports.admin, app::start_admin_server(settings, *process, {*discovery, workers.hosted},
                                                  clock, metrics));
  log::info("serve", "ready",
            {{"url", process->url()},
             {"model", hosts->names()},
             {"engine", settings.worker.engine},
             {"workers", workers.hosted.size()}});
  STATOR_TRY(ports.system,
             app::start_system_server(settings.system, workers.hosted, clock, metrics));
  app::announce(
      settings, "serve",
      fmt::format(R"("url":"{}","port":{},"system_port":{},"admin_port":{})", process->url(),
                  process->port(), ports.system == nullptr ? -1 : int32_t{ports.system->port()},
                  ports.admin == nullptr ? -1 : int32_t{ports.admin->port()}));
  app::wait_and_report(signals, clock, workers.hosted, registrations);
  if (ports.system != nullptr) {
    ports.system->close();
  }
  process->drain_and_stop(signals);
  return {};
}

Status run_frontend(Invocation& invocation) {
  const Settings& settings = invocation.settings;
  if (settings.discovery == "memory") {
    return Error(Code::kInvalidArgument,
                 "a frontend without workers of its own needs --discovery file:DIR, "
                 "etcd://host:port, kubernetes:NAMESPACE or static:HOST:PORT; for one "
                 "process use `stator serve MODEL`");
  }
  SystemClock clock;
  Metrics metrics;
  app::add_process_metrics(metrics);
  app::label_fleet_metrics(metrics, settings);
  Signals signals;
  STATOR_TRY(auto discovery, app::open_discovery(settings, clock, metrics, true));
  STATOR_TRY(const auto broker, app::open_event_carrier(settings.events, "frontend", metrics));
  session::GrpcOptions grpc;
  STATOR_TRY(grpc.tls, settings.rpc.tls());
  STATOR_TRY(auto sessions, session::make_grpc_connector(std::move(grpc), metrics));
  STATOR_TRY(const auto connector,
             app::carry_events(settings.events, std::move(sessions), broker.get(), clock, metrics));
  STATOR_TRY(auto process, app::FrontendProcess::create(settings, clock, metrics));
  STATOR_CHECK(process->start(*discovery, *connector));
  if (!process->join_port(*discovery, signals)) {
    return {};
  }
  STATOR_TRY(const auto admin,
             app::start_admin_server(settings, *process, {*discovery}, clock, metrics));
  log::info("frontend", process->joined() ? "ready" : "ready; waiting for workers",
            {{"url", process->url()}, {"discovery", settings.discovery}});
  app::announce(settings, "frontend",
                fmt::format(R"("url":"{}","port":{},"admin_port":{})", process->url(),
                            process->port(), admin == nullptr ? -1 : int32_t{admin->port()}));
  signals.wait();
  process->drain_and_stop(signals);
  if (admin != nullptr) {
    admin->close();
  }
  return {};
}

}  // namespace stator::cli
