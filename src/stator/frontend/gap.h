// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/api/api_error.h"
#include "stator/api/request.h"
#include "stator/frontend/model_catalog.h"

namespace stator::frontend {

/// Makes the prompts end where a text begins that `suffix` follows, for models that have tokens to
/// say so; kUnsupported for others.
api::ApiStatus add_suffix(api::CompletionRequest& request, const ServedModel& model);

}  // namespace stator::frontend
