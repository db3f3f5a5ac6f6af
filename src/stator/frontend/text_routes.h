// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "stator/frontend/frontend_metrics.h"
#include "stator/frontend/prepare_job.h"
#include "stator/net/http_request.h"

namespace stator::frontend {

/// What a POST to `path` wants; nothing for a path whose POST is not about text.
std::optional<TextRoute> find_text_route(std::string_view path);

/// Which endpoint metrics know; none for those that do not generate.
std::optional<EndpointLabel> endpoint_of(const TextRoute& route);

/// The headers by which a client names its request to the operator. Views of both.
std::vector<net::HttpHeader> request_id_headers(const TextRoute& route,
                                                std::string_view request_id);

}  // namespace stator::frontend
