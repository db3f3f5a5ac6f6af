// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/net/shard.h"
#include "stator/session/connector.h"
#include "stator/session/local_worker.h"
#include "stator/session/test/fake_engine.h"
#include "stator/session/test/session_recorder.h"
#include "stator/session/worker_server.h"

namespace stator::session::test {

enum class Carrier : uint8_t { kInProcess, kGrpc };

inline std::string carrier_name(const testing::TestParamInfo<Carrier>& info) {
  return info.param == Carrier::kInProcess ? "InProcess" : "Grpc";
}

/// A fake engine offered through one carrier, and a shard to talk to it from.
class WorkerHarness {
 public:
  explicit WorkerHarness(Carrier carrier, WorkerServerOptions options = {},
                         GrpcOptions client = {}) {
    record_.key.worker = WorkerId(7);
    record_.incarnation = Incarnation(100);
    record_.address = "local";
    record_.model.name = "demo";
    shards_.start();
    if (carrier == Carrier::kInProcess) {
      local_ =
          std::make_unique<LocalWorker>(record_.key.worker, record_.incarnation, engine_, metrics_);
      connector_ = std::make_unique<LocalConnector>(std::vector{local_.get()}, nullptr, metrics_);
    } else {
      start_server(std::move(options));
      connector_ = std::move(make_grpc_connector(std::move(client), metrics_).value());
    }
  }
  WorkerHarness(const WorkerHarness&) = delete;
  WorkerHarness& operator=(const WorkerHarness&) = delete;
  ~WorkerHarness() {
    stop_worker();
    local_.reset();
    shards_.stop();
  }

  void start_server(WorkerServerOptions options) {
    auto server = WorkerServer::start(record_, engine_, std::move(options), clock_, metrics_);
    ASSERT_TRUE(server.has_value()) << server.error().to_string();
    server_ = std::move(*server);
    record_.address = server_->address();
  }

  std::unique_ptr<WorkerSession> open(SessionEvents& events) {
    std::unique_ptr<WorkerSession> session;
    on_loop([&] { session = connector_->open_session(record_, shard(), events); });
    return session;
  }
  /// Runs on the loop and waits.
  void on_loop(const std::function<void()>& task) {
    ASSERT_TRUE(shard().run_and_wait([&] { task(); }));
  }
  void drop(std::unique_ptr<WorkerSession> session) {
    on_loop([&] { session.reset(); });
  }
  void drain() {
    if (local_ != nullptr) {
      local_->drain();
    } else {
      server_->drain();
    }
  }
  /// The worker goes away for good.
  void stop_worker() {
    if (local_ != nullptr) {
      local_->shutdown();
    }
    server_.reset();
  }

  FakeEngine& engine() { return engine_; }
  net::Shard& shard() { return shards_.shard(0); }
  Connector& connector() { return *connector_; }
  discovery::InstanceRecord& record() { return record_; }
  WorkerServer& server() { return *server_; }
  Metrics& metrics() { return metrics_; }

 private:
  SystemClock clock_;
  Metrics metrics_;
  FakeEngine engine_;
  discovery::InstanceRecord record_;
  net::ShardSet shards_{1, clock_, metrics_};
  std::unique_ptr<LocalWorker> local_;
  std::unique_ptr<WorkerServer> server_;
  std::unique_ptr<Connector> connector_;
};

}  // namespace stator::session::test
