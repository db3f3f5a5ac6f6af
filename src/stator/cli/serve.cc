// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "stator/cli/command.h"
#include "stator/cli/run_server.h"
#include "stator/cli/signals.h"
#include "stator/cli/worker_host.h"
#include "stator/core/log.h"
#include "stator/runtime/connector.h"
#include "stator/runtime/local_worker.h"
#include "stator/runtime/memory_discovery.h"
#include "stator/runtime/worker_server.h"

namespace stator::cli {
namespace {

constexpr Duration kDrainPoll = std::chrono::milliseconds(20);
// For the engine's last words to leave.
constexpr Duration kHandOffLimit = std::chrono::seconds(5);

/// The workers of one process, offered to its own frontend.
struct LocalWorkers {
  std::vector<WorkerHost::Worker> hosted;
  std::vector<std::unique_ptr<runtime::LocalWorker>> local;

  std::vector<runtime::LocalWorker*> pointers() const {
    std::vector<runtime::LocalWorker*> out;
    for (const auto& worker : local) {
      out.push_back(worker.get());
    }
    return out;
  }
};

Result<LocalWorkers> make_workers(WorkerHost& host, uint32_t count, Metrics& metrics) {
  LocalWorkers workers;
  for (uint32_t i = 0; i < count; ++i) {
    STATOR_TRY(auto worker, host.make_worker());
    worker.record.address = "local";
    workers.local.push_back(std::make_unique<runtime::LocalWorker>(
        worker.record.key.worker, worker.record.incarnation, *worker.engine, metrics));
    workers.hosted.push_back(std::move(worker));
  }
  return workers;
}

/// Lets running requests finish, then gives the rest to other workers: the engine's last words
/// reach the frontends before the sessions end. A second signal cuts the first part short.
void drain_worker(runtime::WorkerServer& server, engine::Engine& engine, Duration timeout,
                  Signals& signals) {
  log::info("worker", "draining: no new requests, running ones may finish",
            {{"in_flight", server.in_flight()}});
  server.drain();
  for (Duration waited{}; waited < timeout && server.in_flight() > 0; waited += kDrainPoll) {
    if (signals.wait_for(kDrainPoll)) {
      break;
    }
  }
  const size_t left = server.in_flight();
  engine.stop();
  for (Duration waited{}; waited < kHandOffLimit && server.unsent() > 0; waited += kDrainPoll) {
    signals.wait_for(kDrainPoll);
  }
  if (left > 0) {
    log::info("worker", "requests handed over to other workers", {{"requests", left}});
  }
}

}  // namespace

Status run_serve(Invocation& invocation) {
  const Settings& settings = invocation.settings;
  SystemClock clock;
  Metrics metrics;
  Signals signals;
  // The port first: a taken one should be told before seconds of loading.
  STATOR_TRY(auto process, FrontendProcess::create(settings, clock, metrics));
  STATOR_TRY(auto host, WorkerHost::open(invocation.positionals.front(), settings, clock, metrics));
  STATOR_TRY(LocalWorkers workers, make_workers(*host, settings.worker.count, metrics));
  STATOR_CHECK(process->catalog().preload(workers.hosted.front().record.model));

  const auto discovery = runtime::make_memory_discovery(metrics);
  runtime::LocalConnector connector(workers.pointers(), nullptr, metrics);
  std::vector<std::unique_ptr<runtime::Registration>> registrations;  // go before their discovery
  for (const WorkerHost::Worker& worker : workers.hosted) {
    STATOR_TRY(auto registration, discovery->register_instance(worker.record));
    registrations.push_back(std::move(registration));
  }
  STATOR_CHECK(process->start(*discovery, connector));
  log::info("serve", "ready",
            {{"url", process->url()},
             {"model", host->model_name()},
             {"engine", settings.worker.engine},
             {"workers", settings.worker.count}});
  announce(settings, "serve",
           fmt::format("\"url\":\"{}\",\"port\":{}", process->url(), process->port()));
  signals.wait();
  process->drain_and_stop(signals);
  return {};
}

Status run_frontend(Invocation& invocation) {
  const Settings& settings = invocation.settings;
  if (settings.discovery == "memory") {
    return Error(Code::kInvalidArgument,
                 "a frontend without workers of its own needs --discovery file:DIR or "
                 "etcd://host:port; for one "
                 "process use `stator serve MODEL`");
  }
  SystemClock clock;
  Metrics metrics;
  Signals signals;
  STATOR_TRY(auto discovery, open_discovery(settings, clock, metrics));
  STATOR_TRY(auto connector, runtime::make_grpc_connector({}, metrics));
  STATOR_TRY(auto process, FrontendProcess::create(settings, clock, metrics));
  STATOR_CHECK(process->start(*discovery, *connector));
  log::info("frontend", "ready; waiting for workers",
            {{"url", process->url()}, {"discovery", settings.discovery}});
  announce(settings, "frontend",
           fmt::format("\"url\":\"{}\",\"port\":{}", process->url(), process->port()));
  signals.wait();
  process->drain_and_stop(signals);
  return {};
}

Status run_worker(Invocation& invocation) {
  const Settings& settings = invocation.settings;
  if (settings.discovery == "memory") {
    return Error(Code::kInvalidArgument,
                 "a worker process needs --discovery file:DIR or etcd://host:port, the same as its "
                 "frontend's");
  }
  SystemClock clock;
  Metrics metrics;
  Signals signals;
  STATOR_TRY(auto discovery, open_discovery(settings, clock, metrics));
  STATOR_TRY(auto host, WorkerHost::open(invocation.positionals.front(), settings, clock, metrics));
  STATOR_TRY(WorkerHost::Worker worker, host->make_worker());
  STATOR_TRY(auto server, runtime::WorkerServer::start(worker.record, *worker.engine,
                                                       {.listen_host = settings.worker.listen_host,
                                                        .port = settings.worker.port},
                                                       clock, metrics));
  worker.record.address = server->address();
  STATOR_TRY(auto registration, discovery->register_instance(worker.record));
  log::info("worker", "ready",
            {{"worker", worker.record.key.worker.value()},
             {"model", host->model_name()},
             {"engine", settings.worker.engine},
             {"address", server->address()}});
  announce(settings, "worker",
           fmt::format("\"worker_id\":\"{}\",\"address\":\"{}\"", worker.record.key.worker.value(),
                       server->address()));
  signals.wait();
  worker.record.state = runtime::InstanceState::kDraining;
  registration->update(worker.record).ignore("frontends are told on their sessions, too");
  drain_worker(*server, *worker.engine, settings.worker.drain_timeout, signals);
  registration.reset();
  server->shutdown();
  log::info("worker", "stopped");
  return {};
}

}  // namespace stator::cli
