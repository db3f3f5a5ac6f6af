// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/grpc_client_connection.h"

#include <fmt/format.h>

#include <utility>

#include "stator/net/detail/mutual_tls.h"
#include "stator/net/detail/name_lookup.h"

namespace stator::net::detail {
class GrpcClientConnection::Call final : public GrpcCall {
 public:
  Call(std::shared_ptr<GrpcClientConnection> connection, int32_t stream)
      : connection_(std::move(connection)), stream_(stream) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() override { connection_->cancel(stream_); }

  void expire_after(Duration time) {
    deadline_ = connection_->shard_.after(
        time, [connection = connection_, stream = stream_, reads = connection_->reads_] {
          connection->expire(stream, reads);
        });
  }

  void send(std::string_view message) override { connection_->send(stream_, message); }
  void finish_sending() override { connection_->finish_sending(stream_); }
  size_t unsent_bytes() const override {
    return connection_->streams_.unsent_bytes(stream_) + connection_->output_.size();
  }

 private:
  const std::shared_ptr<GrpcClientConnection> connection_;  // shared with the loop
  const int32_t stream_;
  Timer deadline_;
};

GrpcClientConnection::GrpcClientConnection(Target target, Shard& shard)
    : GrpcSocket(shard),
      target_(std::move(target)),
      server_(split_endpoint(target_.address)),
      streams_(target_.address, target_.tls != nullptr) {}

std::unique_ptr<GrpcCall> GrpcClientConnection::begin(const GrpcClientStreams::Call& call,
                                                      GrpcCallListener& listener) {
  const int32_t stream = closed_ ? 0 : streams_.begin(call, listener);
  if (stream == 0) {
    return nullptr;
  }
  auto begun = std::make_unique<Call>(self(), stream);
  if (call.timeout) {
    begun->expire_after(*call.timeout);
  }
  flush_soon();
  return begun;
}

void GrpcClientConnection::start() {
  // Not from inside the call: whoever begins one hears nothing before it has returned.
  shard_.defer([self = self()] { self->find_server(); });
  if (target_.connect_timeout) {
    connect_timer_ = shard_.after(*target_.connect_timeout, [this] {
      if (!heard()) {
        fail("it cannot be reached: no answer in time");
      }
    });
  }
  watch();
}

void GrpcClientConnection::release() {
  released_ = true;
  close_if_idle();
}

void GrpcClientConnection::send(int32_t stream, std::string_view message) {
  if (!closed_) {
    streams_.send(stream, message);
    flush_soon();
  }
}

void GrpcClientConnection::finish_sending(int32_t stream) {
  if (!closed_) {
    streams_.finish_sending(stream);
    flush_soon();
  }
}

void GrpcClientConnection::cancel(int32_t stream) {
  streams_.cancel(stream);
  if (!closed_) {
    flush_soon();
    close_if_idle();
  }
}

/// A call's deadline has passed. Who has said nothing since the call began may be gone.
void GrpcClientConnection::expire(int32_t stream, uint64_t reads_before) {
  const auto kept = shared_from_this();
  if (!closed_ && transport_ != nullptr && reads_ == reads_before && !silence_.asked()) {
    silence_.ask();
    streams_.ping();
    watchdog_ = shard_.after(target_.keepalive_timeout, [this] { watch(); });
  }
  streams_.end(stream, {kGrpcDeadlineExceeded, "no answer within the call's deadline"});
  if (!closed_) {
    flush_soon();
    close_if_idle();
  }
}

void GrpcClientConnection::find_server() {
  addresses_ = numeric_addresses(server_);
  if (!addresses_.empty()) {  // no thread for what needs no look-up
    return connect_next();
  }
  shard_.names().start(server_, [self = self()](Result<std::vector<SocketAddress>> found) {
    if (!found) {
      return self->fail(fmt::format("its address cannot be resolved: {}", found.error().message()));
    }
    self->addresses_ = std::move(*found);
    self->connect_next();
  });
}

/// Tries the server's addresses in turn.
void GrpcClientConnection::connect_next() {
  int error = 0;
  while (!closed_ && next_address_ < addresses_.size()) {
    Connecting attempt = begin_connecting(addresses_[next_address_++]);
    error = attempt.error;
    if (attempt.fd.open() && socket_.open(std::move(attempt.fd))) {
      return wait_writable();
    }
  }
  fail(fmt::format("it cannot be reached: {}", error_text(error)));
}

void GrpcClientConnection::on_attempt_ended() {
  const int error = connect_error(socket_.fd());
  if (error == 0) {
    return on_connected();
  }
  socket_.close();
  if (next_address_ < addresses_.size()) {
    return connect_next();
  }
  fail(fmt::format("it cannot be reached: {}", error_text(error)));
}

void GrpcClientConnection::on_writable() {
  if (transport_ == nullptr) {
    on_attempt_ended();
  } else {
    flush();
  }
}

void GrpcClientConnection::on_connected() {
  const int fd = socket_.fd();
  transport_ = target_.tls == nullptr
                   ? make_plain_transport(fd)
                   : make_tls_client_transport(
                         *target_.tls->state().context->current(), fd,
                         target_.server_name.empty() ? server_.host : target_.server_name);
  if (transport_ == nullptr) {
    return fail("no memory for a TLS connection");
  }
  flush();
  wait_readable();
}

GrpcSocket::Read GrpcClientConnection::read_some(std::span<char> buffer) {
  const IoResult got = transport_->read(buffer);
  if (got.state != IoState::kDone) {
    return {.state = got.state};
  }
  ++reads_;
  receiving_ = true;
  streams_.receive({buffer.data(), got.bytes});
  receiving_ = false;
  return {.drained = closed_ || transport_->drained(buffer.size(), got.bytes)};
}

void GrpcClientConnection::on_broken(IoState how) {
  fail(how == IoState::kClosed ? "it closed the connection" : transport_->failure());
}

void GrpcClientConnection::flush_soon() {
  if (transport_ != nullptr && !std::exchange(flush_posted_, true)) {
    shard_.defer([self = self()] {
      self->flush_posted_ = false;
      if (!self->closed_) {
        self->flush();
      }
    });
  }
}

void GrpcClientConnection::flush() {
  if (closed_) {
    return;
  }
  writing_ = true;
  const Flushed flushed = flush_to(*transport_, streams_, output_);
  writing_ = false;
  if (flushed == Flushed::kBlocked) {
    wait_writable();
  } else if (flushed == Flushed::kAll && streams_.given_up()) {
    fail("it does not speak HTTP/2 as it should, or has gone away");
  }
}

/// Asks a silent server for a sign of life while calls wait for it, and gives it up when there is
/// none. Not without calls: servers take that for a flood (gRPC's "A8, client-side keepalive").
void GrpcClientConnection::watch() {
  const bool idle = streams_.open_calls() == 0 && !silence_.asked();
  if (transport_ == nullptr || idle) {
    silence_.heard();  // how long connecting may take is connect_timeout's to say
  }
  const auto verdict = silence_.look();
  if (verdict == SilenceWatch::Verdict::kGone) {
    return fail("it has been silent for too long");
  }
  const bool ask = verdict == SilenceWatch::Verdict::kAsk;
  if (ask) {
    streams_.ping();
    flush_soon();
  }
  watchdog_ = shard_.after(ask ? target_.keepalive_timeout : target_.keepalive_interval,
                           [this] { watch(); });
}

void GrpcClientConnection::fail(std::string reason) {
  if (closed_) {
    return;
  }
  const auto kept = shared_from_this();
  failure_ = std::move(reason);
  tear_down();
  streams_.end_all({kGrpcUnavailable, failure_});
}

/// Tells the server that calls are off, as far as that goes without waiting.
void GrpcClientConnection::close_if_idle() {
  if (closed_ || receiving_ || !released_ || streams_.open_calls() > 0) {
    return;  // read() comes here after receiving: U2
  }
  const auto kept = shared_from_this();
  if (writing_) {
    shard_.defer([self = self()] { self->close_if_idle(); });
    return;
  }
  if (transport_ != nullptr) {
    flush();
  }
  if (!closed_) {
    tear_down();
  }
}

void GrpcClientConnection::tear_down() {
  closed_ = true;
  closed_at_ = shard_.now();
  connect_timer_.cancel();
  watchdog_.cancel();
  socket_.close();
}

}  // namespace stator::net::detail
