// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/lab/loadgen/target.h"

namespace stator::loadgen::detail {

/// What TLS connections share: certificates and the server's name. Immutable, thread-safe.
class TlsSettings {
 public:
  /// `ca_path` is a PEM file, empty for the system's. kInvalidArgument when it cannot be used.
  static Result<std::unique_ptr<TlsSettings>> create(const std::string& host,
                                                     const std::string& ca_path, bool insecure);
  ~TlsSettings();
  TlsSettings(const TlsSettings&) = delete;
  TlsSettings& operator=(const TlsSettings&) = delete;

 private:
  friend class Wire;
  struct State;
  explicit TlsSettings(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

enum class WireState : uint8_t { kMoved, kWantRead, kWantWrite, kClosed, kFailed };

struct WireResult {
  size_t bytes = 0;
  WireState state = WireState::kMoved;
};

/// One non-blocking connection, plain or TLS. Owns its descriptor. The TLS handshake happens inside
/// the first writes and reads.
class Wire {
 public:
  Wire() = default;
  ~Wire() { close(); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  /// Begins to connect; the socket is writable when that has succeeded or failed. False, with errno
  /// set, when the system refuses. `tls` may be null and must outlive the wire. `local_port` 0 lets
  /// the kernel choose; another one that is taken fails with EADDRINUSE or EADDRNOTAVAIL.
  bool connect(const Address& address, const TlsSettings* tls, uint16_t local_port);
  /// Outcome of connecting, as an errno.
  int connect_error() const;
  void close();

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  WireResult read(std::span<char> buffer);
  WireResult write(std::string_view bytes);
  /// Why TLS failed, for people; empty if it did not.
  std::string failure() const;

 private:
  struct Tls;
  struct TlsDeleter {
    void operator()(Tls* tls) const;
  };
  int fd_ = -1;
  std::unique_ptr<Tls, TlsDeleter> tls_;  // null for plain connections
};

}  // namespace stator::loadgen::detail
