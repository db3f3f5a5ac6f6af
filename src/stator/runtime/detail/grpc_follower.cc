// SPDX-License-Identifier: Apache-2.0
#include "stator/runtime/detail/grpc_follower.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <optional>
#include <utility>

#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/proto/worker/v1/worker.grpc.pb.h"
#include "stator/runtime/detail/shard_post.h"
#include "stator/runtime/detail/stream_follower.h"
#include "stator/runtime/wire.h"

namespace stator::runtime::detail {
namespace {

namespace pb = worker::v1;

constexpr std::string_view kLogTarget = "runtime::events";

/// One Events call. The next read starts when the loop has taken the previous chunk, so one chunk
/// is all that is ever buffered here.
class GrpcEventsStream final : public grpc::ClientReadReactor<pb::EventBatch>,
                               public std::enable_shared_from_this<GrpcEventsStream> {
 public:
  GrpcEventsStream(const GrpcFollowerSetup& setup, net::Shard& shard, EventsStreamOwner& owner)
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
  std::shared_ptr<GrpcEventsStream> self_;  // until OnDone
  Mutex mutex_;
  bool waiting_for_loop_ STATOR_GUARDED_BY(mutex_) = false;
  bool stopped_ STATOR_GUARDED_BY(mutex_) = false;
};

/// What the follower holds; the call ends later.
class EventsCall final : public EventsStream {
 public:
  explicit EventsCall(std::shared_ptr<GrpcEventsStream> stream) : stream_(std::move(stream)) {}
  EventsCall(const EventsCall&) = delete;
  EventsCall& operator=(const EventsCall&) = delete;
  ~EventsCall() override { stream_->stop(); }

 private:
  const std::shared_ptr<GrpcEventsStream> stream_;  // shared with gRPC
};

}  // namespace

std::unique_ptr<EventFollower> open_grpc_follower(GrpcFollowerSetup setup, net::Shard& shard,
                                                  KvEventsListener& listener) {
  StreamFollower::Setup follower{.worker = setup.worker,
                                 .open = nullptr,
                                 .reconnects = setup.reconnects,
                                 .rejected_messages = setup.rejected_messages};
  follower.open = [setup = std::move(setup), &shard](Incarnation incarnation, uint64_t from_id,
                                                     EventsStreamOwner& owner) {
    auto stream = std::make_shared<GrpcEventsStream>(setup, shard, owner);
    stream->start(incarnation, from_id);
    return std::make_unique<EventsCall>(std::move(stream));
  };
  return std::make_unique<StreamFollower>(std::move(follower), shard, listener);
}

}  // namespace stator::runtime::detail
