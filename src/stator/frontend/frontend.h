// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/frontend/fleet_service.h"
#include "stator/frontend/frontend_config.h"
#include "stator/frontend/model_catalog.h"
#include "stator/frontend/prompt_encoder.h"
#include "stator/frontend/shard_service.h"
#include "stator/net/compute_pool.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"
#include "stator/router/receipt.h"
#include "stator/runtime/connector.h"
#include "stator/runtime/discovery.h"

namespace stator::frontend {

/// The HTTP front door of a process: one ShardService and one listener per shard.
///
///   STATOR_TRY(auto frontend, Frontend::create(config, shards, environment));
///   shards.start();
///   STATOR_CHECK(frontend->start(discovery, connector));
///   …
///   frontend->drain(); while (frontend->active() > 0 && in time) wait; frontend->stop();
///
/// Called from the main thread, never from a loop.
class Frontend {
 public:
  struct Environment {
    ModelCatalog& catalog;
    router::ReceiptLog& receipts;
    Metrics& metrics;
  };
  /// Binds the listeners; before shards.start(). Errors as HttpServer::listen.
  static Result<std::unique_ptr<Frontend>> create(const FrontendConfig& config,
                                                  net::ShardSet& shards, Environment environment);
  Frontend(const Frontend&) = delete;
  Frontend& operator=(const Frontend&) = delete;
  ~Frontend();

  /// Starts looking for workers; after shards.start(). Both arguments outlive stop().
  void start(runtime::Discovery& discovery, runtime::Connector& connector);
  uint16_t port() const;
  /// Refuses new work and closes idle connections; what runs goes on.
  void drain();
  /// Exchanges that are not answered yet.
  size_t active() const;
  /// Fails what still runs and closes everything. Idempotent.
  void stop();

 private:
  Frontend(const FrontendConfig& config, net::ShardSet& shards, Environment environment);

  const FrontendConfig config_;
  net::ShardSet& shards_;
  Environment environment_;
  FleetService fleet_;
  net::ComputePool compute_;
  PromptEncoder encoder_;
  std::atomic<bool> draining_{false};
  bool stopped_ = false;
  std::vector<std::unique_ptr<ShardService>> services_;
  std::vector<std::unique_ptr<net::HttpServer>> servers_;
};

/// Number of shards for a configured value: 0 means cores − 1, at least 1.
uint32_t resolve_shard_count(uint32_t configured);
/// Number of threads of the compute pool: 0 means the cores that the shards leave, at least 1.
uint32_t resolve_compute_threads(uint32_t configured, uint32_t shards);

}  // namespace stator::frontend
