// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/frontend/endpoints.h"
#include "stator/frontend/frontend_config.h"
#include "stator/frontend/model_catalog.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"

namespace stator::frontend {

/// The Open Inference Protocol of one shard: what is asked about the server and its models, and
/// inference requests over HTTP and gRPC, each run as the request of the generate extension that it
/// means (GenerateRun). That extension itself is a protocol as others are.
///
/// K1  Every call in `calls_` has an exchange that is not over, or runs that are not.
///
/// Home loop: the shard's.
class KserveService {
 public:
  struct Environment {
    net::Shard& shard;
    const FrontendConfig& config;
    const ModelCatalog& catalog;
    const std::atomic<Stage>& stage;
    net::HttpHandler& handler;  ///< the front door
  };
  explicit KserveService(const Environment& environment);
  KserveService(const KserveService&) = delete;
  KserveService& operator=(const KserveService&) = delete;
  ~KserveService();

  /// Answers, now or later, what is its; false for the rest.
  bool answer(net::HttpExchange& exchange);
  /// Ends what runs.
  void stop();

 private:
  class Call;
  class HttpCall;
  class GrpcCall;

  bool answer_get(net::HttpExchange& exchange);
  void answer_model(net::HttpExchange& exchange);
  bool server_ready() const;
  void refuse(net::HttpExchange& exchange, const api::ApiError& error) const;
  void keep(std::unique_ptr<Call> call);
  void end(Call& call);

  const Environment environment_;
  FlatMap<Call*, std::unique_ptr<Call>> calls_;
  std::vector<std::unique_ptr<Call>> ended_;  // until the loop is back from them
  net::Timer forget_timer_;
};

}  // namespace stator::frontend
