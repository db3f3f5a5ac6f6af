// SPDX-License-Identifier: Apache-2.0
#include "stator/session/detail/grpc_follower.h"

#include <optional>
#include <utility>

#include "stator/core/log.h"
#include "stator/kv_events/stream_follower.h"
#include "stator/proto/worker/v1/worker.pb.h"
#include "stator/session/wire.h"

namespace stator::session::detail {
namespace {

namespace pb = worker::v1;

constexpr std::string_view kLogTarget = "kv_events";
constexpr const char* kPath = "/stator.worker.v1.Worker/Events";

/// One Events call, all of it on the loop: a chunk is taken when it is read, and a loop that is
/// behind leaves the others to the kernel and to HTTP/2's window.
class GrpcEventsStream final : public kv_events::EventsStream, net::GrpcCallListener {
 public:
  GrpcEventsStream(const GrpcFollowerSetup& setup, net::Shard& shard, Incarnation incarnation,
                   uint64_t from_id, kv_events::EventsStreamOwner& owner)
      : owner_(owner) {
    const GrpcOptions& options = setup.options;
    call_ = net::GrpcCall::open({.address = setup.address,
                                 .path = kPath,
                                 .tls = setup.tls,
                                 .server_name = options.tls ? options.tls->server_name : "",
                                 .message_bytes_max = wire::kMessageBytesMax,
                                 .keepalive_interval = options.keepalive_interval,
                                 .keepalive_timeout = options.keepalive_timeout},
                                shard, *this);
    pb::EventsRequest request;
    request.set_incarnation(incarnation.value());
    request.set_from_id(from_id);
    call_->send(request.SerializeAsString());
    call_->finish_sending();
  }
  GrpcEventsStream(const GrpcEventsStream&) = delete;
  GrpcEventsStream& operator=(const GrpcEventsStream&) = delete;
  ~GrpcEventsStream() override = default;

 private:
  void on_message(std::string_view bytes) override {
    auto chunk = incoming_.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))
                     ? kv_events::decode(incoming_)
                     : Result<kv_events::EventsChunk>(
                           Error(Code::kCorrupt, "a message of KV events does not parse"));
    const std::weak_ptr<int> alive = alive_;
    Status taken =
        chunk.has_value() ? owner_.on_chunk(std::move(*chunk)) : Status(std::move(chunk.error()));
    if (alive.expired()) {
      return;  // the listener has ended the follower
    }
    if (!taken.has_value()) {
      log::warn(kLogTarget, "starting the event stream over", {{"error", taken.error().message()}});
      call_.reset();
      owner_.on_ended(std::string(taken.error().message()));
    }
  }

  void on_end(net::GrpcOutcome outcome) override {
    call_.reset();
    owner_.on_ended(std::move(outcome.message));
  }

  kv_events::EventsStreamOwner& owner_;
  pb::EventBatch incoming_;                               // kept for its memory
  std::shared_ptr<int> alive_ = std::make_shared<int>();  // weak ones outlive the stream
  std::unique_ptr<net::GrpcCall> call_;                   // null when it has ended
};

}  // namespace

std::unique_ptr<kv_events::EventFollower> open_grpc_follower(
    GrpcFollowerSetup setup, net::Shard& shard, kv_events::KvEventsListener& listener) {
  kv_events::StreamFollower::Setup follower{.worker = setup.worker,
                                            .open = nullptr,
                                            .reconnects = setup.reconnects,
                                            .rejected_messages = setup.rejected_messages};
  follower.open = [setup = std::move(setup), &shard](Incarnation incarnation, uint64_t from_id,
                                                     kv_events::EventsStreamOwner& owner) {
    return std::make_unique<GrpcEventsStream>(setup, shard, incarnation, from_id, owner);
  };
  return std::make_unique<kv_events::StreamFollower>(std::move(follower), shard, listener);
}

}  // namespace stator::session::detail
