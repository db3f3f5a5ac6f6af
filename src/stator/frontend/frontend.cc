// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/frontend.h"

#include <algorithm>

#include "stator/core/assert.h"
#include "stator/frontend/routing_preview.h"

namespace stator::frontend {
namespace {

void run_on(net::Shard& shard, net::Task task) {
  STATOR_ASSERT(shard.run_and_wait(std::move(task)), "set-up and tear-down fit the inbox");
}

}  // namespace

uint32_t resolve_shard_count(uint32_t configured) {
  return configured > 0 ? configured : std::max(1U, net::usable_cores() - 1);
}

uint32_t resolve_compute_threads(uint32_t configured, uint32_t shards) {
  const uint32_t cores = net::usable_cores();
  return configured > 0 ? configured : std::max(1U, cores - std::min(cores, shards));
}

Frontend::Frontend(const FrontendConfig& config, net::ShardSet& shards, Environment environment)
    : config_(config),
      shards_(shards),
      environment_(environment),
      fleet_(environment.metrics, Random::from_entropy()),
      worker_gauges_(environment.metrics, config.metrics_prefix),
      answers_("answers", config.answers_bytes_max, environment.metrics),
      media_bytes_("media", config.media.held_bytes_max, environment.metrics),
      compute_({.threads = resolve_compute_threads(config.compute_threads, shards.count()),
                .tasks_max = config.compute_queue_max,
                .bytes_max = config.compute_queue_bytes_max,
                .short_bytes = config.compute_short_bytes},
               shards.shard(0).clock(), environment.metrics),
      encoder_(config_, shards.shard(0).clock(), environment.metrics, &compute_) {}

/// What reaches beyond the process: stored things, if there are folders for them, and media.
Status Frontend::open_stores() {
  Clock& clock = shards_.shard(0).clock();
  STATOR_TRY(fetcher_,
             media::Fetcher::create(config_.media, media_bytes_, clock, environment_.metrics));
  STATOR_TRY(responses_,
             responses::ResponseStore::open(config_.responses, environment_.metrics,
                                            unix_seconds(clock.wall_now())),
             "opening responses.folder");
  if (!config_.batches.folder.empty()) {
    STATOR_TRY(batches_, batches::BatchService::open(config_.batches, environment_.metrics, clock),
               "opening batches.folder");
  }
  return {};
}

void Frontend::add_services() {
  const uint32_t count = shards_.count();
  for (uint32_t i = 0; i < count; ++i) {
    services_.push_back(std::make_unique<ShardService>(
        shards_.shard(i), ShardEnvironment{.config = config_,
                                           .catalog = environment_.catalog,
                                           .receipts = environment_.receipts,
                                           .metrics = environment_.metrics,
                                           .encoder = encoder_,
                                           .compute = compute_,
                                           .stage = stage_,
                                           .fleet = fleet_,
                                           .journals = environment_.journals,
                                           .answers = &answers_,
                                           .entrance = environment_.entrance,
                                           .responses = responses_.get(),
                                           .batches = batches_.get(),
                                           .worker_gauges = &worker_gauges_,
                                           .fetcher = fetcher_.get(),
                                           .media_bytes = &media_bytes_}));
  }
  std::vector<BatchRunner::Lane> lanes;
  for (uint32_t i = 0; i < count; ++i) {
    lanes.push_back({&shards_.shard(i), services_[i].get()});
  }
  batch_runner_ = std::make_unique<BatchRunner>(std::move(lanes));
}

Result<std::unique_ptr<Frontend>> Frontend::create(const FrontendConfig& config,
                                                   net::ShardSet& shards, Environment environment,
                                                   net::PortJoin join) {
  auto frontend = std::unique_ptr<Frontend>(new Frontend(config, shards, environment));
  STATOR_CHECK(frontend->open_stores());
  frontend->add_services();
  std::vector<net::HttpHandler*> handlers;
  for (const auto& service : frontend->services_) {
    handlers.push_back(service.get());
  }
  STATOR_TRY(frontend->port_,
             net::HttpPort::open(shards, config.http, handlers, environment.metrics, join));
  if (config.kserve_grpc_server) {
    net::HttpServerConfig grpc = config.http;
    grpc.port = config.kserve_grpc_port;
    grpc.budget_prefix = "grpc_";
    STATOR_TRY(frontend->grpc_port_,
               net::HttpPort::open(shards, grpc, handlers, environment.metrics, join),
               "opening kserve.grpc_port");
  }
  environment.metrics.gauge_callback(
      "stator_router_active_requests", "sum of live load leases; 0 when idle", {},
      [&catalog = environment.catalog] { return static_cast<double>(catalog.active_requests()); });
  return frontend;
}

Frontend::~Frontend() {
  stop();
}

void Frontend::start(discovery::Discovery& discovery, session::Connector& connector) {
  for (uint32_t i = 0; i < services_.size(); ++i) {
    session::WorkerPoolOptions options;
    options.query = worker_query();
    options.kv_events = i == 0 ? &environment_.catalog : nullptr;
    run_on(shards_.shard(i), [&service = *services_[i], &discovery, &connector,
                              options = std::move(options)]() mutable {
      service.start(std::move(options), discovery, connector);
    });
  }
  port_->start();
  if (grpc_port_ != nullptr) {
    grpc_port_->start();
  }
  if (batches_ != nullptr) {
    batches_->start(*batch_runner_);
  }
}

bool Frontend::can_serve(std::span<const discovery::InstanceRecord> workers) {
  const auto known = environment_.catalog.instances();
  for (const discovery::InstanceRecord& record : workers) {
    if (!std::ranges::binary_search(known, record.key.worker, {},
                                    &ModelCatalog::Instance::worker)) {
      return false;
    }
  }
  bool all = true;
  for (uint32_t i = 0; i < services_.size(); ++i) {
    run_on(shards_.shard(i), [&workers, &all, &service = *services_[i]] {
      all = all && std::ranges::all_of(workers, [&service](const auto& record) {
              return service.can_reach(record.key.worker);
            });
    });
  }
  return all;
}

void Frontend::accept() {
  port_->accept();
  if (grpc_port_ != nullptr) {
    grpc_port_->accept();
  }
}

void Frontend::drain() {
  port_->drain();
  if (grpc_port_ != nullptr) {
    grpc_port_->drain();
  }
}

bool Frontend::leave() {
  const bool handed_over = port_->leave();
  if (grpc_port_ != nullptr) {
    grpc_port_->leave();
  }
  if (!handed_over) {
    stage_.store(Stage::kLeaving, std::memory_order_relaxed);
  }
  return handed_over;
}

api::ApiResult<std::string> Frontend::preview(net::HttpRequest request) const {
  return preview_routing(std::move(request),
                         {.config = config_, .catalog = environment_.catalog, .encoder = encoder_},
                         environment_.receipts, shards_.shard(0).clock().wall_now());
}

void Frontend::stop() {
  if (stopped_) {
    return;
  }
  stopped_ = true;
  stage_.store(Stage::kStopping, std::memory_order_relaxed);
  if (batches_ != nullptr) {
    batches_->stop();
  }
  for (uint32_t i = 0; i < services_.size(); ++i) {
    run_on(shards_.shard(i), [this, i] { services_[i]->stop(); });
  }
  fetcher_.reset();  // nobody waits any more
  compute_.stop();
  // A turn later, so that the errors just written have left before their connections close, and the
  // pool's last messages have come.
  if (port_ != nullptr) {
    port_->close();
  }
  if (grpc_port_ != nullptr) {
    grpc_port_->close();
  }
}

}  // namespace stator::frontend
