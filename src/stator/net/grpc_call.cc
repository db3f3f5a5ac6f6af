// SPDX-License-Identifier: Apache-2.0
#include "stator/net/grpc_call.h"

#include <fmt/format.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <charconv>
#include <utility>
#include <vector>

#include "stator/net/detail/grpc_stream.h"
#include "stator/net/detail/mutual_tls.h"
#include "stator/net/detail/output_buffer.h"
#include "stator/net/detail/silence_watch.h"
#include "stator/net/detail/transport.h"
#include "stator/net/shard.h"

namespace stator::net {
namespace {

using boost::asio::ip::tcp;
using detail::IoState;
using ErrorCode = boost::system::error_code;

constexpr size_t kReadBytes = size_t{64} * 1024;
// Reads of one connection in one turn; then the others have theirs.
constexpr int kReadsPerTurn = 4;

/// One per shard's thread: what is read is handled before the next read.
std::vector<char>& read_buffer() {
  thread_local std::vector<char> buffer(kReadBytes);
  return buffer;
}

struct HostPort {
  std::string host;
  std::string port;
};

HostPort split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) {
    return {address, ""};
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return {std::move(host), address.substr(colon + 1)};
}

/// The connection. Kept alive by the call and by what waits in the loop.
///
/// U1  After close() nobody is told anything, and whatever waits in the loop does nothing.
class Connection final : public std::enable_shared_from_this<Connection>, GrpcCallListener {
 public:
  Connection(GrpcCallOptions options, Shard& shard, GrpcCallListener& listener)
      : options_(std::move(options)),
        target_(split(options_.address)),
        shard_(shard),
        listener_(&listener),
        resolver_(shard.io()),
        socket_(shard.io()),
        stream_({.authority = options_.address,
                 .path = options_.path,
                 .tls = options_.tls != nullptr,
                 .message_bytes_max = options_.message_bytes_max},
                *this) {}

  void start() {
    ErrorCode numeric;
    const auto host = boost::asio::ip::make_address(target_.host, numeric);
    unsigned port = 0;
    if (!numeric && parse_port(port)) {  // no thread for what needs no look-up
      connect(std::vector{tcp::endpoint(host, static_cast<uint16_t>(port))});
    } else {
      resolver_.async_resolve(
          target_.host, target_.port,
          [self = shared_from_this()](const ErrorCode& ec, const tcp::resolver::results_type& at) {
            if (ec) {
              self->fail(fmt::format("its address cannot be resolved: {}", ec.message()));
            } else {
              self->connect(std::vector<tcp::endpoint>(at.begin(), at.end()));
            }
          });
    }
    watch();
  }

  void send(std::string_view message) {
    if (closed_) {
      return;
    }
    stream_.send(message);
    flush_soon();
  }

  void finish_sending() {
    if (!closed_) {
      stream_.finish_sending();
      flush_soon();
    }
  }

  size_t unsent_bytes() const { return stream_.unsent_bytes() + output_.size(); }

  /// Cancels what goes on. Idempotent.
  void close() {
    if (std::exchange(closed_, true)) {
      return;
    }
    listener_ = nullptr;
    if (!receiving_) {  // else read() does it: HTTP/2 cannot be written from inside its reading
      say_goodbye();
    }
  }

 private:
  // The stream's listener. It is in use below on the stack, so it stays until tear_down has run.

  void on_message(std::string_view message) override {
    if (listener_ != nullptr) {
      listener_->on_message(message);
    }
  }
  void on_end(GrpcOutcome outcome) override {
    GrpcCallListener* const listener = std::exchange(listener_, nullptr);
    closed_ = true;
    tear_down();
    if (listener != nullptr) {
      listener->on_end(std::move(outcome));
    }
  }

  bool parse_port(unsigned& port) const {
    const char* const end = target_.port.data() + target_.port.size();
    const auto [at, error] = std::from_chars(target_.port.data(), end, port);
    return error == std::errc() && at == end && port > 0 && port <= UINT16_MAX;
  }

  void connect(const std::vector<tcp::endpoint>& endpoints) {
    if (closed_) {
      return;
    }
    boost::asio::async_connect(
        socket_, endpoints,
        [self = shared_from_this()](const ErrorCode& ec, const tcp::endpoint& /*at*/) {
          if (ec) {
            self->fail(fmt::format("it cannot be reached: {}", ec.message()));
          } else {
            self->on_connected();
          }
        });
  }

  void on_connected() {
    if (closed_) {
      return;
    }
    ErrorCode ignored;
    socket_.non_blocking(true, ignored);
    socket_.set_option(tcp::no_delay(true), ignored);
    const int fd = socket_.native_handle();
    transport_ = options_.tls == nullptr
                     ? detail::make_plain_transport(fd)
                     : detail::make_tls_client_transport(
                           *options_.tls->state().context->current(), fd,
                           options_.server_name.empty() ? target_.host : options_.server_name);
    if (transport_ == nullptr) {
      fail("no memory for a TLS connection");
      return;
    }
    flush();
    wait_readable();
  }

  void wait_readable() {
    if (closed_ || std::exchange(read_waiting_, true)) {
      return;
    }
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const ErrorCode& ec) {
      self->read_waiting_ = false;
      if (!ec && !self->closed_) {
        self->read();
      }
    });
  }

  void read() {
    std::vector<char>& buffer = read_buffer();
    for (int reads = 0; reads < kReadsPerTurn; ++reads) {
      const detail::IoResult got = transport_->read(buffer);
      switch (got.state) {
        case IoState::kDone:
          break;
        case IoState::kWantRead:
          flush();  // answers to pings, window updates; the handshake's next step
          return wait_readable();
        case IoState::kWantWrite:
          wait_writable();
          return wait_readable();
        case IoState::kClosed:
          return fail("it closed the connection");
        case IoState::kFailed:
          return fail(transport_->failure());
      }
      silence_.heard();
      receiving_ = true;
      stream_.receive({buffer.data(), got.bytes});
      receiving_ = false;
      if (closed_) {
        return say_goodbye();
      }
      if (transport_->drained(buffer.size(), got.bytes)) {
        flush();
        return wait_readable();
      }
    }
    flush();
    boost::asio::post(shard_.io(), [self = shared_from_this()] {
      if (!self->closed_) {
        self->read();
      }
    });
  }

  void flush_soon() {
    if (transport_ != nullptr && !std::exchange(flush_posted_, true)) {
      boost::asio::post(shard_.io(), [self = shared_from_this()] {
        self->flush_posted_ = false;
        if (!self->closed_) {
          self->flush();
        }
      });
    }
  }

  void flush() {
    for (;;) {
      if (output_.empty()) {
        stream_.append_output(output_);
        if (output_.empty()) {
          if (stream_.given_up()) {
            fail("it does not speak HTTP/2 as it should");
          }
          return;
        }
      }
      const detail::IoResult put = transport_->write(output_.front());
      switch (put.state) {
        case IoState::kDone:
          output_.consume(put.bytes);
          break;
        case IoState::kWantWrite:
          return wait_writable();
        case IoState::kWantRead:
          return;  // a handshake: the read goes on
        case IoState::kClosed:
        case IoState::kFailed:
          return;  // reading tells, after what the server has still said
      }
    }
  }

  void wait_writable() {
    if (closed_ || std::exchange(write_waiting_, true)) {
      return;
    }
    socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this()](const ErrorCode& ec) {
      self->write_waiting_ = false;
      if (!ec && !self->closed_) {
        self->flush();
      }
    });
  }

  /// Asks a silent server for a sign of life, and gives it up when there is none.
  void watch() {
    if (transport_ == nullptr) {
      silence_.heard();  // how long connecting may take is for the caller to say
    }
    const auto verdict = silence_.look();
    if (verdict == detail::SilenceWatch::Verdict::kGone) {
      return fail("it has been silent for too long");
    }
    const bool ask = verdict == detail::SilenceWatch::Verdict::kAsk;
    if (ask) {
      stream_.ping();
      flush();
    }
    watchdog_ = shard_.after(ask ? options_.keepalive_timeout : options_.keepalive_interval,
                             [this] { watch(); });
  }

  void fail(std::string reason) {
    const auto self = shared_from_this();
    stream_.end({detail::kGrpcUnavailable, std::move(reason)});
  }

  /// Tells the server, as far as that goes without waiting.
  void say_goodbye() {
    if (transport_ != nullptr && !stream_.ended()) {
      stream_.cancel();
      flush();
    }
    tear_down();
  }

  void tear_down() {
    watchdog_.cancel();
    resolver_.cancel();
    ErrorCode ignored;
    socket_.close(ignored);
  }

  const GrpcCallOptions options_;
  const HostPort target_;
  Shard& shard_;
  GrpcCallListener* listener_;  // null once it may not be told any more
  tcp::resolver resolver_;
  tcp::socket socket_;
  std::unique_ptr<detail::Transport> transport_;  // once connected
  detail::GrpcStream stream_;
  detail::OutputBuffer output_{detail::kGrpcCapacityKept};
  Timer watchdog_;
  detail::SilenceWatch silence_;
  bool read_waiting_ = false;
  bool write_waiting_ = false;
  bool flush_posted_ = false;
  bool receiving_ = false;
  bool closed_ = false;
};

class CallOfConnection final : public GrpcCall {
 public:
  CallOfConnection(GrpcCallOptions options, Shard& shard, GrpcCallListener& listener)
      : connection_(std::make_shared<Connection>(std::move(options), shard, listener)) {
    connection_->start();
  }
  CallOfConnection(const CallOfConnection&) = delete;
  CallOfConnection& operator=(const CallOfConnection&) = delete;
  ~CallOfConnection() override { connection_->close(); }
  void send(std::string_view message) override { connection_->send(message); }
  void finish_sending() override { connection_->finish_sending(); }
  size_t unsent_bytes() const override { return connection_->unsent_bytes(); }

 private:
  const std::shared_ptr<Connection> connection_;  // shared with the loop
};

}  // namespace

std::unique_ptr<GrpcCall> GrpcCall::open(GrpcCallOptions options, Shard& shard,
                                         GrpcCallListener& listener) {
  return std::make_unique<CallOfConnection>(std::move(options), shard, listener);
}

}  // namespace stator::net
