// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <optional>

#include "stator/core/result.h"
#include "stator/runtime/tls_files.h"

namespace stator::runtime::detail {

/// Plain without `files`. kIo names the file that cannot be read.
Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(
    const std::optional<TlsFiles>& files);
Result<std::shared_ptr<grpc::ChannelCredentials>> channel_credentials(
    const std::optional<TlsFiles>& files);

}  // namespace stator::runtime::detail
