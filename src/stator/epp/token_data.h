// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "stator/core/ids.h"

namespace stator::epp {

/// Puts a prompt's tokens into a request's body, as `nvext.token_data`, so that the worker need not
/// count them again. Everything else stays as it stands. A body that has token_data, or that is no
/// JSON object, is left alone: false.
bool add_token_data(std::string& body, std::span<const TokenId> tokens);

}  // namespace stator::epp
