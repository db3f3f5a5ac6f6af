// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <utility>
#include <vector>

#include "stator/app/event_carrier.h"
#include "stator/app/kv_store_discovery.h"
#include "stator/app/model_hosts.h"
#include "stator/app/operator_wishes.h"
#include "stator/app/process_metrics.h"
#include "stator/app/run_server.h"
#include "stator/app/signals.h"
#include "stator/app/system_server.h"
#include "stator/app/worker_host.h"
#include "stator/cli/command.h"
#include "stator/core/log.h"
#include "stator/discovery/discovery.h"
#include "stator/kv_events/event_publisher.h"
#include "stator/kv_events/forward_pass_publisher.h"
#include "stator/kv_events/lossy_connection.h"
#include "stator/net/grpc_server.h"
#include "stator/session/worker_server.h"

namespace stator::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration kDrainPoll = std::chrono::milliseconds(20);
// For the engine's last words to leave.
constexpr Duration kHandOffLimit = std::chrono::seconds(5);

/// The workers of one process, each behind a gRPC service of its own.
struct ServedWorkers {
  std::vector<app::WorkerHost::Worker> hosted;
  std::shared_ptr<net::ByteBudget> message_budget;  // of all servers of the process
  std::vector<std::unique_ptr<session::WorkerServer>> servers;
  std::unique_ptr<kv_events::NatsConnection> broker;  ///< null: events go over gRPC
  std::unique_ptr<kv_events::NatsConnection> faulty;  ///< the broker, if its link shall be bad
  std::vector<std::unique_ptr<kv_events::EventPublisher>> publishers;
  std::vector<std::unique_ptr<kv_events::ForwardPassPublisher>> pass_publishers;
  std::vector<std::unique_ptr<discovery::Registration>> registrations;

  size_t in_flight() const {
    size_t count = 0;
    for (const auto& server : servers) {
      count += server->in_flight();
    }
    return count;
  }
  /// Somebody may still fetch a prompt that was computed here.
  bool owe_prompts() const {
    return std::ranges::any_of(hosted, &app::WorkerHost::Worker::owes_prompts);
  }
  size_t unsent() const {
    size_t count = 0;
    for (const auto& server : servers) {
      count += server->unsent();
    }
    return count;
  }
};

/// Starts telling the broker what the worker's engine does.
Status publish_events(ServedWorkers& out, const app::WorkerHost::Worker& worker,
                      const app::EventSettings& settings, const Clock& clock, Metrics& metrics) {
  STATOR_TRY(auto sink, app::open_durable_sink(settings, *out.broker, worker.record.key));
  STATOR_TRY(auto publisher, kv_events::EventPublisher::start(
                                 out.faulty != nullptr ? *out.faulty : *out.broker, worker.record,
                                 worker.engine->events(), clock, metrics, std::move(sink)));
  out.publishers.push_back(std::move(publisher));
  if (!settings.forward_passes) {
    return {};
  }
  engine::ForwardPassLog* passes = worker.engine->forward_passes();
  if (passes == nullptr) {
    return Error(Code::kUnsupported,
                 fmt::format("events.forward_passes: the passes of engine '{}' cannot be seen",
                             worker.record.model.engine_kind));
  }
  out.pass_publishers.push_back(
      kv_events::ForwardPassPublisher::start(*out.broker, worker.record, *passes, clock, metrics));
  return {};
}

/// Puts the faults of a simulated engine's events between it and the broker.
Status break_link(ServedWorkers& out, const Settings& settings, Metrics& metrics) {
  const engine::SimFaults& faults = settings.worker.sim_faults;
  if (!faults.any_of_events()) {
    return {};
  }
  if (settings.worker.engine != "sim" || out.broker == nullptr || settings.events.durable) {
    return Error(Code::kInvalidArgument,
                 "sim_fault.lose_events, sim_fault.repeat_events and sim_fault.reorder_events are "
                 "of simulated engines (--engine sim) whose events a broker carries (--events "
                 "nats://HOST:PORT) and does not keep (no --durable-kv-events)");
  }
  out.faulty = kv_events::make_lossy_connection(*out.broker,
                                                {.lost = faults.lose_events,
                                                 .repeated = faults.repeat_events,
                                                 .reordered = faults.reorder_events,
                                                 .seed = faults.seed},
                                                metrics);
  return {};
}

Status serve_worker(ServedWorkers& out, app::WorkerHost& host, discovery::Discovery& discovery,
                    const Settings& settings, const Clock& clock, Metrics& metrics) {
  STATOR_TRY(app::WorkerHost::Worker worker, host.make_worker());
  const auto index = static_cast<uint16_t>(out.hosted.size());
  const uint16_t port = settings.worker.port;
  STATOR_TRY(auto tls, settings.rpc.tls());
  STATOR_TRY(
      auto server,
      session::WorkerServer::start(
          worker.record, *worker.engine,
          {.listen_host = settings.worker.listen_host,
           .port = port == 0 ? port : static_cast<uint16_t>(port + index),
           .tls = std::move(tls),
           .message_budget = out.message_budget,
           .on_wish = [target = app::WishTarget(worker)](
                          const session::OperatorWish& wish,
                          session::OperatorDone done) { target.carry_out(wish, std::move(done)); }},
          clock, metrics));
  worker.record.address = server->address();
  server->update(worker.record);
  worker.on_record = [tell = server.get()](const discovery::InstanceRecord& record) {
    tell->update(record);
  };
  if (out.broker != nullptr) {
    STATOR_CHECK(publish_events(out, worker, settings.events, clock, metrics));
  }
  STATOR_TRY(auto registration, discovery.register_instance(worker.record));
  log::info("worker", "ready",
            {{"worker", worker.record.key.worker.value()},
             {"model", host.model_name()},
             {"engine", settings.worker.engine},
             {"address", server->address()}});
  out.hosted.push_back(std::move(worker));
  out.servers.push_back(std::move(server));
  out.registrations.push_back(std::move(registration));
  return {};
}

/// Lets running requests finish and finished prompts be fetched, then gives the rest to other
/// workers: the engines' last words reach the frontends before the sessions end. A second signal
/// cuts the first part short.
void drain_and_stop(ServedWorkers& workers, const Settings& settings, Signals& signals) {
  log::info("worker", "draining: no new requests, running ones may finish",
            {{"in_flight", workers.in_flight()}});
  for (size_t i = 0; i < workers.hosted.size(); ++i) {
    workers.hosted[i].record.state = discovery::InstanceState::kDraining;
    workers.registrations[i]
        ->update(workers.hosted[i].record)
        .ignore("frontends are told on their sessions, too");
    workers.servers[i]->update(workers.hosted[i].record);
    workers.servers[i]->drain();
  }
  const Duration timeout = settings.worker.drain_timeout;
  bool told = false;
  for (Duration waited{}; waited < timeout && (workers.in_flight() > 0 || workers.owe_prompts());
       waited += kDrainPoll) {
    if (workers.in_flight() == 0 && !std::exchange(told, true)) {
      log::info("worker", "nothing runs, but prompts may still be fetched");
    }
    if (signals.wait_for(kDrainPoll)) {
      break;
    }
  }
  const size_t left = workers.in_flight();
  for (app::WorkerHost::Worker& worker : workers.hosted) {
    worker.engine->stop();
  }
  for (Duration waited{}; waited < kHandOffLimit && workers.unsent() > 0; waited += kDrainPoll) {
    signals.wait_for(kDrainPoll);
  }
  if (left > 0) {
    log::info("worker", "requests handed over to other workers", {{"requests", left}});
  }
  workers.registrations.clear();
  for (const auto& server : workers.servers) {
    server->shutdown();
  }
  log::info("worker", "stopped");
}

}  // namespace

Status run_worker(Invocation& invocation) {
  if (invocation.options.contains("--exit-with-parent") &&
      (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || getppid() == 1)) {
    return Error(Code::kCancelled, "--exit-with-parent: the process that started this one is gone");
  }
  if (invocation.settings.discovery == "memory") {
    return Error(Code::kInvalidArgument,
                 "a worker process needs --discovery file:DIR, etcd://host:port or "
                 "kubernetes:NAMESPACE, the same as its frontend's, or --discovery static where "
                 "its frontends name it");
  }
  STATOR_CHECK(invocation.settings.rpc.check_reach("worker.listen_host",
                                                   invocation.settings.worker.listen_host));
  SystemClock clock;
  Metrics metrics;
  app::add_process_metrics(metrics);
  app::label_fleet_metrics(metrics, invocation.settings);
  Signals signals;
  STATOR_TRY(auto discovery, app::open_discovery(invocation.settings, clock, metrics));
  const Settings settings = app::with_store(invocation.settings, *discovery, signals);
  STATOR_CHECK(app::check_models(invocation, settings));
  STATOR_CHECK(app::check_kv_budgets(
      settings, static_cast<uint32_t>(std::max<size_t>(1, invocation.positionals.size()))));
  // Outlives everything that talks to it.
  STATOR_TRY(const auto launched, app::launch_server(invocation, clock, metrics));
  STATOR_TRY(const auto servers, app::connect_servers(settings, signals, clock, metrics));
  STATOR_TRY(const auto hosts, app::ModelHosts::open(invocation, settings, clock, metrics,
                                                     {.servers = servers.get()}));
  std::unique_ptr<app::SystemServer>
      system;  // outlives the workers, which may have wishes to answer
  ServedWorkers workers;
  workers.message_budget = std::make_shared<net::ByteBudget>(
      "grpc_messages", net::GrpcServerOptions::kServerBytesMax, metrics);
  STATOR_TRY(workers.broker, app::open_event_carrier(settings.events, "worker", metrics));
  STATOR_CHECK(break_link(workers, settings, metrics));
  for (const auto& host : hosts->all()) {
    for (uint32_t i = 0; i < host->count(1); ++i) {
      STATOR_CHECK(serve_worker(workers, *host, *discovery, settings, clock, metrics));
    }
  }
  STATOR_TRY(system, app::start_system_server(settings.system, workers.hosted, clock, metrics));
  const discovery::InstanceRecord& first = workers.hosted.front().record;
  app::announce(
      settings, "worker",
      fmt::format(R"("worker_id":"{}","address":"{}","system_port":{})", first.key.worker.value(),
                  first.address, system == nullptr ? -1 : int32_t{system->port()}));
  app::wait_and_report(signals, clock, workers.hosted, workers.registrations);
  if (system != nullptr) {
    system->close();
  }
  drain_and_stop(workers, settings, signals);
  return {};
}

}  // namespace stator::cli
