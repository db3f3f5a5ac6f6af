// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/transport.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include "stator/net/detail/renewed_context.h"
#include "stator/net/detail/socket.h"

namespace stator::net::detail {
namespace {

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(int fd) : fd_(fd) {}

  IoResult read(std::span<char> buffer) override {
    for (;;) {
      const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), 0);
      if (got > 0) {
        return {static_cast<size_t>(got), IoState::kDone};
      }
      if (got == 0) {
        return {0, IoState::kClosed};
      }
      if (errno != EINTR) {
        return stopped(IoState::kWantRead);
      }
    }
  }

  IoResult write(std::string_view bytes) override {
    for (;;) {
      const ssize_t put = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (put >= 0) {
        return {static_cast<size_t>(put), IoState::kDone};
      }
      if (errno != EINTR) {
        return stopped(IoState::kWantWrite);
      }
    }
  }

  // A short read emptied the socket buffer; saves the read that would only say so.
  bool drained(size_t bytes_asked, size_t bytes_got) const override {
    return bytes_got < bytes_asked;
  }

  void shutdown_write() override { ::shutdown(fd_, SHUT_WR); }

  std::string failure() const override { return error_text(errno_); }

 private:
  IoResult stopped(IoState would_block) {
    if (errno == EAGAIN) {
      return {0, would_block};
    }
    errno_ = errno;
    return {0, IoState::kFailed};
  }

  int fd_;
  int errno_ = 0;
};

struct SslDeleter {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

std::string as_text(const ASN1_STRING& name) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(&name)),
          static_cast<size_t>(ASN1_STRING_length(&name))};
}

std::string address_text(const ASN1_OCTET_STRING& address) {
  const bool v4 = ASN1_STRING_length(&address) == sizeof(in_addr);
  char text[INET6_ADDRSTRLEN] = "";
  if (v4 || ASN1_STRING_length(&address) == sizeof(in6_addr)) {
    ::inet_ntop(v4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(&address), text, sizeof(text));
  }
  return text;
}

std::vector<std::string> alternative_names(const X509& certificate) {
  struct Deleter {
    void operator()(GENERAL_NAMES* of) const { GENERAL_NAMES_free(of); }
  };
  const std::unique_ptr<GENERAL_NAMES, Deleter> found(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> names;
  for (int i = 0; found != nullptr && i < sk_GENERAL_NAME_num(found.get()); ++i) {
    const GENERAL_NAME& name = *sk_GENERAL_NAME_value(found.get(), i);
    if (name.type == GEN_DNS || name.type == GEN_URI) {
      names.push_back(as_text(*name.d.ia5));
    } else if (name.type == GEN_IPADD) {
      names.push_back(address_text(*name.d.ip));
    }
  }
  return names;
}

class TlsTransport final : public Transport {
 public:
  TlsTransport(std::unique_ptr<SSL, SslDeleter> ssl, int fd) : ssl_(std::move(ssl)), fd_(fd) {}

  IoResult read(std::span<char> buffer) override {
    ERR_clear_error();
    size_t got = 0;
    const int outcome = SSL_read_ex(ssl_.get(), buffer.data(), buffer.size(), &got);
    return outcome == 1 ? IoResult{got, IoState::kDone} : stopped(outcome);
  }

  IoResult write(std::string_view bytes) override {
    ERR_clear_error();
    size_t put = 0;
    const int outcome = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &put);
    return outcome == 1 ? IoResult{put, IoState::kDone} : stopped(outcome);
  }

  // OpenSSL reads record by record: only kWantRead means empty.
  bool drained(size_t, size_t) const override { return false; }

  void shutdown_write() override {
    ERR_clear_error();
    if (!broken_ && SSL_is_init_finished(ssl_.get()) == 1) {
      SSL_shutdown(ssl_.get());
    }
    ::shutdown(fd_, SHUT_WR);
  }

  std::string failure() const override { return failure_; }

  std::vector<std::string> peer_names() const override {
    const X509* const certificate = SSL_get0_peer_certificate(ssl_.get());
    return certificate != nullptr ? alternative_names(*certificate) : std::vector<std::string>();
  }

  std::string_view protocol() const override {
    const unsigned char* name = nullptr;
    unsigned size = 0;
    SSL_get0_alpn_selected(ssl_.get(), &name, &size);
    return {reinterpret_cast<const char*>(name), size};
  }

 private:
  IoResult stopped(int outcome) {
    switch (SSL_get_error(ssl_.get(), outcome)) {
      case SSL_ERROR_WANT_READ:
        return {0, IoState::kWantRead};
      case SSL_ERROR_WANT_WRITE:
        return {0, IoState::kWantWrite};
      case SSL_ERROR_ZERO_RETURN:
        return {0, IoState::kClosed};
      default:
        broken_ = true;
        failure_ = describe_failure();
        return {0, IoState::kFailed};
    }
  }

  std::string describe_failure() const {
    const int saved = errno;
    const long verdict = SSL_get_verify_result(ssl_.get());
    if (verdict != X509_V_OK) {
      return std::string("its certificate: ") + X509_verify_cert_error_string(verdict);
    }
    const unsigned long code = ERR_peek_last_error();
    const char* reason = code != 0 ? ERR_reason_error_string(code) : nullptr;
    return reason != nullptr ? std::string("TLS: ") + reason : error_text(saved);
  }

  std::unique_ptr<SSL, SslDeleter> ssl_;
  int fd_;
  std::string failure_;
  bool broken_ = false;  // OpenSSL forbids SSL_shutdown after a fatal error
};

/// HTTP/2 if the client offers it, else HTTP/1.1; who offers other things gets HTTP/1.1 all the
/// same.
int select_protocol(SSL* /*ssl*/, const unsigned char** chosen, unsigned char* chosen_size,
                    const unsigned char* offered, unsigned offered_size, void* /*user*/) {
  static constexpr unsigned char kKnown[] = {2,   'h', '2', 8,   'h', 't',
                                             't', 'p', '/', '1', '.', '1'};
  unsigned char* found = nullptr;
  const int outcome =
      SSL_select_next_proto(&found, chosen_size, kKnown, sizeof(kKnown), offered, offered_size);
  *chosen = found;
  return outcome == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

}  // namespace

std::unique_ptr<Transport> make_plain_transport(int fd) {
  return std::make_unique<PlainTransport>(fd);
}

std::unique_ptr<Transport> make_tls_client_transport(ssl_ctx_st& context, int fd,
                                                     const std::string& name) {
  std::unique_ptr<SSL, SslDeleter> ssl(SSL_new(&context));
  if (ssl == nullptr || SSL_set_fd(ssl.get(), fd) != 1) {
    return nullptr;
  }
  X509_VERIFY_PARAM* check = SSL_get0_param(ssl.get());
  // Server names are not sent for addresses: RFC 6066.
  if (X509_VERIFY_PARAM_set1_ip_asc(check, name.c_str()) != 1 &&
      (SSL_set1_host(ssl.get(), name.c_str()) != 1 ||
       SSL_set_tlsext_host_name(ssl.get(), name.c_str()) != 1)) {
    return nullptr;
  }
  SSL_set_connect_state(ssl.get());
  return std::make_unique<TlsTransport>(std::move(ssl), fd);
}

std::unique_ptr<Transport> make_tls_server_transport(ssl_ctx_st& context, int fd) {
  std::unique_ptr<SSL, SslDeleter> ssl(SSL_new(&context));
  if (ssl == nullptr || SSL_set_fd(ssl.get(), fd) != 1) {
    return nullptr;
  }
  SSL_set_accept_state(ssl.get());
  return std::make_unique<TlsTransport>(std::move(ssl), fd);
}

struct TlsContext::State {
  std::unique_ptr<RenewedContext> context;
};

TlsContext::TlsContext(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsContext::~TlsContext() = default;

Result<std::unique_ptr<TlsContext>> TlsContext::load(const std::string& cert_path,
                                                     const std::string& key_path,
                                                     const std::string& client_ca_path,
                                                     Http2 http2) {
  if (cert_path.empty() || key_path.empty()) {
    return Error(Code::kInvalidArgument,
                 "TLS needs both a certificate and a key: give --tls-cert-path and --tls-key-path");
  }
  std::vector<std::filesystem::path> files = {cert_path, key_path};
  if (!client_ca_path.empty()) {
    files.emplace_back(client_ca_path);
  }
  const auto make = [cert_path, key_path, client_ca_path, http2]() -> Result<SslContext> {
    STATOR_TRY(SslContext context, make_ssl_context(TLS_server_method(), cert_path, key_path));
    if (http2 == Http2::kYes) {
      SSL_CTX_set_alpn_select_cb(context.get(), select_protocol, nullptr);
    }
    if (!client_ca_path.empty()) {
      STATOR_CHECK(ask_certificate(*context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                                   client_ca_path));
      // Sessions are bound to what was asked of the client when they began.
      constexpr std::string_view kSessions = "stator http";
      SSL_CTX_set_session_id_context(context.get(),
                                     reinterpret_cast<const unsigned char*>(kSessions.data()),
                                     kSessions.size());
    }
    return context;
  };
  auto state = std::make_unique<State>();
  STATOR_TRY(state->context, RenewedContext::create(std::move(files), make),
             "--tls-cert-path, --tls-key-path and --tls-client-ca");
  return std::make_unique<TlsContext>(std::move(state));
}

std::unique_ptr<Transport> TlsContext::accept(int fd) const {
  return make_tls_server_transport(*state_->context->current(), fd);
}

}  // namespace stator::net::detail
