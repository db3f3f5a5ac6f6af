// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "stator/continuity/journal_hub.h"
#include "stator/core/random.h"
#include "stator/frontend/endpoints.h"
#include "stator/frontend/entrance.h"
#include "stator/frontend/fleet_service.h"
#include "stator/frontend/frontend_config.h"
#include "stator/frontend/frontend_metrics.h"
#include "stator/frontend/kserve/kserve_service.h"
#include "stator/frontend/model_catalog.h"
#include "stator/frontend/pooling/pool_service.h"
#include "stator/frontend/preparation_queue.h"
#include "stator/frontend/prompt_encoder.h"
#include "stator/frontend/request_meters.h"
#include "stator/frontend/request_service.h"
#include "stator/frontend/resumption.h"
#include "stator/frontend/stored_work.h"
#include "stator/frontend/text_meters.h"
#include "stator/frontend/worker_gauges.h"
#include "stator/net/compute_pool.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"
#include "stator/router/receipt.h"
#include "stator/session/worker_pool.h"

namespace stator::frontend {

class ResponsesSockets;

/// What one shard's frontend needs from the process; all outlive it.
struct ShardEnvironment {
  const FrontendConfig& config;
  ModelCatalog& catalog;
  router::ReceiptLog& receipts;
  Metrics& metrics;
  const PromptEncoder& encoder;
  net::ComputePool& compute;
  const std::atomic<Stage>& stage;
  FleetService& fleet;
  continuity::JournalHub* journals = nullptr;     ///< null: streams end with this process
  net::ByteBudget* answers = nullptr;             ///< of answers being collected; null: unbounded
  const Entrance* entrance = nullptr;             ///< null: everybody may everything
  responses::ResponseStore* responses = nullptr;  ///< null: nothing is stored
  batches::BatchService* batches = nullptr;       ///< null: no files, no batches
  WorkerGauges* worker_gauges = nullptr;          ///< null: nobody looks
  media::Fetcher* fetcher = nullptr;              ///< null: media come as data: URLs only
  net::ByteBudget* media_bytes = nullptr;         ///< of media that requests hold
};

/// The frontend of one shard: answers HTTP requests.
///
///   on_request ─► handle_text ─► PreparationQueue ─► on_prepared ─► RequestService::run
///                     │              ▲                    └───────► PoolService::run
///                     └─ Resumption ─┘  with Last-Event-ID
///
/// Home loop: the shard's, for every method.
class ShardService final : public net::HttpHandler,
                           public PreparationListener,
                           public Resumption::Owner {
 public:
  ShardService(net::Shard& shard, ShardEnvironment environment);
  ~ShardService() override;

  /// Connects to workers; on the loop, once, before requests come.
  void start(session::WorkerPoolOptions options, discovery::Discovery& discovery,
             session::Connector& connector);
  /// Fails what runs and closes the sessions; on the loop.
  void stop();
  size_t active() const;
  /// Whether this shard has a line to the worker; on the loop.
  bool can_reach(WorkerId worker) { return requests_.lines().find_session(worker) != nullptr; }

  void on_request(net::HttpExchange& exchange) override;
  net::BodyRule body_rule(const net::HttpRequest& head) const override;
  std::string refusal_body(const net::HttpRequest& head, int status,
                           std::string_view message) const override;

  void on_prepared(net::HttpExchange& exchange, PrepareJob& job) override;
  void on_client_left(const PrepareJob& job) override;
  void on_journal(net::HttpExchange& exchange, std::shared_ptr<PrepareJob> job) override;
  void on_no_journal(net::HttpExchange& exchange, const PrepareJob& job, Error error) override;

 private:
  api::ErrorStyle error_style(const protocols::Protocol* protocol) const;
  /// Whether a request that costs something may start now.
  Status admit(const net::HttpRequest& request) const;
  void handle_text(net::HttpExchange& exchange, TextRoute route);
  void prepare(net::HttpExchange& exchange, std::shared_ptr<PrepareJob> job);
  void refuse(net::HttpExchange& exchange, const TextRoute& route, std::string_view request_id,
              const api::ApiError& error);
  void refuse(net::HttpExchange& exchange, const PrepareJob& job, const api::ApiError& error);
  void refuse_metadata(net::HttpExchange& exchange, const TextRoute& route,
                       std::string_view request_id, std::string_view message);
  void schedule_sweep();
  void schedule_tick();

  net::Shard& shard_;
  ShardEnvironment environment_;
  FrontendMetrics metrics_;
  const RequestMeters meters_;
  const TextMeters texts_;
  Random random_;
  RequestService requests_;
  PreparationQueue preparation_;
  PoolService pooling_;
  StoredWork stored_;
  KserveService kserve_;
  std::unique_ptr<ResponsesSockets> sockets_;
  std::unique_ptr<Resumption> resumption_;  // null: nobody keeps journals
  net::Timer sweep_timer_;
  net::Timer tick_timer_;
  TimePoint tick_due_{};
};

}  // namespace stator::frontend
