// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "stator/net/http_server.h"

namespace stator::net {

/// Close codes of RFC 6455, 7.4.1.
enum class CloseCode : uint16_t {
  kNormal = 1000,
  kGoingAway = 1001,
  kProtocolError = 1002,
  kUnsupportedData = 1003,
  kInvalidText = 1007,
  kTooLarge = 1009,
  kInternalError = 1011,
  kTryAgainLater = 1013,
};

/// Reads a client's frames from any split of their bytes (RFC 6455, 5): text messages, put together
/// from fragments, pings and the close. What a server must refuse is refused here: frames that are
/// not masked, reserved bits and opcodes, long or fragmented control frames, text that is not
/// UTF-8, close codes nobody may send. Binary messages are refused, too: nothing here takes any.
///
///   while (auto event = reader.next(bytes)) …
///
/// W1  Holds at most one message of `message_bytes_max` bytes and one control frame.
/// W2  After kClosed or kRefused nothing more is read.
class WebSocketReader {
 public:
  explicit WebSocketReader(size_t message_bytes_max) : message_bytes_max_(message_bytes_max) {}

  struct Event {
    enum class Kind : uint8_t { kText, kPing, kPong, kClosed, kRefused };
    Kind kind = Kind::kText;
    std::string_view bytes;               ///< of kText and kPing; valid until the next call
    CloseCode code = CloseCode::kNormal;  ///< to close with: of kClosed and kRefused
    std::string_view reason;              ///< of kRefused
  };
  /// The next thing said, taken off the front of `bytes`; nothing when all of them are taken.
  std::optional<Event> next(std::string_view& bytes);
  /// Of a message that has not come whole.
  size_t held_bytes() const { return message_.size() + control_.size(); }

 private:
  struct Head {
    bool last = false;
    uint8_t opcode = 0;
    uint64_t length = 0;
    char mask[4] = {};
  };
  bool collect_head(std::string_view& bytes);
  std::optional<Event> check_head();
  std::optional<Event> finish_frame();
  Event finish_close();
  Event refuse(CloseCode code, std::string_view reason);
  bool is_control() const { return (head_.opcode & 0x8) != 0; }

  const size_t message_bytes_max_;
  std::string head_bytes_;
  Head head_;
  bool in_frame_ = false;
  uint64_t taken_ = 0;  // of the frame's bytes
  bool in_message_ = false;
  bool handed_out_ = false;  // message_ is one that next() has returned
  bool over_ = false;
  std::string message_;
  std::string control_;
};

/// Whether `exchange` is a client's request for a WebSocket, over HTTP/1.1 or 2.
bool asks_websocket(HttpExchange& exchange);

/// A WebSocket on an exchange, from its opening to its close, on the exchange's loop.
///
///   open() → on_text … → on_over         (WebSocket::Listener)
///
/// Pings are answered, a client that is silent is asked for a sign of life by look(), and the
/// closing handshake is done. Bounds: `message_bytes_max`, and what HttpExchange bounds of output.
class WebSocket final : private ExchangeObserver {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    /// A whole message; may close() and send().
    virtual void on_text(std::string_view text) = 0;
    /// The last word; the socket may be destroyed once the loop is back from it. Not after close().
    virtual void on_over() = 0;
  };
  /// `listener` outlives it.
  WebSocket(HttpExchange& exchange, size_t message_bytes_max, Listener& listener);
  WebSocket(const WebSocket&) = delete;
  WebSocket& operator=(const WebSocket&) = delete;
  ~WebSocket();

  /// Answers the opening handshake; false, and the exchange is answered with an error, when the
  /// client's part of it is wrong.
  bool open();
  void send(std::string_view text);
  /// Says goodbye and ends the exchange.
  void close(CloseCode code, std::string_view reason);
  /// Now and then, at equal distances: asks a silent client, and gives it up when it stays silent.
  void look();
  bool over() const { return over_; }

 private:
  void on_client_gone(ClientGone reason) override;
  void on_body(std::string_view bytes) override;
  void on_body_end() override;
  void end();

  HttpExchange& exchange_;
  Listener& listener_;
  WebSocketReader reader_;
  ByteLease lease_;
  bool heard_ = true;
  bool asked_ = false;
  bool opened_ = false;
  bool over_ = false;
};

/// A server's frame: final, not masked.
enum class FrameKind : uint8_t { kText = 0x1, kClose = 0x8, kPing = 0x9, kPong = 0xA };
void append_websocket_frame(std::string& out, FrameKind kind, std::string_view payload);

/// The answer to a client's Sec-WebSocket-Key.
std::string websocket_accept(std::string_view key);

}  // namespace stator::net
