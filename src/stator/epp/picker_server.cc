// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/picker_server.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <string_view>

#include "stator/core/random.h"
#include "stator/epp/picker_metrics.h"
#include "stator/net/grpc_server.h"
#include "stator/net/shard.h"
#include "stator/proto/health/v1/health.pb.h"

namespace stator::epp {
namespace {

namespace health = ::grpc::health::v1;

constexpr int kInvalidArgument = 3;
// Streams of one connection: a gateway holds one for each request, as long as its answer takes.
constexpr uint32_t kStreamsMax = 100'000;
/// One request; its figures are counted when it is chosen, refused, and gone.
class Process final : public net::GrpcCallHandler {
 public:
  Process(std::shared_ptr<net::GrpcServerCall> call, EndpointPool& pool, const StreamConfig& config,
          const Clock& clock, PickerMetrics& metrics, std::string id)
      : call_(std::move(call)),
        stream_(pool, config, std::move(id)),
        clock_(clock),
        metrics_(metrics),
        begin_(clock.now()) {}

  ~Process() override {
    if (model_ == nullptr || !stream_.facts().is_chosen) {
      return;
    }
    const StreamFacts& facts = stream_.facts();
    model_->running.add(-1);
    PickerMetrics::on_end(*model_, {.request_bytes = facts.request_bytes,
                                    .response_bytes = facts.response_bytes,
                                    .usage = facts.usage,
                                    .whole = clock_.now() - begin_,
                                    .first_byte = first_byte_,
                                    .is_answered = facts.is_begun});
  }

  void on_message(std::string_view message) override {
    const TimePoint begin = clock_.now();
    wire::ProcessingRequest request;
    if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      call_->finish({kInvalidArgument, "the message is no ProcessingRequest"});
      return;
    }
    const bool was_begun = stream_.facts().is_begun;
    const StreamAnswer answer = stream_.on_request(request);
    for (const wire::ProcessingResponse& response : answer.responses) {
      call_->send(response.SerializeAsString());
    }
    if (answer.end) {
      call_->finish(*answer.end);
    } else if (!answer.responses.empty()) {
      call_->flush();
    }
    if (!was_begun && stream_.facts().is_begun) {
      first_byte_ = begin - begin_;
    }
    if (model_ == nullptr) {
      count_choice(clock_.now() - begin);
    }
  }

  void on_half_closed() override { call_->finish({}); }
  void on_gone() override {}

 private:
  void count_choice(Duration took) {
    const StreamFacts& facts = stream_.facts();
    if (!facts.is_chosen && facts.refused_with == 0) {
      return;  // its body is still coming
    }
    model_ = &metrics_.of(facts.model, facts.target_model);
    model_->requests.add();
    metrics_.on_attempt(facts.is_chosen);
    if (facts.is_rewritten) {
      metrics_.on_rewritten(*model_);
    }
    if (!facts.is_chosen) {
      metrics_.on_refused(*model_, facts.refused_with);
      return;
    }
    model_->running.add(1);
    metrics_.on_pick(took, facts.hit_ratio);
  }

  std::shared_ptr<net::GrpcServerCall> call_;  // shared with the server
  ExtProcStream stream_;
  const Clock& clock_;
  PickerMetrics& metrics_;
  const TimePoint begin_;
  Duration first_byte_{};
  PickerMetrics::Model* model_ = nullptr;  // null: nothing was decided yet
};

/// Check and Watch: every name is answered, since gateways and kubelets ask for names of their own.
class Health final : public net::GrpcCallHandler {
 public:
  Health(std::shared_ptr<net::GrpcServerCall> call, bool serving, bool is_watch)
      : call_(std::move(call)), serving_(serving), is_watch_(is_watch) {}

  void on_message(std::string_view message) override {
    health::HealthCheckRequest request;
    if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) {
      call_->finish({kInvalidArgument, "the message is no HealthCheckRequest"});
      return;
    }
    // Being alive is something else than being ready.
    const bool good = serving_ || request.service() == "liveness";
    health::HealthCheckResponse response;
    response.set_status(good ? health::HealthCheckResponse::SERVING
                             : health::HealthCheckResponse::NOT_SERVING);
    call_->send(response.SerializeAsString());
    if (is_watch_) {
      call_->flush();
    } else {
      call_->finish({});
    }
  }
  void on_half_closed() override {}
  void on_gone() override {}

 private:
  std::shared_ptr<net::GrpcServerCall> call_;  // shared with the server
  bool serving_;
  bool is_watch_;
};

class PickerServerService final : public PickerServer {
 public:
  PickerServerService(PickerServerConfig config, EndpointPool& pool, const Clock& clock,
                      Metrics& metrics)
      : config_(std::move(config)),
        pool_(pool),
        clock_(clock),
        metrics_(metrics, pool, config_.pool_name) {
    if (config_.in_flight_max > 0) {
      config_.stream.is_full = [this] {
        return pool_.active_requests() >= static_cast<int64_t>(config_.in_flight_max);
      };
    }
  }

  Status open(net::Shard& shard, Metrics& metrics) {
    net::GrpcServer::Methods methods = health_methods();
    methods["/envoy.service.ext_proc.v3.ExternalProcessor/Process"] =
        [this](std::shared_ptr<net::GrpcServerCall> call) {
          const uint64_t number = calls_.fetch_add(1);
          return std::make_shared<Process>(std::move(call), pool_, config_.stream, clock_, metrics_,
                                           fmt::format("epp-{}-{}", prefix_, number));
        };
    net::GrpcServerOptions serving = options(config_.port);
    serving.tls = config_.tls;
    STATOR_TRY(server_, net::GrpcServer::listen(serving, methods, shard, metrics), "--grpc-port");
    if (config_.health_port >= 0) {
      STATOR_TRY(health_,
                 net::GrpcServer::listen(options(static_cast<uint16_t>(config_.health_port)),
                                         health_methods(), shard, metrics),
                 "--grpc-health-port");
    }
    return {};
  }

  uint16_t port() const override { return server_->port(); }
  uint16_t health_port() const override { return health_ == nullptr ? 0 : health_->port(); }
  void drain() override { draining_.store(true); }
  void stop(Duration grace) override {
    server_->stop(grace);
    if (health_ != nullptr) {
      health_->stop({});
    }
  }

 private:
  net::GrpcServerOptions options(uint16_t port) const {
    return {.host = config_.host,
            .port = port,
            .calls_max = kStreamsMax,
            .unfinished_bytes_max = size_t{256} << 20,
            .first_message_timeout = std::chrono::seconds(30),
            .silent_calls_max = kStreamsMax,
            .keepalive_interval = std::chrono::seconds(30)};
  }

  net::GrpcServer::Methods health_methods() {
    const auto start = [this](bool is_watch) {
      return [this, is_watch](std::shared_ptr<net::GrpcServerCall> call) {
        const bool serving = pool_.has_synced() && !draining_.load();
        return std::make_shared<Health>(std::move(call), serving, is_watch);
      };
    };
    net::GrpcServer::Methods methods;
    methods["/grpc.health.v1.Health/Check"] = start(false);
    methods["/grpc.health.v1.Health/Watch"] = start(true);
    return methods;
  }

  PickerServerConfig config_;
  EndpointPool& pool_;
  const Clock& clock_;
  PickerMetrics metrics_;
  const uint64_t prefix_ = Random::from_entropy().below(1ULL << 40);
  std::atomic<uint64_t> calls_{0};
  std::atomic<bool> draining_{false};
  std::unique_ptr<net::GrpcServer> server_;
  std::unique_ptr<net::GrpcServer> health_;
};

}  // namespace

Result<std::unique_ptr<PickerServer>> PickerServer::listen(PickerServerConfig config,
                                                           EndpointPool& pool, net::Shard& shard,
                                                           Metrics& metrics) {
  auto server =
      std::make_unique<PickerServerService>(std::move(config), pool, shard.clock(), metrics);
  STATOR_CHECK(server->open(shard, metrics));
  return server;
}

}  // namespace stator::epp
