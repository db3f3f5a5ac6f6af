// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/ssl_context.h"

#include <fmt/format.h>
#include <openssl/err.h>

namespace stator::net::detail {
namespace {

Error file_error(const std::filesystem::path& path) {
  const unsigned long code = ERR_peek_last_error();
  const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
  ERR_clear_error();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) {
    return {Code::kInvalidArgument, fmt::format("TLS file {}: no such file", path.string())};
  }
  return {Code::kInvalidArgument, fmt::format("TLS file {} cannot be used: {}", path.string(),
                                              reason != nullptr ? reason : "missing or not PEM")};
}

}  // namespace

Result<SslContext> make_ssl_context(const SSL_METHOD* method,
                                    const std::filesystem::path& certificate,
                                    const std::filesystem::path& key) {
  ERR_clear_error();
  SslContext owned(SSL_CTX_new(method));
  SSL_CTX* context = owned.get();
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1) {
    return Error(Code::kInternal, "OpenSSL offers no TLS 1.2");
  }
  // Idle connections give their 16 KiB record buffers back; our output buffer may move and grow.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  if (certificate.empty() && key.empty()) {
    return owned;
  }
  if (SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1) {
    return file_error(certificate);
  }
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    return file_error(key);
  }
  return owned;
}

Status ask_certificate(SSL_CTX& context, int verify, const std::filesystem::path& ca) {
  SSL_CTX_set_verify(&context, verify, nullptr);
  if (SSL_CTX_load_verify_file(&context, ca.c_str()) != 1) {
    return file_error(ca);
  }
  return {};
}

}  // namespace stator::net::detail
