// SPDX-License-Identifier: Apache-2.0
#include "stator/session/rpc_credentials.h"

#include <fmt/format.h>
#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <algorithm>
#include <string>
#include <utility>

#include "stator/io/read_file.h"

namespace stator::session {
namespace {

namespace tls = grpc::experimental;

// How soon replaced files are noticed by gRPC's own thread.
constexpr unsigned kRefreshSeconds = 2;

Status check_pem(const std::filesystem::path& path) {
  const auto content = io::read_file(path);
  if (!content || content->find("-----BEGIN") == std::string::npos) {
    return Error(Code::kIo, fmt::format("TLS file {} is missing or not PEM", path.string()));
  }
  return {};
}

/// The files as they are at each handshake.
Result<std::shared_ptr<tls::CertificateProviderInterface>> watch(const net::TlsFiles& files) {
  STATOR_CHECK(check_pem(files.certificate));
  STATOR_CHECK(check_pem(files.key));
  STATOR_CHECK(check_pem(files.ca));
  return std::make_shared<tls::FileWatcherCertificateProvider>(
      files.key.string(), files.certificate.string(), files.ca.string(), kRefreshSeconds);
}

}  // namespace

Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(
    const std::optional<net::TlsFiles>& files) {
  if (!files) {
    return grpc::InsecureServerCredentials();
  }
  STATOR_TRY(auto provider, watch(*files));
  tls::TlsServerCredentialsOptions options(std::move(provider));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return tls::TlsServerCredentials(options);
}

Result<std::shared_ptr<grpc::ChannelCredentials>> channel_credentials(
    const std::optional<net::TlsFiles>& files) {
  if (!files) {
    return grpc::InsecureChannelCredentials();
  }
  tls::TlsChannelCredentialsOptions options;
  STATOR_TRY(auto provider, watch(*files));
  options.set_certificate_provider(std::move(provider));
  options.watch_root_certs();
  options.watch_identity_key_cert_pairs();
  return tls::TlsCredentials(options);
}

bool is_allowed(const std::vector<std::string>& names, const std::vector<std::string>& allowed) {
  return allowed.empty() || std::ranges::find_first_of(names, allowed) != names.end();
}

grpc::Status check_caller(const grpc::AuthContext& caller,
                          const std::vector<std::string>& allowed) {
  std::vector<std::string> names;
  for (const grpc::string_ref& name : caller.FindPropertyValues(GRPC_X509_SAN_PROPERTY_NAME)) {
    names.emplace_back(name.data(), name.size());
  }
  return is_allowed(names, allowed)
             ? grpc::Status::OK
             : grpc::Status(grpc::StatusCode::PERMISSION_DENIED, kCallerRefused);
}

}  // namespace stator::session
