// SPDX-License-Identifier: Apache-2.0
#include "stator/runtime/worker_server.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <tuple>
#include <utility>

#include "stator/core/log.h"
#include "stator/proto/worker/v1/worker.grpc.pb.h"
#include "stator/runtime/detail/credentials.h"
#include "stator/runtime/detail/server_context.h"
#include "stator/runtime/detail/server_events.h"
#include "stator/runtime/detail/server_session.h"
#include "stator/runtime/wire.h"

namespace stator::runtime {
namespace {

namespace pb = worker::v1;

constexpr int kKeepaliveMs = 5000;
constexpr int kKeepaliveTimeoutMs = 10000;
// How often clients may ping; ours do every 5 s.
constexpr int kPingIntervalMinMs = 1000;
// For streams to hear why they end before the sockets are closed.
constexpr int64_t kShutdownGraceMs = 500;
constexpr Duration kEventsPumpPace = std::chrono::seconds(60);
constexpr std::string_view kLogTarget = "runtime::server";

class WorkerService final : public pb::Worker::CallbackService {
 public:
  explicit WorkerService(detail::ServerContext& context) : context_(context) {}

  grpc::ServerBidiReactor<pb::ClientMessage, pb::WorkerMessage>* Session(
      grpc::CallbackServerContext* call) override {
    return detail::ServerSession::start(context_, admit(*call));
  }

  grpc::ServerWriteReactor<pb::EventBatch>* Events(grpc::CallbackServerContext* call,
                                                   const pb::EventsRequest* request) override {
    return detail::ServerEvents::start(context_, *request, admit(*call));
  }

  grpc::ServerUnaryReactor* Describe(grpc::CallbackServerContext* call,
                                     const pb::DescribeRequest* /*request*/,
                                     pb::DescribeResponse* response) override {
    return answer(call, [&] {
      response->set_worker_id(context_.record.key.worker.value());
      response->set_incarnation(context_.record.incarnation.value());
      response->set_record_json(to_json(context_.record));
    });
  }

  grpc::ServerUnaryReactor* Health(grpc::CallbackServerContext* call,
                                   const pb::HealthRequest* /*request*/,
                                   pb::HealthResponse* response) override {
    return answer(call, [&] {
      response->set_state(context_.draining ? pb::WORKER_STATE_DRAINING : pb::WORKER_STATE_READY);
      wire::encode(context_.engine.load(), *response->mutable_load());
      const MutexLock lock(context_.mutex);
      response->set_sessions(static_cast<uint32_t>(context_.sessions.size()));
    });
  }

  grpc::ServerUnaryReactor* FlushCache(grpc::CallbackServerContext* call,
                                       const pb::FlushCacheRequest* /*request*/,
                                       pb::FlushCacheResponse* /*response*/) override {
    return answer(call, [&] { context_.engine.reset_prefix_cache(); });
  }

 private:
  grpc::Status admit(const grpc::CallbackServerContext& call) const {
    if (!context_.options.tls) {
      return grpc::Status::OK;
    }
    grpc::Status status =
        detail::check_caller(*call.auth_context(), context_.options.tls->allowed_callers);
    if (!status.ok()) {
      context_.metrics.refused_callers.add();
      log::warn(kLogTarget, "a caller is not allowed", {{"peer", call.peer()}});
    }
    return status;
  }

  template <typename Fill>
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* call, const Fill& fill) {
    const grpc::Status status = admit(*call);
    if (status.ok()) {
      fill();
    }
    grpc::ServerUnaryReactor* reactor = call->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  }

  detail::ServerContext& context_;
};

auto load_fields(const engine::LoadReport& load) {
  return std::tuple(load.kv_used_blocks, load.kv_cached_blocks, load.kv_total_blocks, load.running,
                    load.waiting, load.prefix_hit_tokens, load.prefix_query_tokens,
                    load.preemptions);
}

}  // namespace

class WorkerServer::Impl {
 public:
  Impl(InstanceRecord record, engine::Engine& engine, WorkerServerOptions options,
       const Clock& clock, Metrics& metrics)
      : context_(std::move(record), engine, std::move(options), clock, metrics),
        service_(context_) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { shutdown(); }

  Status start() {
    STATOR_TRY(const auto credentials, detail::server_credentials(context_.options.tls));
    grpc::ServerBuilder builder;
    const std::string wanted =
        fmt::format("{}:{}", context_.options.listen_host, context_.options.port);
    builder.AddListeningPort(wanted, credentials, &port_);
    builder.RegisterService(&service_);
    builder.SetMaxReceiveMessageSize(static_cast<int>(wire::kMessageBytesMax));
    builder.SetMaxSendMessageSize(static_cast<int>(wire::kMessageBytesMax));
    // Two workers on one port would take each other's sessions by chance.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                               kPingIntervalMinMs);
    // Streams start with the server, so all they use comes first.
    context_.output_pump = std::make_unique<detail::Pump>(
        "worker-output", context_.options.load_interval, [this] { tick(); });
    context_.events_pump =
        std::make_unique<detail::Pump>("worker-events", kEventsPumpPace, nullptr);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || port_ == 0) {
      return Error(Code::kIo, fmt::format("the worker cannot listen on {}: the address is in use, "
                                          "not of this machine, or not permitted",
                                          wanted));
    }
    return {};
  }

  uint16_t port() const { return static_cast<uint16_t>(port_); }
  std::string address() const { return fmt::format("{}:{}", context_.options.listen_host, port_); }

  void drain() {
    if (context_.draining.exchange(true)) {
      return;
    }
    log::info(kLogTarget, "draining", {{"in_flight", in_flight()}});
    for (const auto& session : sessions()) {
      session->drain();
    }
  }

  size_t in_flight() {
    size_t count = 0;
    for (const auto& session : sessions()) {
      count += session->in_flight();
    }
    return count;
  }

  size_t unsent() {
    size_t count = 0;
    for (const auto& session : sessions()) {
      count += session->unsent();
    }
    return count;
  }

  void shutdown() {
    if (std::exchange(shut_down_, true)) {
      return;
    }
    const grpc::Status status(grpc::StatusCode::UNAVAILABLE, "the worker is shutting down");
    std::vector<std::shared_ptr<detail::ServerEvents>> event_streams;
    {
      const MutexLock lock(context_.mutex);
      context_.stopping = true;
      event_streams = context_.event_streams;
    }
    for (const auto& session : sessions()) {
      session->end(status);
    }
    for (const auto& stream : event_streams) {
      stream->end(status);
    }
    event_streams.clear();
    if (server_ != nullptr) {
      server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                     gpr_time_from_millis(kShutdownGraceMs, GPR_TIMESPAN)));
    }
    {
      MutexLock lock(context_.mutex);
      while (context_.streams > 0) {
        context_.all_gone.wait(lock);
      }
    }
    server_.reset();
    context_.output_pump.reset();
    context_.events_pump.reset();
  }

 private:
  std::vector<std::shared_ptr<detail::ServerSession>> sessions() {
    const MutexLock lock(context_.mutex);
    return context_.sessions;
  }

  // On the output pump's thread.
  void tick() {
    const engine::LoadReport load = context_.engine.load();
    const bool changed = load_fields(load) != load_fields(last_load_);
    last_load_ = load;
    const TimePoint now = context_.clock.now();
    for (const auto& session : sessions()) {
      session->tick(now);
      if (changed) {
        session->offer_load(load);
      }
    }
  }

  detail::ServerContext context_;
  WorkerService service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
  bool shut_down_ = false;
  engine::LoadReport last_load_;  // the pump's thread only
};

WorkerServer::WorkerServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WorkerServer::~WorkerServer() = default;

Result<std::unique_ptr<WorkerServer>> WorkerServer::start(InstanceRecord record,
                                                          engine::Engine& engine,
                                                          WorkerServerOptions options,
                                                          const Clock& clock, Metrics& metrics) {
  auto impl = std::make_unique<Impl>(std::move(record), engine, std::move(options), clock, metrics);
  STATOR_CHECK(impl->start(), "starting the worker's gRPC service");
  return std::make_unique<WorkerServer>(std::move(impl));
}

uint16_t WorkerServer::port() const {
  return impl_->port();
}
std::string WorkerServer::address() const {
  return impl_->address();
}
void WorkerServer::drain() {
  impl_->drain();
}
size_t WorkerServer::in_flight() const {
  return impl_->in_flight();
}
size_t WorkerServer::unsent() const {
  return impl_->unsent();
}
void WorkerServer::shutdown() {
  impl_->shutdown();
}

}  // namespace stator::runtime
