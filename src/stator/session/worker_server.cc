// SPDX-License-Identifier: Apache-2.0
#include "stator/session/worker_server.h"

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <tuple>
#include <utility>

#include "stator/core/assert.h"
#include "stator/core/log.h"
#include "stator/net/grpc_callers.h"
#include "stator/net/grpc_server.h"
#include "stator/net/grpc_status.h"
#include "stator/net/grpc_unary.h"
#include "stator/net/loopback.h"
#include "stator/net/shard.h"
#include "stator/proto/worker/v1/worker.pb.h"
#include "stator/session/detail/server_events.h"
#include "stator/session/detail/server_session.h"
#include "stator/session/server_context.h"
#include "stator/session/wire.h"

namespace stator::session {
namespace {

namespace pb = worker::v1;
using net::GrpcServer;
using net::GrpcServerCall;

// For streams to hear why they end before the sockets are closed.
constexpr Duration kShutdownGrace = std::chrono::milliseconds(500);
constexpr Duration kEventsPumpPace = std::chrono::seconds(60);
// Connections beside those with a session or an event stream each.
constexpr size_t kOtherConnectionsMax = 256;
constexpr std::string_view kLogTarget = "session::server";

/// The methods of stator.worker.v1.Worker.
class WorkerService {
 public:
  explicit WorkerService(ServerContext& context)
      : context_(context),
        callers_(context.options.tls, context.metrics.refused_callers),
        record_(context.record) {}

  /// What Describe tells from now on. Any thread.
  void update(const discovery::InstanceRecord& record) {
    const MutexLock lock(record_mutex_);
    record_ = record;
  }

  GrpcServer::Methods methods() {
    GrpcServer::Methods methods;
    const auto serve = [&](const char* name, GrpcServer::Start start) {
      methods[fmt::format("/stator.worker.v1.Worker/{}", name)] =
          [this, start = std::move(start)](
              std::shared_ptr<GrpcServerCall> call) -> std::shared_ptr<net::GrpcCallHandler> {
        return admit(*call) ? start(std::move(call)) : nullptr;
      };
    };
    serve("Session", [this](std::shared_ptr<GrpcServerCall> call) {
      return std::make_shared<detail::ServerSession>(context_, std::move(call));
    });
    serve("Events", [this](std::shared_ptr<GrpcServerCall> call) {
      return std::make_shared<detail::ServerEvents>(context_, std::move(call));
    });
    serve("Describe", unary<pb::DescribeRequest, pb::DescribeResponse>(
                          [this](pb::DescribeResponse& response) { describe(response); }));
    serve("Health", unary<pb::HealthRequest, pb::HealthResponse>(
                        [this](pb::HealthResponse& response) { tell_health(response); }));
    serve("FlushCache",
          unary<pb::FlushCacheRequest, pb::FlushCacheResponse>(
              [this](pb::FlushCacheResponse&) { context_.engine.reset_prefix_cache(); }));
    serve("Operate", net::serve_unary<pb::OperateRequest>(
                         [this](const std::shared_ptr<GrpcServerCall>& call,
                                pb::OperateRequest& request) { operate(call, request); }));
    return methods;
  }

 private:
  template <typename Request, typename Response>
  static GrpcServer::Start unary(std::function<void(Response&)> fill) {
    return net::serve_unary<Request>(
        [fill = std::move(fill)](const std::shared_ptr<GrpcServerCall>& call, Request&) {
          Response response;
          fill(response);
          net::answer_unary(*call, response);
        });
  }

  void describe(pb::DescribeResponse& response) const {
    response.set_worker_id(context_.record.key.worker.value());
    response.set_incarnation(context_.record.incarnation.value());
    const MutexLock lock(record_mutex_);
    response.set_record_json(to_json(record_));
  }

  void tell_health(pb::HealthResponse& response) const {
    response.set_state(context_.draining ? pb::WORKER_STATE_DRAINING : pb::WORKER_STATE_READY);
    wire::encode(context_.engine.load(), *response.mutable_load());
    const MutexLock lock(context_.mutex);
    response.set_sessions(static_cast<uint32_t>(context_.sessions.size()));
  }

  void operate(const std::shared_ptr<GrpcServerCall>& call, pb::OperateRequest& request) const {
    const auto answer = [call](const OperatorReply& reply) {
      pb::OperateResponse response;
      response.set_status(reply.status);
      response.set_message(reply.message);
      for (const std::string& name : reply.adapters) {
        response.add_adapters(name);
      }
      net::answer_unary(*call, response);
    };
    const std::string& peer = call->caller().address;
    if (!context_.options.tls && !net::is_loopback_host(peer.substr(0, peer.rfind(':')))) {
      answer({.status = 403,
              .message =
                  "the worker takes operators' wishes from its own host, or over mutual TLS: "
                  "set rpc.tls_cert_path, rpc.tls_key_path and rpc.tls_ca_cert_path, or ask its "
                  "system port"});
    } else if (context_.options.on_wish == nullptr) {
      answer({.status = 501, .message = "this worker takes no operators' wishes"});
    } else {
      context_.options.on_wish({.method = std::move(*request.mutable_method()),
                                .path = std::move(*request.mutable_path()),
                                .body = std::move(*request.mutable_body())},
                               answer);
    }
  }

  bool admit(GrpcServerCall& call) const {
    const bool admitted = callers_.admit(call);
    if (!admitted) {
      log::warn(kLogTarget, "a caller is not allowed", {{"peer", call.caller().address}});
    }
    return admitted;
  }

  ServerContext& context_;
  const net::GrpcCallers callers_;
  mutable Mutex record_mutex_;
  discovery::InstanceRecord record_ STATOR_GUARDED_BY(record_mutex_);
};

auto load_fields(const engine::LoadReport& load) {
  return std::tuple(load.kv_used_blocks, load.kv_cached_blocks, load.kv_total_blocks, load.running,
                    load.waiting, load.prefix_hit_tokens, load.prefix_query_tokens,
                    load.preemptions);
}

}  // namespace

class WorkerServer::Impl {
 public:
  Impl(discovery::InstanceRecord record, engine::Engine& engine, WorkerServerOptions options,
       const Clock& clock, Metrics& metrics)
      : context_(std::move(record), engine, std::move(options), clock, metrics),
        service_(context_),
        metrics_(metrics),
        shards_(1, loop_clock_, metrics) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { shutdown(); }

  Status start() {
    const WorkerServerOptions& options = context_.options;
    net::GrpcServerOptions wanted{
        .host = options.listen_host,
        .port = options.port,
        .message_bytes_max = wire::kMessageBytesMax,
        .connections_max =
            size_t{options.sessions_max} + options.event_streams_max + kOtherConnectionsMax,
        .message_budget = options.message_budget};
    STATOR_TRY(wanted.tls, net::load_server_tls(options.tls));
    // Streams start with the server, so all they use comes first.
    context_.loop = &loop();
    context_.events_pump =
        std::make_unique<detail::Pump>("worker-events", kEventsPumpPace, nullptr);
    shards_.start();
    auto server = GrpcServer::listen(std::move(wanted), service_.methods(), loop(), metrics_);
    if (!server) {
      return Error(Code::kIo,
                   fmt::format("the worker cannot listen on {}:{}: the address is in use, "
                               "not of this machine, or not permitted",
                               options.listen_host, options.port));
    }
    server_ = std::move(*server);
    run_on_loop([this] { tick(); });
    return {};
  }

  void update(const discovery::InstanceRecord& record) { service_.update(record); }
  uint16_t port() const { return server_->port(); }
  std::string address() const { return fmt::format("{}:{}", context_.options.listen_host, port()); }

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
    const net::GrpcOutcome outcome{net::kGrpcUnavailable, "the worker is shutting down"};
    std::vector<std::shared_ptr<detail::ServerEvents>> event_streams;
    {
      const MutexLock lock(context_.mutex);
      context_.stopping = true;
      event_streams = context_.event_streams;
    }
    for (const auto& session : sessions()) {
      session->end(outcome);
    }
    for (const auto& stream : event_streams) {
      stream->end(outcome);
    }
    event_streams.clear();
    if (server_ != nullptr) {
      server_->stop(kShutdownGrace);  // then nobody has a stream any more
    }
    run_on_loop([this] { tick_timer_.cancel(); });
    context_.events_pump.reset();
    shards_.stop();
  }

 private:
  std::vector<std::shared_ptr<detail::ServerSession>> sessions() {
    const MutexLock lock(context_.mutex);
    return context_.sessions;
  }

  net::Shard& loop() { return shards_.shard(0); }
  template <typename Task>
  void run_on_loop(const Task& task) {
    STATOR_ASSERT(loop().run_and_wait([&task] { task(); }), "set-up and tear-down fit the inbox");
  }

  // On the loop.
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
    tick_timer_ = loop().after(context_.options.load_interval, [this] { tick(); });
  }

  ServerContext context_;
  WorkerService service_;
  Metrics& metrics_;
  SystemClock loop_clock_;  // only paces the loop
  net::ShardSet shards_;
  std::unique_ptr<GrpcServer> server_;
  bool shut_down_ = false;
  engine::LoadReport last_load_;  // the loop's
  net::Timer tick_timer_;         // the loop's
};

WorkerServer::WorkerServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WorkerServer::~WorkerServer() = default;

Result<std::unique_ptr<WorkerServer>> WorkerServer::start(discovery::InstanceRecord record,
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
void WorkerServer::update(const discovery::InstanceRecord& record) {
  impl_->update(record);
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

}  // namespace stator::session
