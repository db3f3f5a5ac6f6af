// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/cli/command.h"
#include "stator/net/http_client.h"

namespace stator::cli {

/// Said where a server keeps what an operator asks for on another listener, or wants a key for it.
inline constexpr std::string_view kOperatorHint =
    "give the operators' listener (--admin-port) as --url, and with --api-keys an operator's --key "
    "FILE";

/// Whether an answer's status says that (401, 403, or a route that is not on this listener).
constexpr bool wants_operator(int status) {
  return status == 401 || status == 403 || status == 404;
}

/// The key in the file of --key, as servers with --api-keys want it; none without the flag.
Result<net::HttpHeaderList> read_credentials(const Invocation& invocation);

}  // namespace stator::cli
