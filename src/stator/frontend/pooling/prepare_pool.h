// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/api/pool_request.h"
#include "stator/frontend/pooling/pool_plan.h"
#include "stator/frontend/prepare.h"

namespace stator::frontend {

/// From a parsed request to its sequences: what the model can do, truncation, special tokens,
/// limits. Pure. kInvalidArgument names the field; kCancelled soon after context.cancel was set.
api::ApiResult<PoolPlan> prepare_pool(api::PoolCall call, NamedModel named,
                                      const PrepareContext& context);

/// Why `model` cannot be asked to generate, if so: a 400, because trying again does not help.
api::ApiStatus check_generates(const ServedModel& model);

}  // namespace stator::frontend
