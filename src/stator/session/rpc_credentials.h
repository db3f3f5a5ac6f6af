// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/net/tls_files.h"

namespace stator::session {

/// Plain without `files`. kIo names the file that cannot be read. Files that are replaced are read
/// again within seconds; handshakes from then on have the new ones.
Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(
    const std::optional<net::TlsFiles>& files);
Result<std::shared_ptr<grpc::ChannelCredentials>> channel_credentials(
    const std::optional<net::TlsFiles>& files);

/// What a caller that may not call is told, with PERMISSION_DENIED.
inline constexpr const char* kCallerRefused =
    "no name of the caller's certificate is among the rpc.tls_allowed_callers of the process it "
    "calls";

/// Whether one of a caller's certified names is among `allowed`, if those are given.
bool is_allowed(const std::vector<std::string>& names, const std::vector<std::string>& allowed);

/// The same for grpc++'s callers.
grpc::Status check_caller(const grpc::AuthContext& caller, const std::vector<std::string>& allowed);

}  // namespace stator::session
