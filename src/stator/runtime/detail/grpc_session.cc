// SPDX-License-Identifier: Apache-2.0
#include "stator/runtime/detail/grpc_session.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <deque>
#include <utility>

#include "stator/core/mutex.h"
#include "stator/proto/worker/v1/worker.grpc.pb.h"
#include "stator/runtime/detail/session_core.h"
#include "stator/runtime/detail/session_protocol.h"

namespace stator::runtime::detail {
namespace {

namespace pb = worker::v1;

/// The stream. Reads on gRPC's threads, is written to by the loop.
///
/// G1  At most one read and one write are under way.
/// G2  gRPC's hold is released when the stream is broken and neither is: only then can OnDone come,
///     so no operation is ever started on a finished call.
/// G3  The object keeps itself alive until OnDone, which leaves its end, and the channel's, to the
///     reaper.
/// G4  `incoming_` belongs to the read until it is decoded: only then does the loop, which reads on
///     whenever it has emptied the inbox, find the stream paused.
class GrpcStream final : public grpc::ClientBidiReactor<pb::ClientMessage, pb::WorkerMessage>,
                         public std::enable_shared_from_this<GrpcStream> {
 public:
  GrpcStream(GrpcSessionSetup setup, std::shared_ptr<SessionCore> core)
      : setup_(std::move(setup)),
        core_(std::move(core)),
        stub_(pb::Worker::NewStub(setup_.channel)) {}

  void start() {
    self_ = shared_from_this();
    setup_.reaper.begin();
    stub_->async()->Session(&call_, this);
    AddHold();
    {
      const MutexLock lock(mutex_);
      reading_ = true;
    }
    StartRead(&incoming_);
    send(make_hello(setup_.worker, setup_.incarnation, setup_.options.client_name), 0);
    StartCall();
  }

  /// `bytes` counts against the queue's bound; the caller has checked it with `room_for`.
  void send(std::unique_ptr<pb::ClientMessage> message, size_t bytes) STATOR_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (broken_) {
        return;  // OnDone tells
      }
      queue_.push_back({std::move(message), bytes});
      queue_bytes_ += bytes;
    }
    write_next();
  }

  bool room_for(size_t bytes) STATOR_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return queue_bytes_ + bytes <= setup_.options.send_queue_bytes_max;
  }

  /// The inbox has been emptied: read on if that was what we waited for.
  void resume_reading() STATOR_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (!std::exchange(paused_, false) || broken_) {
        return;
      }
      reading_ = true;
    }
    StartRead(&incoming_);
  }

  /// Ends the call. `error`, if given, is what on_closed says. Any thread; idempotent.
  void abort(std::optional<Error> error) STATOR_EXCLUDES(mutex_) {
    end_call(std::move(error), Ended::kNothing);
  }

  bool opened() const { return opened_; }

  void OnReadDone(bool ok) override {
    if (!ok) {
      break_off(Ended::kRead);
      return;
    }
    auto told = tell(incoming_, setup_.incarnation, *core_);
    if (!told) {
      end_call(std::move(told.error()), Ended::kRead);
      return;
    }
    opened_ = opened_ || told->opened;
    bool release = false;
    {
      const MutexLock lock(mutex_);
      reading_ = false;
      paused_ = !broken_;
      release = take_release();
    }
    if (release) {
      RemoveHold();
      return;
    }
    // G4: asked after the pause. Whoever empties the inbox later than this finds it and reads on.
    if (core_->waiting_bytes() <= setup_.options.receive_queue_bytes_max) {
      resume_reading();
    }
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      break_off(Ended::kWrite);
      return;
    }
    bool release = false;
    {
      const MutexLock lock(mutex_);
      writing_ = false;
      release = take_release();
    }
    if (release) {
      RemoveHold();
      return;
    }
    write_next();
  }

  void OnDone(const grpc::Status& status) override {
    std::optional<Error> reason;
    {
      const MutexLock lock(mutex_);
      reason = std::move(reason_);
    }
    if (!reason) {
      reason = Error(opened_ ? Code::kDisconnected : Code::kUnavailable,
                     fmt::format("worker {} at {}: {}", setup_.worker.value(), setup_.address,
                                 status.ok() ? "it ended the session" : status.error_message()));
    }
    core_->push(SessionClosed{std::move(*reason)});
    setup_.reaper.end(std::move(self_));
  }

 private:
  enum class Ended : uint8_t { kNothing, kRead, kWrite };
  struct Queued {
    std::unique_ptr<pb::ClientMessage> message;
    size_t bytes;
  };

  void end_call(std::optional<Error> error, Ended ended) STATOR_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (!reason_ && error) {
        reason_ = std::move(error);
      }
    }
    call_.TryCancel();
    break_off(ended);
  }

  void write_next() STATOR_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (writing_ || broken_ || queue_.empty()) {
        return;
      }
      writing_ = true;
      outgoing_ = std::move(queue_.front().message);
      queue_bytes_ -= queue_.front().bytes;
      queue_.pop_front();
    }
    setup_.metrics.messages_sent.add();
    StartWrite(outgoing_.get());
  }

  void break_off(Ended ended) STATOR_EXCLUDES(mutex_) {
    bool release = false;
    {
      const MutexLock lock(mutex_);
      reading_ = reading_ && ended != Ended::kRead;
      writing_ = writing_ && ended != Ended::kWrite;
      broken_ = true;
      queue_.clear();
      release = take_release();
    }
    if (release) {
      RemoveHold();
    }
  }

  /// G2. True once.
  bool take_release() STATOR_REQUIRES(mutex_) {
    return broken_ && !reading_ && !writing_ && std::exchange(held_, false);
  }

  const GrpcSessionSetup setup_;
  const std::shared_ptr<SessionCore> core_;
  const std::unique_ptr<pb::Worker::Stub> stub_;
  grpc::ClientContext call_;
  pb::WorkerMessage incoming_;  // G4
  std::unique_ptr<pb::ClientMessage> outgoing_;
  std::shared_ptr<GrpcStream> self_;  // G3
  std::atomic<bool> opened_{false};

  Mutex mutex_;
  std::deque<Queued> queue_ STATOR_GUARDED_BY(mutex_);
  size_t queue_bytes_ STATOR_GUARDED_BY(mutex_) = 0;
  std::optional<Error> reason_ STATOR_GUARDED_BY(mutex_);
  bool reading_ STATOR_GUARDED_BY(mutex_) = false;
  bool writing_ STATOR_GUARDED_BY(mutex_) = false;
  bool paused_ STATOR_GUARDED_BY(mutex_) = false;  // between two reads
  bool broken_ STATOR_GUARDED_BY(mutex_) = false;
  bool held_ STATOR_GUARDED_BY(mutex_) = true;
};

class GrpcSession final : public WorkerSession {
 public:
  GrpcSession(GrpcSessionSetup setup, net::Shard& shard, SessionEvents& events)
      : options_(setup.options),
        core_(std::make_shared<SessionCore>(setup.worker, shard, events, setup.metrics)) {
    const std::string address = setup.address;
    stream_ = std::make_shared<GrpcStream>(std::move(setup), core_);
    core_->on_drained([weak = std::weak_ptr(stream_)] {
      if (const auto stream = weak.lock()) {
        stream->resume_reading();
      }
    });
    connect_timer_ = shard.after(options_.connect_deadline, [this, address] {
      if (!stream_->opened()) {
        stream_->abort(Error(Code::kUnavailable, fmt::format("worker {} at {} did not answer",
                                                             worker().value(), address)));
      }
    });
    stream_->start();
  }
  GrpcSession(const GrpcSession&) = delete;
  GrpcSession& operator=(const GrpcSession&) = delete;
  ~GrpcSession() override { close(); }

  WorkerId worker() const override { return core_->worker(); }

  void submit(engine::EngineRequest request) override {
    if (!core_->open()) {
      return;  // on_closed has been delivered or close() called: S3
    }
    const engine::RequestKey key = request.key;
    core_->begin(key);
    auto message = make_submit(request);
    if (!message) {
      core_->metrics().rejected_messages.add();
      reject(key, std::move(message.error()));
      return;
    }
    const size_t bytes = (*message)->GetCachedSize();
    if (!stream_->room_for(bytes)) {
      core_->metrics().send_queue_full.add();
      reject(key, Error(Code::kOverloaded, "the worker reads requests too slowly"));
      return;
    }
    stream_->send(std::move(*message), bytes);
  }

  void cancel(engine::RequestKey key, CancelReason reason) override {
    if (core_->forget(key)) {
      // As many as there were submits, which are bounded.
      stream_->send(make_cancel(key, reason), 0);
    }
  }

  void close() override {
    connect_timer_.cancel();
    core_->close();
    stream_->abort(std::nullopt);
  }

 private:
  void reject(engine::RequestKey key, Error error) {
    core_->push(SessionRejected{{key, std::move(error)}});
  }

  const GrpcOptions options_;
  const std::shared_ptr<SessionCore> core_;  // shared with the stream, which ends later
  std::shared_ptr<GrpcStream> stream_;       // shared with gRPC, see G3
  net::Timer connect_timer_;
};

}  // namespace

std::unique_ptr<WorkerSession> open_grpc_session(GrpcSessionSetup setup, net::Shard& shard,
                                                 SessionEvents& events) {
  return std::make_unique<GrpcSession>(std::move(setup), shard, events);
}

}  // namespace stator::runtime::detail
