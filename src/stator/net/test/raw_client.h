// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "stator/net/detail/socket.h"

namespace stator::net {

/// A blocking loopback TCP client that sends exactly the bytes a test gives it. Every wait ends
/// after ten seconds at the latest, so a broken server fails a test instead of hanging it.
class RawClient {
 public:
  /// `receive_buffer_bytes` > 0 makes a client that takes little before it reads.
  explicit RawClient(uint16_t port, int receive_buffer_bytes = 0);

  bool connected() const { return fd_.open(); }
  int fd() const { return fd_.get(); }
  /// False when the server has closed.
  bool send(std::string_view bytes);

  /// One complete response: head and body, the body with chunks joined. Nothing when the connection
  /// ends first; what came so far is then in `received()`.
  struct Response {
    int status = 0;
    std::string head;
    std::string body;
    bool has(std::string_view line) const { return head.find(line) != std::string::npos; }
  };
  std::optional<Response> read_response(bool head_request = false);

  /// Waits until `text` has come; false when the connection ends first.
  bool read_until(std::string_view text);
  /// Everything up to the end of the connection.
  std::string read_to_end();
  const std::string& received() const { return received_; }
  /// Bytes not taken by read_response so far.
  bool read_some();

  void shutdown_write();
  /// Closes with a reset instead of an orderly end.
  void reset();
  void close() { fd_.reset(); }

 private:
  std::optional<std::string> take_line();
  bool take_bytes(size_t count, std::string& out);

  detail::FileDescriptor fd_;
  std::string received_;
};

/// Spins until `condition` holds; false after a minute.
bool eventually(const std::function<bool()>& condition);

}  // namespace stator::net
