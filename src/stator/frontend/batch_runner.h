// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/batches/batch_service.h"
#include "stator/core/flat_map.h"
#include "stator/net/detached_exchange.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"

namespace stator::frontend {

/// Runs requests of batches as if clients had sent them: on the shards in turn, through the whole
/// front door, without a connection.
class BatchRunner final : public batches::LineRunner {
 public:
  /// Both outlive it.
  struct Lane {
    net::Shard* shard = nullptr;
    net::HttpHandler* handler = nullptr;
  };
  explicit BatchRunner(std::vector<Lane> lanes);
  ~BatchRunner() override;

  bool run(const Call& call, Done done) override;

 private:
  struct Run;
  /// What runs on one shard; touched on its loop only.
  struct Running {
    FlatMap<Run*, std::unique_ptr<Run>> runs;
    std::vector<std::unique_ptr<Run>> ended;  // until the loop is back from them
  };
  void start(size_t lane, net::HttpRequest request, Done done);

  const std::vector<Lane> lanes_;
  std::vector<Running> running_;  // by lane
  size_t next_ = 0;               // the service's thread
};

}  // namespace stator::frontend
