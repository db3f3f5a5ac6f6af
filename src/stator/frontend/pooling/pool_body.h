// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/api/api_error.h"
#include "stator/frontend/pooling/pool_plan.h"
#include "stator/inference/pool.h"

namespace stator::frontend {

/// A whole answer.
struct PoolBody {
  std::string_view content_type = "application/json";
  std::string text;
  std::string metadata;  ///< of binary answers: the header of that name; empty: none
};

/// What the client gets for `answers`, one for each of the plan's parts, in order. Any thread;
/// takes the numbers with it. Answers that do not fit what was asked are kUnavailable: a worker
/// that contradicts itself cannot be trusted with this, another may. Dimensions that the vectors
/// turn out not to have are kInvalidArgument.
api::ApiResult<PoolBody> make_pool_body(const PoolPlan& plan,
                                        std::vector<inference::PoolAnswer> answers);

/// About how many bytes that will be.
size_t pool_body_bytes(const PoolPlan& plan, const std::vector<inference::PoolAnswer>& answers);

}  // namespace stator::frontend
