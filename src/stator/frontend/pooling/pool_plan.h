// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/api/pool_request.h"
#include "stator/core/clock.h"
#include "stator/frontend/model_catalog.h"
#include "stator/inference/pool.h"

namespace stator::frontend {

/// Sequences that go to a worker together.
struct PoolPart {
  std::vector<TokenId> tokens;
  inference::PoolRequest pool;
};

/// A pooling request after validation and tokenization: what is left is to run its parts, on as
/// many workers as there are, and to write the body.
struct PoolPlan {
  std::shared_ptr<ServedModel> model;
  std::string adapter;  ///< of the model; empty: the model itself
  api::PoolCall call;   ///< of its texts only documents that are sent back are left
  inference::PoolTask task = inference::PoolTask::kEmbed;
  /// Scores are made here, from vectors: the first so many sequences are the queries' vectors, the
  /// rest the documents'. 0: the model scores pairs itself.
  size_t compared_queries = 0;
  std::vector<PoolPart> parts;  ///< in the order of the request
  size_t sequences = 0;         ///< of all parts
  uint32_t prompt_tokens = 0;
  int32_t priority = 0;
  std::optional<Duration> timeout;  ///< from arrival to the answer
  std::string request_id;
  std::string request_id_echo;
  int64_t created_s = 0;
};

/// Numbers of one answer: 64 MiB of them.
inline constexpr size_t kPoolNumbersMax = size_t{16} << 20;

}  // namespace stator::frontend
