// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "stator/inference/request_context.h"
#include "stator/net/http_request.h"

namespace stator::frontend {

/// Whose conversation a request belongs to, by its headers: ours and Dynamo's
/// (x-stator-session-id, x-dynamo-session-id, x-session-id and the same with parent-session-id),
/// else those of Claude Code and Codex.
struct SessionIdentity {
  std::string session;  ///< empty: none is named
  std::string parent;   ///< who started it; empty: nobody
  bool final = false;   ///< x-dynamo-session-final: its last request
};
SessionIdentity session_identity(const net::HttpRequest& http);

/// What is wrong with the metadata of a request (headers whose names begin with `prefix`): more
/// than 64 entries or 64 KiB. Nothing: it is well.
std::optional<std::string> check_metadata(const net::HttpRequest& http, std::string_view prefix);

/// What travels with the request to workers and engines: trace, metadata, session. Null if there is
/// nothing. Metadata named authorization, and values that are bearer tokens, stay here. `keep_s`:
/// the prompt is wanted again within so many seconds, told as metadata `cache-control: max-age=…`;
/// 0: nobody says so.
std::shared_ptr<const inference::RequestContext> make_request_context(
    const net::HttpRequest& http, std::string_view prefix, const SessionIdentity& identity,
    uint32_t keep_s = 0);

}  // namespace stator::frontend
