// SPDX-License-Identifier: Apache-2.0
#include "stator/runtime/detail/grpc_follower.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <optional>
#include <utility>

#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/proto/worker/v1/worker.grpc.pb.h"
#include "stator/runtime/detail/backoff.h"
#include "stator/runtime/detail/event_cursor.h"
#include "stator/runtime/detail/shard_post.h"
#include "stator/runtime/wire.h"

namespace stator::runtime::detail {
namespace {

namespace pb = worker::v1;

constexpr std::string_view kLogTarget = "runtime::events";
constexpr Duration kBackoffMin = std::chrono::milliseconds(50);
constexpr Duration kBackoffMax = std::chrono::seconds(5);

/// Hears about one stream, on the loop.
class EventsStreamOwner {
 public:
  virtual ~EventsStreamOwner() = default;
  virtual Status on_chunk(wire::EventsChunk chunk) = 0;
  virtual void on_ended(std::string reason) = 0;
};

/// One Events call. The next read starts when the loop has taken the previous chunk, so one chunk
/// is all that is ever buffered here.
class EventsStream final : public grpc::ClientReadReactor<pb::EventBatch>,
                           public std::enable_shared_from_this<EventsStream> {
 public:
  EventsStream(const GrpcFollowerSetup& setup, net::Shard& shard, EventsStreamOwner& owner)
      : reaper_(setup.reaper),
        shard_(shard),
        owner_(&owner),
        stub_(pb::Worker::NewStub(setup.connect())) {}

  void start(Incarnation incarnation, uint64_t from_id) {
    self_ = shared_from_this();
    reaper_.begin();
    request_.set_incarnation(incarnation.value());
    request_.set_from_id(from_id);
    stub_->async()->Events(&call_, &request_, this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  /// On the loop: the owner is not called after this.
  void stop() {
    owner_ = nullptr;
    {
      const MutexLock lock(mutex_);
      stopped_ = true;  // gRPC's threads must not touch the shard any more, which may go now
    }
    call_.TryCancel();
    release_if_waiting();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      RemoveHold();
      return;
    }
    {
      const MutexLock lock(mutex_);
      if (!stopped_) {
        waiting_for_loop_ = true;
        post_wakeup(shard_, [self = shared_from_this()] { self->consume(); });
        return;
      }
    }
    RemoveHold();
  }

  void OnDone(const grpc::Status& status) override {
    {
      const MutexLock lock(mutex_);
      if (!stopped_) {
        post_wakeup(shard_, [self = self_, reason = status.error_message()] {
          if (EventsStreamOwner* owner = std::exchange(self->owner_, nullptr)) {
            owner->on_ended(reason);
          }
        });
      }
    }
    reaper_.end(std::move(self_));
  }

 private:
  void consume() {
    if (owner_ == nullptr) {
      return;  // stop() has let go of the call
    }
    auto chunk = wire::decode(incoming_);
    Status taken =
        chunk.has_value() ? owner_->on_chunk(std::move(*chunk)) : Status(std::move(chunk.error()));
    if (owner_ == nullptr) {
      return;  // the listener has ended the follower
    }
    if (!taken.has_value()) {
      log::warn(kLogTarget, "starting the event stream over", {{"error", taken.error().message()}});
      call_.TryCancel();
      release_if_waiting();
      return;
    }
    {
      const MutexLock lock(mutex_);
      waiting_for_loop_ = false;
    }
    StartRead(&incoming_);
  }

  // Between two reads nothing but the hold keeps the call: let it go, once.
  void release_if_waiting() {
    bool waiting = false;
    {
      const MutexLock lock(mutex_);
      waiting = std::exchange(waiting_for_loop_, false);
    }
    if (waiting) {
      RemoveHold();
    }
  }

  CallReaper& reaper_;
  net::Shard& shard_;
  EventsStreamOwner* owner_;  // loop only
  const std::unique_ptr<pb::Worker::Stub> stub_;
  grpc::ClientContext call_;
  pb::EventsRequest request_;
  pb::EventBatch incoming_;
  std::shared_ptr<EventsStream> self_;  // until OnDone
  Mutex mutex_;
  bool waiting_for_loop_ STATOR_GUARDED_BY(mutex_) = false;
  bool stopped_ STATOR_GUARDED_BY(mutex_) = false;
};

class GrpcFollower final : public EventFollower, public EventsStreamOwner {
 public:
  GrpcFollower(GrpcFollowerSetup setup, net::Shard& shard, KvEventsListener& listener)
      : setup_(std::move(setup)), shard_(shard), assembler_(setup_.worker, listener) {
    connect();
  }
  GrpcFollower(const GrpcFollower&) = delete;
  GrpcFollower& operator=(const GrpcFollower&) = delete;
  ~GrpcFollower() override {
    if (stream_ != nullptr) {
      stream_->stop();
    }
  }

  uint64_t last_id() const override { return assembler_.last_id(); }

 private:
  void connect() {
    stream_ = std::make_shared<EventsStream>(setup_, shard_, *this);
    stream_->start(assembler_.incarnation(), assembler_.resume_from());
  }

  Status on_chunk(wire::EventsChunk chunk) override {
    Status taken = assembler_.take(std::move(chunk));
    if (taken.has_value()) {
      backoff_.reset();
    } else {
      setup_.rejected_messages.add();
    }
    return taken;
  }

  void on_ended(std::string reason) override {
    log::debug(kLogTarget, "event stream ended",
               {{"worker", setup_.worker.value()}, {"reason", reason}});
    stream_.reset();
    assembler_.interrupted();
    retry_ = shard_.after(backoff_.next(), [this] {
      setup_.reconnects.add();
      connect();
    });
  }

  const GrpcFollowerSetup setup_;
  net::Shard& shard_;
  EventAssembler assembler_;
  Backoff backoff_{kBackoffMin, kBackoffMax};
  std::shared_ptr<EventsStream> stream_;
  net::Timer retry_;
};

}  // namespace

std::unique_ptr<EventFollower> open_grpc_follower(GrpcFollowerSetup setup, net::Shard& shard,
                                                  KvEventsListener& listener) {
  return std::make_unique<GrpcFollower>(std::move(setup), shard, listener);
}

}  // namespace stator::runtime::detail
