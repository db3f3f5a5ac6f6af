// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/core/random.h"
#include "stator/frontend/batch_endpoints.h"
#include "stator/frontend/stored_responses.h"

namespace stator::frontend {

/// One shard's part of what outlives requests: stored and background responses, files and batches.
/// Home loop: the shard's.
class StoredWork {
 public:
  /// Null: there are none of these in this process.
  struct Stores {
    responses::ResponseStore* responses = nullptr;
    batches::BatchService* batches = nullptr;
  };
  StoredWork(net::Shard& shard, Stores stores, const FrontendConfig& config);

  /// Answers the exchange, now or later, if its route is one of theirs.
  bool answer(net::HttpExchange& exchange);
  /// Where a plan with that answer is to run: on its client's exchange, or, for a background
  /// response, on one of its own; its client has been answered then.
  net::HttpExchange& place(net::HttpExchange& exchange, AnswerSpec& answer,
                           const net::HttpRequest& request);
  /// Once a second or so.
  void sweep();
  void stop();

 private:
  responses::ResponseStore* const store_;
  const FrontendConfig& config_;
  Random random_;
  std::unique_ptr<StoredResponses> responses_;  // null: nothing is stored
  BatchEndpoints batches_;
};

}  // namespace stator::frontend
