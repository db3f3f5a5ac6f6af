// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/detail/wire.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cerrno>

namespace stator::loadgen::detail {
namespace {

struct SslDeleter {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

std::string last_tls_error() {
  char reason[256] = "unknown reason";
  const unsigned long code = ERR_peek_last_error();
  if (code != 0) {
    ERR_error_string_n(code, reason, sizeof(reason));
  }
  ERR_clear_error();
  return reason;
}

/// From any address of this machine at that port.
bool bind_port(int fd, sa_family_t family, uint16_t port) {
  const int on = 1;
  static_cast<void>(::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)));
  if (family == AF_INET6) {
    sockaddr_in6 local = {};
    local.sin6_family = AF_INET6;
    local.sin6_port = htons(port);
    return ::bind(fd, std::bit_cast<const sockaddr*>(&local), sizeof(local)) == 0;
  }
  sockaddr_in local = {};
  local.sin_family = AF_INET;
  local.sin_port = htons(port);
  return ::bind(fd, std::bit_cast<const sockaddr*>(&local), sizeof(local)) == 0;
}

}  // namespace

struct TlsSettings::State {
  std::unique_ptr<SSL_CTX, SslDeleter> context;
  std::string host;
  bool host_is_address = false;
  bool insecure = false;
};

TlsSettings::TlsSettings(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsSettings::~TlsSettings() = default;

Result<std::unique_ptr<TlsSettings>> TlsSettings::create(const std::string& host,
                                                         const std::string& ca_path,
                                                         bool insecure) {
  ERR_clear_error();
  auto state = std::make_unique<State>();
  state->context.reset(SSL_CTX_new(TLS_client_method()));
  SSL_CTX* context = state->context.get();
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1) {
    return Error(Code::kInternal, "OpenSSL offers no TLS 1.2");
  }
  const bool trusted = ca_path.empty()
                           ? SSL_CTX_set_default_verify_paths(context) == 1
                           : SSL_CTX_load_verify_locations(context, ca_path.c_str(), nullptr) == 1;
  if (!trusted) {
    return Error(Code::kInvalidArgument,
                 "cannot use the certificates of --tls-ca '" + ca_path + "': " + last_tls_error());
  }
  SSL_CTX_set_verify(context, insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  state->host = host;
  in6_addr ignored = {};
  state->host_is_address = ::inet_pton(AF_INET, host.c_str(), &ignored) == 1 ||
                           ::inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
  state->insecure = insecure;
  return std::unique_ptr<TlsSettings>(new TlsSettings(std::move(state)));
}

struct Wire::Tls {
  std::unique_ptr<SSL, SslDeleter> ssl;
  std::string failure;

  WireResult outcome(int returned, bool peer_may_end) {
    switch (SSL_get_error(ssl.get(), returned)) {
      case SSL_ERROR_WANT_READ:
        return {0, WireState::kWantRead};
      case SSL_ERROR_WANT_WRITE:
        return {0, WireState::kWantWrite};
      case SSL_ERROR_ZERO_RETURN:
        return {0, peer_may_end ? WireState::kClosed : WireState::kFailed};
      default:
        failure = "TLS: " + last_tls_error();
        return {0, WireState::kFailed};
    }
  }
};

void Wire::TlsDeleter::operator()(Tls* tls) const {
  std::unique_ptr<Tls> owner(tls);
}

bool Wire::connect(const Address& address, const TlsSettings* tls, uint16_t local_port) {
  close();
  fd_ = ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) {
    return false;
  }
  const int on = 1;
  // A request leaves when written; a failure costs latency only.
  static_cast<void>(::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)));
  if ((local_port != 0 && !bind_port(fd_, address.storage.ss_family, local_port)) ||
      (::connect(fd_, std::bit_cast<const sockaddr*>(&address.storage), address.length) != 0 &&
       errno != EINPROGRESS)) {
    const int reason = errno;
    close();
    errno = reason;
    return false;
  }
  if (tls == nullptr) {
    return true;
  }
  const TlsSettings::State& settings = *tls->state_;
  auto session = std::make_unique<Tls>();
  session->ssl.reset(SSL_new(settings.context.get()));
  SSL* ssl = session->ssl.get();
  if (ssl == nullptr || SSL_set_fd(ssl, fd_) != 1) {
    close();
    errno = ENOMEM;
    return false;
  }
  SSL_set_connect_state(ssl);
  if (settings.host_is_address) {
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), settings.host.c_str());
  } else {
    SSL_set_tlsext_host_name(ssl, settings.host.c_str());
    SSL_set1_host(ssl, settings.host.c_str());
  }
  tls_.reset(session.release());
  return true;
}

int Wire::connect_error() const {
  int error = 0;
  socklen_t length = sizeof(error);
  return ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

void Wire::close() {
  tls_.reset();
  if (fd_ >= 0) {
    ::close(fd_);
    fd_ = -1;
  }
}

WireResult Wire::read(std::span<char> buffer) {
  if (tls_ != nullptr) {
    ERR_clear_error();
    size_t got = 0;
    const int returned = SSL_read_ex(tls_->ssl.get(), buffer.data(), buffer.size(), &got);
    return returned == 1 ? WireResult{got, WireState::kMoved} : tls_->outcome(returned, true);
  }
  const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), 0);
  if (got > 0) {
    return {static_cast<size_t>(got), WireState::kMoved};
  }
  if (got == 0) {
    return {0, WireState::kClosed};
  }
  return {0, errno == EAGAIN || errno == EINTR ? WireState::kWantRead : WireState::kFailed};
}

WireResult Wire::write(std::string_view bytes) {
  if (tls_ != nullptr) {
    ERR_clear_error();
    size_t put = 0;
    const int returned = SSL_write_ex(tls_->ssl.get(), bytes.data(), bytes.size(), &put);
    return returned == 1 ? WireResult{put, WireState::kMoved} : tls_->outcome(returned, false);
  }
  const ssize_t put = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (put >= 0) {
    return {static_cast<size_t>(put), WireState::kMoved};
  }
  return {0, errno == EAGAIN || errno == EINTR ? WireState::kWantWrite : WireState::kFailed};
}

std::string Wire::failure() const {
  return tls_ == nullptr ? std::string() : tls_->failure;
}

}  // namespace stator::loadgen::detail
