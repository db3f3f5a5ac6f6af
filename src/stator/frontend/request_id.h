// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/core/random.h"
#include "stator/net/http_request.h"

namespace stator::frontend {

/// The client brought an id that is a UUID: x-request-id, or x-dynamo-request-id.
bool names_itself(const net::HttpRequest& request);
/// The client's own, else a new one (version 4).
std::string make_request_id(const net::HttpRequest& request, Random& random);

}  // namespace stator::frontend
