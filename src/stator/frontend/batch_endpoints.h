// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "stator/batches/batch_service.h"
#include "stator/core/flat_map.h"
#include "stator/frontend/frontend_config.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"

namespace stator::frontend {

/// One shard's part of /v1/files and /v1/batches: hands calls to the process's BatchService, which
/// works on files, and sends what it answers.
///
/// Home loop: the shard's. At most BatchService::kCallsMax calls wait in the process; the service
/// is stopped, and its last messages to the shard handled, before this is destroyed.
class BatchEndpoints {
 public:
  /// `service`: null where there is no folder.
  BatchEndpoints(net::Shard& shard, batches::BatchService* service, const FrontendConfig& config)
      : shard_(shard), service_(service), config_(config) {}
  BatchEndpoints(const BatchEndpoints&) = delete;
  BatchEndpoints& operator=(const BatchEndpoints&) = delete;

  /// Answers the exchange, now or later, if its path is one of these and so is its method.
  bool answer(net::HttpExchange& exchange);
  /// Looks for answers whose message was lost to a full inbox; once a second or so.
  void sweep();
  /// Ends what waits.
  void stop();

 private:
  struct Outcome {
    std::atomic<bool> done{false};
    std::optional<api::ApiResult<batches::ApiReply>> reply;
  };
  struct Waiting final : net::ExchangeObserver {
    void on_client_gone(net::ClientGone) override { owner->waiting_.erase(id); }
    BatchEndpoints* owner = nullptr;
    uint64_t id = 0;
    net::HttpExchange* exchange = nullptr;
    std::shared_ptr<Outcome> outcome;  // shared with the service
    net::ByteLease body_lease;
  };

  void refuse(net::HttpExchange& exchange, const api::ApiError& error);
  void collect(uint64_t id);

  net::Shard& shard_;
  batches::BatchService* const service_;
  const FrontendConfig& config_;
  uint64_t last_id_ = 0;
  FlatMap<uint64_t, std::unique_ptr<Waiting>> waiting_;
};

}  // namespace stator::frontend
