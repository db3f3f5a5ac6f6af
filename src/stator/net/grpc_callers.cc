// SPDX-License-Identifier: Apache-2.0
#include "stator/net/grpc_callers.h"

#include <algorithm>

#include "stator/net/grpc_status.h"

namespace stator::net {

Result<std::shared_ptr<const ServerTls>> load_server_tls(const std::optional<TlsFiles>& files) {
  if (!files) {
    return std::shared_ptr<const ServerTls>();
  }
  return ServerTls::load(files->certificate, files->key, files->ca);
}

Result<std::shared_ptr<const ClientTls>> load_client_tls(const std::optional<TlsFiles>& files) {
  if (!files) {
    return std::shared_ptr<const ClientTls>();
  }
  return ClientTls::load(files->certificate, files->key, files->ca);
}

GrpcCallers::GrpcCallers(const std::optional<TlsFiles>& files, const Counter& refused)
    : allowed_(files ? files->allowed_callers : std::vector<std::string>()), refused_(refused) {}

bool GrpcCallers::admit(GrpcServerCall& call) const {
  const std::vector<std::string>& names = call.caller().names;
  if (allowed_.empty() || std::ranges::find_first_of(names, allowed_) != names.end()) {
    return true;
  }
  refused_.add();
  call.finish({kGrpcPermissionDenied,
               "no name of the caller's certificate is among the rpc.tls_allowed_callers of the "
               "process it calls"});
  return false;
}

}  // namespace stator::net
