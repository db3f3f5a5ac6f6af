// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/net/grpc_call.h"
#include "stator/net/grpc_server.h"
#include "stator/net/tls_files.h"

namespace stator::net {

/// Certificates of both sides of a line between our processes; null without `files`. kIo names the
/// file that cannot be used. Files that are replaced are read again at the next handshake.
Result<std::shared_ptr<const ServerTls>> load_server_tls(const std::optional<TlsFiles>& files);
Result<std::shared_ptr<const ClientTls>> load_client_tls(const std::optional<TlsFiles>& files);

/// Who may call a server of ours: whoever shows a certificate with one of the allowed names, or
/// everybody who got so far where none are given. Thread-safe.
class GrpcCallers {
 public:
  GrpcCallers(const std::optional<TlsFiles>& files, const Counter& refused);

  /// False: the call has been ended with PERMISSION_DENIED, and counted. The caller may log it.
  bool admit(GrpcServerCall& call) const;

 private:
  const std::vector<std::string> allowed_;
  const Counter refused_;
};

}  // namespace stator::net
