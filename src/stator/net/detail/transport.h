// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

struct ssl_ctx_st;

namespace stator::net::detail {

/// How far a non-blocking read or write got.
enum class IoState : uint8_t {
  kDone,       ///< `bytes` moved, more may follow
  kWantRead,   ///< call again when the socket is readable
  kWantWrite,  ///< call again when it is writable (for a TLS read too)
  kClosed,     ///< the peer ended the stream properly
  kFailed,     ///< reset, broken or spoken wrongly
};

struct IoResult {
  size_t bytes = 0;
  IoState state = IoState::kDone;
};

/// Bytes in and out of one non-blocking connected socket: plain or TLS, the same calls. Does not
/// own the descriptor. No buffers of its own beyond what TLS needs while a record is incomplete.
class Transport {
 public:
  virtual ~Transport() = default;
  /// `buffer` is not empty.
  virtual IoResult read(std::span<char> buffer) = 0;
  /// `bytes` is not empty. After kWant… the next write must begin with the same bytes.
  virtual IoResult write(std::string_view bytes) = 0;
  /// The last read took all there is for now, so only readiness can bring more. `bytes_asked` and
  /// `bytes_got` are those of that read.
  virtual bool drained(size_t bytes_asked, size_t bytes_got) const = 0;
  /// Tells the peer that nothing follows; best effort.
  virtual void shutdown_write() = 0;
  /// After kFailed: what was wrong, for an operator.
  virtual std::string failure() const = 0;
  /// The subject alternative names of the certificate that the peer has shown: DNS names, URIs, IP
  /// addresses. After the handshake; empty for plain connections.
  virtual std::vector<std::string> peer_names() const { return {}; }
  /// What the two sides agreed on in the handshake (ALPN): "h2"; empty: nothing.
  virtual std::string_view protocol() const { return {}; }
};

std::unique_ptr<Transport> make_plain_transport(int fd);

/// The client's side of a TLS connection that speaks HTTP/2; the handshake happens inside the first
/// reads and writes. The server's certificate must be for `name`, a host name or an IP address.
/// Null when out of memory. `context` is an SSL_CTX.
std::unique_ptr<Transport> make_tls_client_transport(ssl_ctx_st& context, int fd,
                                                     const std::string& name);

/// The server's side, as `context` has it. Null when out of memory.
std::unique_ptr<Transport> make_tls_server_transport(ssl_ctx_st& context, int fd);

/// Certificate and key of a TLS server, as the files are when a connection begins; TLS 1.2 or
/// later. Thread-safe once made.
class TlsContext {
 public:
  /// kInvalidArgument, naming the file, when certificate, key or authority cannot be used. With
  /// `client_ca_path` clients must show a certificate that it signed.
  /// Whether clients may choose HTTP/2.
  enum class Http2 : uint8_t { kNo, kYes };
  static Result<std::unique_ptr<TlsContext>> load(const std::string& cert_path,
                                                  const std::string& key_path,
                                                  const std::string& client_ca_path = {},
                                                  Http2 http2 = Http2::kNo);
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;
  ~TlsContext();

  /// The handshake happens inside the first reads. Null when out of memory.
  std::unique_ptr<Transport> accept(int fd) const;

 private:
  struct State;
  std::unique_ptr<State> state_;

 public:
  explicit TlsContext(std::unique_ptr<State> state);  // for load()
};

}  // namespace stator::net::detail
