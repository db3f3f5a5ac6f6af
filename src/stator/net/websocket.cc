// SPDX-License-Identifier: Apache-2.0
#include "stator/net/websocket.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <utility>

#include "stator/text/utf8.h"

namespace stator::net {
namespace {

constexpr uint8_t kContinuation = 0x0;
constexpr uint8_t kText = 0x1;
constexpr uint8_t kBinary = 0x2;
constexpr uint8_t kClose = 0x8;
constexpr uint8_t kPing = 0x9;
constexpr uint8_t kPong = 0xA;
constexpr size_t kControlBytesMax = 125;
constexpr uint64_t kLength16 = 126;
constexpr uint64_t kLength64 = 127;
constexpr size_t kMaskBytes = 4;

uint8_t byte_at(std::string_view bytes, size_t at) {
  return static_cast<uint8_t>(bytes[at]);
}

uint64_t big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) {
    value = value << 8 | static_cast<uint8_t>(c);
  }
  return value;
}

/// Codes that an endpoint may send (RFC 6455, 7.4.2).
bool may_be_sent(uint64_t code) {
  const bool defined = code >= 1000 && code <= 1014 && code != 1004 && code != 1005 && code != 1006;
  return defined || (code >= 3000 && code <= 4999);
}

bool lists(std::string_view header, std::string_view token) {
  std::string lower(header);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return lower.find(token) != std::string::npos;
}

}  // namespace

// ---- frames in

bool WebSocketReader::collect_head(std::string_view& bytes) {
  const auto need = [&](size_t wanted) {
    const size_t missing = wanted - std::min(wanted, head_bytes_.size());
    const std::string_view part = bytes.substr(0, missing);
    head_bytes_ += part;
    bytes.remove_prefix(part.size());
    return head_bytes_.size() >= wanted;
  };
  if (!need(2)) {
    return false;
  }
  const uint64_t short_length = byte_at(head_bytes_, 1) & 0x7F;
  const size_t more = short_length == kLength16 ? 2 : short_length == kLength64 ? 8 : 0;
  const bool masked = (byte_at(head_bytes_, 1) & 0x80) != 0;
  if (!need(2 + more + (masked ? kMaskBytes : 0))) {
    return false;
  }
  const std::string_view all = head_bytes_;
  head_.last = (byte_at(all, 0) & 0x80) != 0;
  head_.opcode = byte_at(all, 0) & 0x0F;
  head_.length = more == 0 ? short_length : big_endian(all.substr(2, more));
  if (masked) {
    all.substr(2 + more).copy(head_.mask, kMaskBytes);
  }
  return true;
}

std::optional<WebSocketReader::Event> WebSocketReader::check_head() {
  const uint8_t first = byte_at(head_bytes_, 0);
  const bool masked = (byte_at(head_bytes_, 1) & 0x80) != 0;
  if ((first & 0x70) != 0) {
    return refuse(CloseCode::kProtocolError, "reserved bits are set");
  }
  if (!masked) {
    return refuse(CloseCode::kProtocolError, "clients must mask their frames");
  }
  if (is_control()) {
    if (head_.opcode != kClose && head_.opcode != kPing && head_.opcode != kPong) {
      return refuse(CloseCode::kProtocolError, "an opcode that nobody knows");
    }
    if (!head_.last || head_.length > kControlBytesMax) {
      return refuse(CloseCode::kProtocolError, "a control frame is whole and short");
    }
    return std::nullopt;
  }
  if (head_.opcode == kBinary) {
    return refuse(CloseCode::kUnsupportedData, "messages are text here");
  }
  if (head_.opcode != kText && head_.opcode != kContinuation) {
    return refuse(CloseCode::kProtocolError, "an opcode that nobody knows");
  }
  if ((head_.opcode == kContinuation) != in_message_) {
    return refuse(CloseCode::kProtocolError, "a fragment at the wrong place");
  }
  if (head_.length > message_bytes_max_ - std::min(message_bytes_max_, message_.size())) {
    return refuse(CloseCode::kTooLarge, "the message is too large");
  }
  return std::nullopt;
}

std::optional<WebSocketReader::Event> WebSocketReader::next(std::string_view& bytes) {
  if (std::exchange(handed_out_, false)) {
    std::string().swap(message_);
  }
  while (!over_) {
    if (!in_frame_) {
      // The bound on the length is looked at as soon as it is known.
      if (!collect_head(bytes)) {
        return std::nullopt;
      }
      if (auto refused = check_head()) {
        return refused;
      }
      in_frame_ = true;
      taken_ = 0;
    }
    std::string& into = is_control() ? control_ : message_;
    const std::string_view part = bytes.substr(0, head_.length - taken_);
    for (const char c : part) {
      into.push_back(static_cast<char>(c ^ head_.mask[taken_++ % kMaskBytes]));
    }
    bytes.remove_prefix(part.size());
    if (taken_ < head_.length) {
      return std::nullopt;
    }
    in_frame_ = false;
    head_bytes_.clear();
    if (auto event = finish_frame()) {
      return event;
    }
  }
  return std::nullopt;
}

std::optional<WebSocketReader::Event> WebSocketReader::finish_frame() {
  if (!is_control()) {
    in_message_ = !head_.last;
    if (in_message_) {
      return std::nullopt;
    }
    if (!text::is_valid_utf8(message_)) {
      return refuse(CloseCode::kInvalidText, "the text is not UTF-8");
    }
    handed_out_ = true;
    return Event{.kind = Event::Kind::kText, .bytes = message_};
  }
  if (head_.opcode == kClose) {
    return finish_close();
  }
  static thread_local std::string payload;  // until the next call
  payload = std::exchange(control_, {});
  return Event{.kind = head_.opcode == kPing ? Event::Kind::kPing : Event::Kind::kPong,
               .bytes = payload};
}

WebSocketReader::Event WebSocketReader::finish_close() {
  const std::string said = std::exchange(control_, {});
  if (said.empty()) {
    over_ = true;
    return {.kind = Event::Kind::kClosed, .code = CloseCode::kNormal};
  }
  const uint64_t code = big_endian(std::string_view(said).substr(0, 2));
  if (said.size() < 2 || !may_be_sent(code)) {
    return refuse(CloseCode::kProtocolError, "a close code that nobody may send");
  }
  if (!text::is_valid_utf8(std::string_view(said).substr(2))) {
    return refuse(CloseCode::kInvalidText, "the reason is not UTF-8");
  }
  over_ = true;
  return {.kind = Event::Kind::kClosed, .code = static_cast<CloseCode>(code)};
}

WebSocketReader::Event WebSocketReader::refuse(CloseCode code, std::string_view reason) {
  over_ = true;
  std::string().swap(message_);
  return {.kind = Event::Kind::kRefused, .bytes = {}, .code = code, .reason = reason};
}

// ---- frames out

void append_websocket_frame(std::string& out, FrameKind kind, std::string_view payload) {
  const uint64_t size = payload.size();
  out.push_back(static_cast<char>(0x80 | static_cast<uint8_t>(kind)));
  size_t bytes = 0;
  if (size <= kControlBytesMax) {
    out.push_back(static_cast<char>(size));
  } else {
    bytes = size <= UINT16_MAX ? 2 : 8;
    out.push_back(static_cast<char>(bytes == 2 ? kLength16 : kLength64));
  }
  while (bytes-- > 0) {
    out.push_back(static_cast<char>(size >> (8 * bytes)));
  }
  out += payload;
}

std::string websocket_accept(std::string_view key) {
  constexpr std::string_view kGuid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";  // RFC 6455, 1.3
  const std::string text = std::string(key) + std::string(kGuid);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha1(), nullptr);
  std::array<unsigned char, 64> encoded{};
  const int length = EVP_EncodeBlock(encoded.data(), digest.data(), static_cast<int>(size));
  return {reinterpret_cast<const char*>(encoded.data()), static_cast<size_t>(length)};
}

// ---- the socket

bool asks_websocket(HttpExchange& exchange) {
  const HttpRequest& request = exchange.request();
  return exchange.tunnel_protocol() == "websocket" ||
         (request.method() == "GET" && lists(request.header("upgrade").value_or(""), "websocket") &&
          lists(request.header("connection").value_or(""), "upgrade"));
}

WebSocket::WebSocket(HttpExchange& exchange, size_t message_bytes_max, Listener& listener)
    : exchange_(exchange),
      listener_(listener),
      reader_(message_bytes_max),
      lease_(exchange.take_body_lease()) {}

WebSocket::~WebSocket() {
  end();
}

bool WebSocket::open() {
  const HttpRequest& request = exchange_.request();
  if (request.header("sec-websocket-version").value_or("") != "13") {
    const HttpHeader wanted{"sec-websocket-version", "13"};
    over_ = true;
    exchange_.respond(426, "application/json", error_body(426, "WebSockets are of version 13 here"),
                      std::span(&wanted, 1));
    return false;
  }
  bool opened = false;
  if (exchange_.tunnel_protocol().empty()) {
    const auto key = request.header("sec-websocket-key");
    if (key && key->size() == 24) {
      const std::string accept = websocket_accept(*key);
      const std::array<HttpHeader, 2> headers = {HttpHeader{"upgrade", "websocket"},
                                                 HttpHeader{"sec-websocket-accept", accept}};
      exchange_.set_observer(this);
      opened = exchange_.start_tunnel(headers);
    }
  } else {
    exchange_.set_observer(this);
    opened = exchange_.start_tunnel({});
  }
  if (!opened) {
    over_ = true;
    exchange_.set_observer(nullptr);
    exchange_.respond(400, "application/json", error_body(400, "Sec-WebSocket-Key is missing"));
  }
  opened_ = opened;
  return opened;
}

void WebSocket::send(std::string_view text) {
  if (!over_) {
    std::string frame;
    append_websocket_frame(frame, FrameKind::kText, text);
    exchange_.write(frame);
  }
}

void WebSocket::close(CloseCode code, std::string_view reason) {
  if (over_) {
    return;
  }
  std::string payload;
  payload.push_back(static_cast<char>(static_cast<uint16_t>(code) >> 8));
  payload.push_back(static_cast<char>(static_cast<uint16_t>(code)));
  payload += reason.substr(0, kControlBytesMax - 2);
  std::string frame;
  append_websocket_frame(frame, FrameKind::kClose, payload);
  exchange_.write(frame);
  end();
}

void WebSocket::end() {
  if (!opened_ || std::exchange(over_, true)) {
    return;
  }
  exchange_.set_observer(nullptr);
  exchange_.finish();
}

void WebSocket::look() {
  if (over_) {
    return;
  }
  if (std::exchange(heard_, false)) {
    asked_ = false;
    return;
  }
  if (asked_) {
    close(CloseCode::kGoingAway, "no sign of life");
    return listener_.on_over();
  }
  asked_ = true;
  std::string frame;
  append_websocket_frame(frame, FrameKind::kPing, {});
  exchange_.write(frame);
}

void WebSocket::on_client_gone(ClientGone /*reason*/) {
  over_ = true;
  listener_.on_over();
}

void WebSocket::on_body_end() {
  end();
  listener_.on_over();
}

void WebSocket::on_body(std::string_view bytes) {
  heard_ = true;
  while (!over_) {
    const auto event = reader_.next(bytes);
    if (!event) {
      break;
    }
    switch (event->kind) {
      case WebSocketReader::Event::Kind::kText:
        listener_.on_text(event->bytes);
        break;
      case WebSocketReader::Event::Kind::kPing: {
        std::string frame;
        append_websocket_frame(frame, FrameKind::kPong, event->bytes);
        exchange_.write(frame);
        break;
      }
      case WebSocketReader::Event::Kind::kPong:
        break;
      case WebSocketReader::Event::Kind::kClosed:
      case WebSocketReader::Event::Kind::kRefused:
        close(event->code, event->reason);
        return listener_.on_over();
    }
  }
  if (!over_ && !lease_.try_resize(reader_.held_bytes())) {
    close(CloseCode::kTryAgainLater, "too many bytes of messages are here at the moment");
    listener_.on_over();
  }
}

}  // namespace stator::net
