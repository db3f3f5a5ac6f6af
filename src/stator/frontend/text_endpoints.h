// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/api/api_error.h"
#include "stator/frontend/prepare_job.h"

namespace stator::frontend {

// The bodies of answers to POST /tokenize and /detokenize. Any thread.

api::ApiResult<std::string> tokenize(PrepareJob& job, const PrepareEnvironment& environment);
api::ApiResult<std::string> detokenize(PrepareJob& job, const PrepareEnvironment& environment);

}  // namespace stator::frontend
