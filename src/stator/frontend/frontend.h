// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stator/batches/batch_service.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/discovery/discovery.h"
#include "stator/frontend/batch_runner.h"
#include "stator/frontend/fleet_service.h"
#include "stator/frontend/frontend_config.h"
#include "stator/frontend/model_catalog.h"
#include "stator/frontend/prompt_encoder.h"
#include "stator/frontend/shard_service.h"
#include "stator/net/compute_pool.h"
#include "stator/net/http_port.h"
#include "stator/net/shard.h"
#include "stator/responses/response_store.h"
#include "stator/router/receipt.h"
#include "stator/session/connector.h"

namespace stator::frontend {

/// The HTTP front door of a process: one ShardService and one listener per shard.
///
///   STATOR_TRY(auto frontend, Frontend::create(config, shards, environment));
///   shards.start();
///   frontend->start(discovery, connector);
///   …
///   frontend->leave(); wait; frontend->port().drain(); wait; frontend->stop();
///
/// Called from the main thread, never from a loop.
class Frontend {
 public:
  struct Environment {
    ModelCatalog& catalog;
    router::ReceiptLog& receipts;
    Metrics& metrics;
    continuity::JournalHub* journals = nullptr;  ///< outlives stop(); null: streams end with us
    const Entrance* entrance = nullptr;          ///< the same; null: everybody may everything
  };
  /// Binds the listeners; before shards.start(). Errors as HttpServer::listen.
  static Result<std::unique_ptr<Frontend>> create(const FrontendConfig& config,
                                                  net::ShardSet& shards, Environment environment,
                                                  net::PortJoin join);
  Frontend(const Frontend&) = delete;
  Frontend& operator=(const Frontend&) = delete;
  ~Frontend();

  /// Starts looking for workers, and accepts unless it joined a port; after shards.start(). Both
  /// arguments outlive stop().
  void start(discovery::Discovery& discovery, session::Connector& connector);
  net::HttpPort& port() { return *port_; }
  /// Of gRPC alone; null unless the configuration wants one.
  net::HttpPort* grpc_port() { return grpc_port_.get(); }
  /// Where it joined a port: begins to accept.
  void accept();
  /// After leave(): takes no connections any more, and those there are close as they become idle.
  void drain();
  /// See preview_routing(); media that are elsewhere are not fetched. Any thread, until stop().
  api::ApiResult<std::string> preview(net::HttpRequest request) const;
  Stage stage() const { return stage_.load(std::memory_order_relaxed); }
  /// The workers it looks for.
  discovery::InstanceQuery worker_query() const {
    return {.namespace_name = config_.worker_namespace, .component = {}, .endpoint = "generate"};
  }

  /// Every shard has a line to each of them, and their models are read.
  bool can_serve(std::span<const discovery::InstanceRecord> workers);
  /// Serves on, but asks clients to connect anew: to whoever shares the port, if anybody does (true
  /// then), else to where their load balancer finds that /health is well.
  bool leave();
  /// Fails what still runs and closes everything. Idempotent.
  void stop();

 private:
  Frontend(const FrontendConfig& config, net::ShardSet& shards, Environment environment);
  Status open_stores();
  void add_services();

  const FrontendConfig config_;
  net::ShardSet& shards_;
  Environment environment_;
  FleetService fleet_;
  WorkerGauges worker_gauges_;
  net::ByteBudget answers_;
  net::ByteBudget media_bytes_;
  std::unique_ptr<media::Fetcher> fetcher_;  // null after stop()
  std::unique_ptr<responses::ResponseStore> responses_;
  std::unique_ptr<batches::BatchService> batches_;  // null: no folder
  std::unique_ptr<BatchRunner> batch_runner_;
  net::ComputePool compute_;
  PromptEncoder encoder_;
  std::atomic<Stage> stage_{Stage::kServing};
  bool stopped_ = false;
  std::vector<std::unique_ptr<ShardService>> services_;
  std::unique_ptr<net::HttpPort> port_;
  std::unique_ptr<net::HttpPort> grpc_port_;  // null: none
};

/// Number of shards for a configured value: 0 means cores − 1, at least 1.
uint32_t resolve_shard_count(uint32_t configured);
/// Number of threads of the compute pool: 0 means the cores that the shards leave, at least 1.
uint32_t resolve_compute_threads(uint32_t configured, uint32_t shards);

}  // namespace stator::frontend
