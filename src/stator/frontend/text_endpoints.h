// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/api/api_error.h"
#include "stator/frontend/prepare_job.h"

namespace stator::frontend {

// The bodies of answers to POST /tokenize, /detokenize, and to those of other protocols that only
// want to know how many tokens a prompt has. Any thread.

api::ApiResult<std::string> tokenize(PrepareJob& job, const PrepareEnvironment& environment);
/// Makes the outcome itself, once media are there, unless it fails at once.
api::ApiStatus count_tokens(PrepareJob& job, const PrepareEnvironment& environment);
api::ApiResult<std::string> detokenize(PrepareJob& job, const PrepareEnvironment& environment);

}  // namespace stator::frontend
