// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/grpc_server_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/core/log.h"
#include "stator/net/detail/mutual_tls.h"

namespace stator::net::detail {
namespace {

// So much may wait for flush() or the client before has_room() says no.
constexpr size_t kAheadBytes = size_t{64} * 1024;
constexpr std::string_view kLogTarget = "net";

}  // namespace

/// C2's face to users: passes on what they want, as long as the connection is there.
class GrpcServerConnection::Call final : public GrpcServerCall {
 public:
  Call(std::shared_ptr<GrpcServerConnection> connection, int32_t stream)
      : connection_(std::move(connection)), stream_(stream) {}

  const GrpcCaller& caller() const override { return connection_->caller_; }
  void send(std::string_view message) override { connection_->send(stream_, message); }
  void flush() override { connection_->flush_now(); }
  bool has_room() override { return connection_->has_room(stream_); }
  size_t unsent_bytes() override { return connection_->unsent_bytes(stream_); }
  void finish(GrpcOutcome outcome) override { connection_->finish(stream_, outcome); }
  void hold() override { connection_->hold(stream_); }
  void go_on() override { connection_->go_on(stream_); }

  // The loop's.
  std::shared_ptr<GrpcCallHandler> handler;  // null: refused
  Timer deadline;
  Timer first_message;
  std::optional<SilentCalls::Key> silent;  // until its first message

  /// It has said something, or is gone.
  void no_longer_silent(SilentCalls& calls) {
    if (silent) {
      calls.remove(*std::exchange(silent, std::nullopt));
    }
    first_message.cancel();
  }

 private:
  const std::shared_ptr<GrpcServerConnection> connection_;  // shared: calls outlive it in users
  const int32_t stream_;
};

std::shared_ptr<GrpcServerConnection> GrpcServerConnection::open(GrpcServerContext& context,
                                                                 FileDescriptor fd) {
  const auto& tls = context.options.tls;
  auto transport = tls == nullptr
                       ? make_plain_transport(fd.get())
                       : make_tls_server_transport(*tls->state().context->current(), fd.get());
  const std::string address = peer_address(fd.get());
  if (transport == nullptr || address.empty()) {
    return nullptr;
  }
  return std::make_shared<GrpcServerConnection>(context, std::move(fd), std::move(transport),
                                                address);
}

GrpcServerConnection::GrpcServerConnection(GrpcServerContext& context, FileDescriptor fd,
                                           std::unique_ptr<Transport> transport,
                                           std::string address)
    : GrpcSocket(context.shard),
      context_(context),
      caller_{std::move(address), {}},
      transport_(std::move(transport)),
      streams_({.message_bytes_max = context.options.message_bytes_max,
                .streams_max = context.options.calls_max,
                .unfinished_bytes_max = context.options.unfinished_bytes_max,
                .budget = context.budget}) {
  socket_.open(std::move(fd)).ignore("start() sees to it");
}

void GrpcServerConnection::start() {
  if (!socket_.is_watched()) {
    return close();
  }
  flush_now();
  attend();
  wait_readable();
  watch();
}

// ---- reading

GrpcSocket::Read GrpcServerConnection::read_some(std::span<char> buffer) {
  const MutexLock lock(mutex_);
  const IoResult got = transport_->read(buffer);
  if (got.state != IoState::kDone) {
    return {.state = got.state};
  }
  const bool drained = transport_->drained(buffer.size(), got.bytes);
  understood_ = streams_.receive({buffer.data(), got.bytes});
  count_unfinished();
  return {.drained = drained};
}

void GrpcServerConnection::on_read() {
  attend();
  if (!closed_ && !understood_) {
    broken();
  }
}

void GrpcServerConnection::on_pause(IoState why) {
  if (why != IoState::kDone) {
    flush_now();  // the handshake's next step
  }
}

void GrpcServerConnection::on_broken(IoState how) {
  if (how == IoState::kClosed) {
    close();
  } else {
    broken();
  }
}

/// The peer is to blame, or the network: a reset is not worth a line.
void GrpcServerConnection::broken() {
  context_.metrics.broken_connections.add();
  {
    const MutexLock lock(mutex_);
    log::debug(kLogTarget, "a gRPC client's connection broke",
               {{"peer", caller_.address}, {"reason", transport_->failure()}});
  }
  close();
}

/// Tells handlers what has come, sends what they say to it, and does what other threads have left.
void GrpcServerConnection::attend() {
  while (!closed_) {
    std::vector<GrpcArrival> arrivals;
    std::vector<int32_t> roomy;
    {
      const MutexLock lock(mutex_);
      woken_ = false;
      flush();
      arrivals = streams_.take_arrivals();
      roomy = take_roomy();
    }
    if (arrivals.empty() && roomy.empty()) {
      break;
    }
    delivering_ = true;
    for (GrpcArrival& arrival : arrivals) {
      deliver(arrival);
    }
    for (const int32_t stream : roomy) {
      const auto call = calls_.find(stream);
      if (call != calls_.end() && call->second->handler != nullptr) {
        const auto kept = call->second;
        kept->handler->on_room();
      }
    }
    delivering_ = false;
  }
  if (closed_) {
    return;
  }
  bool blocked = false;
  bool given_up = false;
  bool unfinished = false;
  {
    const MutexLock lock(mutex_);
    blocked = blocked_;
    unfinished = streams_.unfinished_bytes() > 0;
    given_up = output_.empty() && streams_.given_up();
  }
  if (given_up) {
    close();
    return;
  }
  if (blocked) {
    wait_writable();
  }
  if (unfinished && !watching_messages_) {
    watch_messages();
  }
}

void GrpcServerConnection::deliver(GrpcArrival& arrival) {
  if (arrival.kind == GrpcArrival::Kind::kCall) {
    return begin_call(arrival);
  }
  const auto found = calls_.find(arrival.stream);
  if (found == calls_.end()) {
    return;
  }
  const std::shared_ptr<Call> call = found->second;
  call->no_longer_silent(context_.silent_calls);
  if (arrival.kind == GrpcArrival::Kind::kGone) {
    call->deadline.cancel();
    calls_.erase(found);
  }
  const std::shared_ptr<GrpcCallHandler> handler = call->handler;
  if (handler == nullptr) {
    return;
  }
  switch (arrival.kind) {
    case GrpcArrival::Kind::kCall:
      break;
    case GrpcArrival::Kind::kMessage:
      return handler->on_message(arrival.bytes);
    case GrpcArrival::Kind::kHalfClosed:
      return handler->on_half_closed();
    case GrpcArrival::Kind::kGone:
      call->handler.reset();
      return handler->on_gone();
  }
}

void GrpcServerConnection::begin_call(const GrpcArrival& arrival) {
  if (!std::exchange(named_, true)) {
    const MutexLock lock(mutex_);
    caller_.names = transport_->peer_names();
  }
  auto call = std::make_shared<Call>(self(), arrival.stream);
  calls_.emplace(arrival.stream, call);
  const auto method = context_.methods.find(arrival.bytes);
  if (method == context_.methods.end()) {
    call->finish({kGrpcUnimplemented, fmt::format("no method {} is served here", arrival.bytes)});
    return;
  }
  if (arrival.timeout) {
    call->deadline = context_.shard.after(*arrival.timeout, [this, stream = arrival.stream] {
      finish(stream, {kGrpcDeadlineExceeded, "past the call's deadline"});
    });
  }
  call->handler = method->second(call);
  if (call->handler != nullptr) {
    await_first_message(*call, arrival.stream);
  }
}

void GrpcServerConnection::await_first_message(Call& call, int32_t stream) {
  SilentCalls& silent = context_.silent_calls;
  if (silent.size() >= context_.options.silent_calls_max) {
    const SilentCalls::Call oldest = silent.oldest();
    oldest.connection->calls_.at(oldest.stream)->no_longer_silent(silent);
    oldest.connection->end_silent(oldest.stream, "too many calls without a message");
  }
  call.silent = silent.add({this, stream});
  call.first_message = context_.shard.after(context_.options.first_message_timeout, [this, stream] {
    const auto found = calls_.find(stream);
    if (found != calls_.end()) {
      found->second->no_longer_silent(context_.silent_calls);
      end_silent(stream, "the call's first message did not come in time");
    }
  });
}

void GrpcServerConnection::end_silent(int32_t stream, std::string reason) {
  context_.metrics.silent_calls.add();
  const auto kept = shared_from_this();
  finish(stream, {kGrpcDeadlineExceeded, std::move(reason)});
}

/// Ends calls whose messages do not come to their end.
void GrpcServerConnection::watch_messages() {
  watching_messages_ = false;
  {
    const MutexLock lock(mutex_);
    watching_messages_ = streams_.end_stale();
    count_unfinished();
  }
  flush_now();
  if (watching_messages_) {
    message_watch_ =
        context_.shard.after(context_.options.message_timeout, [this] { watch_messages(); });
  }
}

void GrpcServerConnection::count_unfinished() {
  if (shut_) {
    return;
  }
  if (const size_t bytes = streams_.unfinished_bytes(); bytes != counted_bytes_) {
    context_.metrics.unfinished_bytes.add(static_cast<double>(bytes) -
                                          static_cast<double>(counted_bytes_));
    counted_bytes_ = bytes;
  }
  if (const uint64_t calls = streams_.ended_calls(); calls != counted_calls_) {
    context_.metrics.unfinished_calls.add(calls - counted_calls_);
    counted_calls_ = calls;
  }
}

// ---- writing

void GrpcServerConnection::send(int32_t stream, std::string_view message) {
  const MutexLock lock(mutex_);
  streams_.send(stream, message);
}

void GrpcServerConnection::flush_now() {
  if (context_.shard.on_loop() && delivering_) {
    return;  // attend() does
  }
  const MutexLock lock(mutex_);
  flush();
  wake_loop_if_needed();
}

void GrpcServerConnection::finish(int32_t stream, const GrpcOutcome& outcome) {
  {
    const MutexLock lock(mutex_);
    streams_.finish(stream, outcome);
  }
  flush_now();
}

void GrpcServerConnection::hold(int32_t stream) {
  const MutexLock lock(mutex_);
  streams_.hold(stream);
}

void GrpcServerConnection::go_on(int32_t stream) {
  const MutexLock lock(mutex_);
  streams_.go_on(stream);
  count_unfinished();
  wake_loop_if_needed();
}

void GrpcServerConnection::flush() {
  blocked_ = !shut_ && flush_to(*transport_, streams_, output_) == Flushed::kBlocked;
}

size_t GrpcServerConnection::waiting_bytes(int32_t stream) const {
  return streams_.unsent_bytes(stream) + output_.size();
}

size_t GrpcServerConnection::unsent_bytes(int32_t stream) {
  const MutexLock lock(mutex_);
  return shut_ ? 0 : waiting_bytes(stream);
}

bool GrpcServerConnection::has_room(int32_t stream) {
  const MutexLock lock(mutex_);
  if (waiting_bytes(stream) < kAheadBytes) {
    return true;
  }
  if (std::ranges::find(roomless_, stream) == roomless_.end()) {
    roomless_.push_back(stream);
  }
  return false;
}

/// The streams that wait for room and have it.
std::vector<int32_t> GrpcServerConnection::take_roomy() {
  std::vector<int32_t> roomy;
  std::vector<int32_t> roomless;
  for (const int32_t stream : roomless_) {
    (waiting_bytes(stream) == 0 ? roomy : roomless).push_back(stream);
  }
  roomless_ = std::move(roomless);
  return roomy;
}

bool GrpcServerConnection::loop_is_needed() const {
  if (blocked_ || streams_.has_arrivals() || (output_.empty() && streams_.given_up())) {
    return true;
  }
  for (const int32_t stream : roomless_) {
    if (waiting_bytes(stream) == 0) {
      return true;
    }
  }
  return false;
}

void GrpcServerConnection::wake_loop_if_needed() {
  if (shut_ || !loop_is_needed() || std::exchange(woken_, true)) {
    return;
  }
  // Not the shard's bounded inbox: woken_ is the bound.
  context_.shard.post_past_bound([self = self()] { self->attend(); });
}

// ---- life and death

/// Asks a silent client for a sign of life, and gives it up when there is none.
void GrpcServerConnection::watch() {
  const auto verdict = silence_.look();
  if (verdict == SilenceWatch::Verdict::kGone) {
    context_.metrics.silent_connections.add();
    log::warn(kLogTarget, "a gRPC client gave no sign of life", {{"peer", caller_.address}});
    return close();
  }
  const bool ask = verdict == SilenceWatch::Verdict::kAsk;
  if (ask) {
    {
      const MutexLock lock(mutex_);
      streams_.ping();
    }
    flush_now();
  }
  const GrpcServerOptions& options = context_.options;
  watchdog_ = context_.shard.after(ask ? options.keepalive_timeout : options.keepalive_interval,
                                   [this] { watch(); });
}

void GrpcServerConnection::go_away() {
  {
    const MutexLock lock(mutex_);
    streams_.go_away();
  }
  attend();
}

void GrpcServerConnection::close() {
  if (std::exchange(closed_, true)) {
    return;
  }
  const auto kept = shared_from_this();
  watchdog_.cancel();
  message_watch_.cancel();
  {
    const MutexLock lock(mutex_);
    shut_ = true;
    context_.metrics.unfinished_bytes.add(-static_cast<double>(counted_bytes_));
    counted_bytes_ = 0;
    transport_->shutdown_write();
    socket_.close();
  }
  const auto calls = std::exchange(calls_, {});
  for (const auto& [stream, call] : calls) {
    call->deadline.cancel();
    call->no_longer_silent(context_.silent_calls);
    if (const auto handler = std::exchange(call->handler, nullptr)) {
      handler->on_gone();
    }
  }
  context_.on_closed(*this);
}

}  // namespace stator::net::detail
