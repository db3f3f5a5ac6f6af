// SPDX-License-Identifier: Apache-2.0
#include "stator/runtime/detail/credentials.h"

#include <fmt/format.h>
#include <grpc/grpc_security_constants.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace stator::runtime::detail {
namespace {

struct Pem {
  std::string certificate;
  std::string key;
  std::string ca;
};

Result<std::string> read_pem(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file || content.str().find("-----BEGIN") == std::string::npos) {
    return Error(Code::kIo, fmt::format("TLS file {} is missing or not PEM", path.string()));
  }
  return content.str();
}

Result<Pem> read_all(const TlsFiles& files) {
  Pem pem;
  STATOR_TRY(pem.certificate, read_pem(files.certificate));
  STATOR_TRY(pem.key, read_pem(files.key));
  STATOR_TRY(pem.ca, read_pem(files.ca));
  return pem;
}

}  // namespace

Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(
    const std::optional<TlsFiles>& files) {
  if (!files) {
    return grpc::InsecureServerCredentials();
  }
  STATOR_TRY(const Pem pem, read_all(*files));
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = pem.ca;
  options.pem_key_cert_pairs.push_back({pem.key, pem.certificate});
  return grpc::SslServerCredentials(options);
}

Result<std::shared_ptr<grpc::ChannelCredentials>> channel_credentials(
    const std::optional<TlsFiles>& files) {
  if (!files) {
    return grpc::InsecureChannelCredentials();
  }
  STATOR_TRY(const Pem pem, read_all(*files));
  return grpc::SslCredentials(
      {.pem_root_certs = pem.ca, .pem_private_key = pem.key, .pem_cert_chain = pem.certificate});
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

}  // namespace stator::runtime::detail
