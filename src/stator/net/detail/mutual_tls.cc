// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/mutual_tls.h"

#include <iterator>
#include <utility>
#include <vector>

namespace stator::net {
namespace {

constexpr unsigned char kHttp2[] = {2, 'h', '2'};

/// Takes HTTP/2 out of what the client offers, and nothing else.
int select_http2(SSL* /*ssl*/, const unsigned char** chosen, unsigned char* chosen_size,
                 const unsigned char* offered, unsigned offered_size, void* /*user*/) {
  unsigned char* found = nullptr;
  const int outcome =
      SSL_select_next_proto(&found, chosen_size, kHttp2, std::size(kHttp2), offered, offered_size);
  *chosen = found;
  return outcome == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
}

/// What is wrong with a file of these is kIo to their callers; HTTP calls it a wrong setting.
template <typename T>
T as_io(T result) {
  if (!result) {
    return std::move(result.error()).with_code(Code::kIo);
  }
  return result;
}

/// Those of `files` that are given.
std::vector<std::filesystem::path> named(std::vector<std::filesystem::path> files) {
  std::erase_if(files, [](const auto& file) { return file.empty(); });
  return files;
}

Result<detail::SslContext> load_client_context(const std::filesystem::path& certificate,
                                               const std::filesystem::path& key,
                                               const std::filesystem::path& ca) {
  STATOR_TRY(detail::SslContext context,
             as_io(detail::make_ssl_context(TLS_client_method(), certificate, key)));
  if (!ca.empty()) {
    STATOR_CHECK(as_io(detail::ask_certificate(*context, SSL_VERIFY_PEER, ca)));
  } else {
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    if (SSL_CTX_set_default_verify_paths(context.get()) != 1) {
      return Error(Code::kIo, "the system's certificate authorities cannot be read");
    }
  }
  if (SSL_CTX_set_alpn_protos(context.get(), kHttp2, std::size(kHttp2)) != 0) {
    return Error(Code::kInternal, "OpenSSL offers no ALPN");
  }
  return context;
}

Result<detail::SslContext> load_server_context(const std::filesystem::path& certificate,
                                               const std::filesystem::path& key,
                                               const std::filesystem::path& ca) {
  STATOR_TRY(detail::SslContext context,
             as_io(detail::make_ssl_context(TLS_server_method(), certificate, key)));
  if (!ca.empty()) {
    STATOR_CHECK(as_io(
        detail::ask_certificate(*context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, ca)));
  }
  // Sessions of other servers' clients are of no use here, and a context is needed to tell.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_TICKET);
  SSL_CTX_set_alpn_select_cb(context.get(), select_http2, nullptr);
  return context;
}

}  // namespace

ClientTls::ClientTls(std::unique_ptr<State> state) : state_(std::move(state)) {}
ClientTls::~ClientTls() = default;

Result<std::shared_ptr<const ClientTls>> ClientTls::load(const std::filesystem::path& certificate,
                                                         const std::filesystem::path& key,
                                                         const std::filesystem::path& ca) {
  auto state = std::make_unique<State>();
  STATOR_TRY(state->context,
             detail::RenewedContext::create(named({certificate, key, ca}), [certificate, key, ca] {
               return load_client_context(certificate, key, ca);
             }));
  return std::make_shared<const ClientTls>(std::move(state));
}

ServerTls::ServerTls(std::unique_ptr<State> state) : state_(std::move(state)) {}
ServerTls::~ServerTls() = default;

Result<std::shared_ptr<const ServerTls>> ServerTls::load(const std::filesystem::path& certificate,
                                                         const std::filesystem::path& key,
                                                         const std::filesystem::path& ca) {
  auto state = std::make_unique<State>();
  STATOR_TRY(state->context,
             detail::RenewedContext::create(named({certificate, key, ca}), [certificate, key, ca] {
               return load_server_context(certificate, key, ca);
             }));
  return std::make_shared<const ServerTls>(std::move(state));
}

}  // namespace stator::net
