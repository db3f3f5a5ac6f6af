// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "stator/net/detail/output_buffer.h"
#include "stator/net/detail/silence_watch.h"
#include "stator/net/detail/transport.h"
#include "stator/net/detail/watch.h"
#include "stator/net/shard.h"

namespace stator::net::detail {

/// What both ends of a gRPC connection share: a socket on a shard's loop, its waits, and reading by
/// turns. Kept alive by what waits in the loop.
///
///   on_readable() ──► read_some() ──► on_read()      at most kReadsPerTurn times in a turn
///        └── nothing left ──► on_pause() ──► wait_readable()
///
/// K1  At most one read wait and one write wait are pending, and none is acted upon once closed_.
class GrpcSocket : public WatchUser, public std::enable_shared_from_this<GrpcSocket> {
 public:
  GrpcSocket(const GrpcSocket&) = delete;
  GrpcSocket& operator=(const GrpcSocket&) = delete;

 protected:
  explicit GrpcSocket(Shard& shard);
  ~GrpcSocket() override = default;

  struct Read {
    IoState state = IoState::kDone;
    bool drained = false;  ///< kDone: only readiness can bring more
  };
  /// One read of the transport; what came goes to HTTP/2.
  virtual Read read_some(std::span<char> buffer) = 0;
  /// Something came. May close.
  virtual void on_read() = 0;
  /// Reading waits or leaves the turn to others; `why`: kDone, or what the transport wants.
  virtual void on_pause(IoState why) = 0;
  /// kClosed or kFailed.
  virtual void on_broken(IoState how) = 0;

  void wait_readable();
  void wait_writable();
  void on_readable() final;

  enum class Flushed : uint8_t {
    kAll,
    kBlocked,  ///< the socket is full
    kStuck,    ///< reading goes on with the handshake, or tells after what the peer has still said
  };
  /// Writes what `streams` has to send as far as the socket takes it.
  template <typename Streams>
  static Flushed flush_to(Transport& transport, Streams& streams, OutputBuffer& output) {
    for (;;) {
      if (output.empty()) {
        streams.append_output(output);
        if (output.empty()) {
          return Flushed::kAll;
        }
      }
      const IoResult put = transport.write(output.front());
      if (put.state != IoState::kDone) {
        return put.state == IoState::kWantWrite ? Flushed::kBlocked : Flushed::kStuck;
      }
      output.consume(put.bytes);
    }
  }

  Shard& shard_;
  Watch socket_;
  SilenceWatch silence_;
  Timer watchdog_;
  bool closed_ = false;
};

}  // namespace stator::net::detail
