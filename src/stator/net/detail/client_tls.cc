// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/client_tls.h"

#include <fmt/format.h>
#include <openssl/err.h>

#include <iterator>
#include <utility>

namespace stator::net {
namespace {

Error file_error(const std::filesystem::path& path) {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  ERR_clear_error();
  return {Code::kIo, fmt::format("TLS file {} cannot be used: {}", path.string(),
                                 reason != nullptr ? reason : "missing or not PEM")};
}

}  // namespace

ClientTls::ClientTls(std::unique_ptr<State> state) : state_(std::move(state)) {}
ClientTls::~ClientTls() = default;

Result<std::shared_ptr<const ClientTls>> ClientTls::load(const std::filesystem::path& certificate,
                                                         const std::filesystem::path& key,
                                                         const std::filesystem::path& ca) {
  ERR_clear_error();
  auto state = std::make_unique<State>();
  state->context.reset(SSL_CTX_new(TLS_client_method()));
  SSL_CTX* context = state->context.get();
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1 ||
      SSL_CTX_set_alpn_protos(context, kHttp2, std::size(kHttp2)) != 0) {
    return Error(Code::kInternal, "OpenSSL offers no TLS 1.2");
  }
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  if (SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1) {
    return file_error(certificate);
  }
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return file_error(key);
  }
  if (SSL_CTX_load_verify_file(context, ca.c_str()) != 1) {
    return file_error(ca);
  }
  return std::make_shared<const ClientTls>(std::move(state));
}

}  // namespace stator::net
