// SPDX-License-Identifier: Apache-2.0
#include "stator/net/grpc_server.h"

#include <condition_variable>
#include <utility>

#include "stator/core/assert.h"
#include "stator/core/mutex.h"
#include "stator/net/detail/acceptor.h"
#include "stator/net/detail/grpc_server_connection.h"
#include "stator/net/detail/socket.h"
#include "stator/net/shard.h"

namespace stator::net {
namespace {

using detail::GrpcServerConnection;

class Server final : public GrpcServer {
 public:
  Server(GrpcServerOptions options, Methods methods, Shard& shard, Metrics& metrics)
      : context_{shard,
                 std::move(options),
                 std::move(methods),
                 detail::GrpcServerMetrics(metrics),
                 [this](GrpcServerConnection& connection) { forget(connection); },
                 nullptr,
                 {}} {
    context_.budget = context_.options.message_budget;
    if (context_.budget == nullptr) {
      context_.budget = std::make_shared<ByteBudget>("grpc_messages",
                                                     GrpcServerOptions::kServerBytesMax, metrics);
    }
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() override { stop(Duration::zero()); }

  Status start() {
    STATOR_TRY(const std::string host, detail::find_own_address(context_.options.host));
    STATOR_TRY(auto socket,
               detail::listen_tcp(host, context_.options.port, detail::Sharing::kExclusive));
    port_ = socket.port;
    Status opened;
    on_loop([&] {
      auto acceptor = detail::Acceptor::open(
          context_.shard, std::move(socket), context_.metrics.accept_backoffs,
          [this](detail::FileDescriptor fd) { take(std::move(fd)); });
      if (!acceptor) {
        opened = std::move(acceptor.error());
        return;
      }
      acceptor_ = std::move(*acceptor);
      acceptor_->start();
    });
    return opened;
  }

  uint16_t port() const override { return port_; }

  void stop(Duration grace) override {
    on_loop([this] {
      acceptor_.reset();
      for (const auto& connection : connections()) {
        connection->go_away();
      }
    });
    {
      MutexLock lock(mutex_);
      const SystemClock clock;  // only paces this thread
      const TimePoint until = clock.now() + grace;
      while (!connections_.empty() && clock.now() < until) {
        none_left_.wait_for(lock, until - clock.now());
      }
    }
    on_loop([this] {
      for (const auto& connection : connections()) {
        connection->close();
      }
    });
  }

 private:
  template <typename Task>
  void on_loop(const Task& task) {
    STATOR_ASSERT(context_.shard.run_and_wait([&task] { task(); }),
                  "set-up and tear-down fit the inbox");
  }
  std::vector<std::shared_ptr<GrpcServerConnection>> connections() {
    const MutexLock lock(mutex_);
    std::vector<std::shared_ptr<GrpcServerConnection>> all;
    for (const auto& [key, connection] : connections_) {
      all.push_back(connection);
    }
    return all;
  }

  void take(detail::FileDescriptor fd) {
    {
      const MutexLock lock(mutex_);
      if (connections_.size() >= context_.options.connections_max) {
        context_.metrics.refused_connections.add();
        return;
      }
    }
    auto connection = GrpcServerConnection::open(context_, std::move(fd));
    if (connection == nullptr) {
      return;
    }
    {
      const MutexLock lock(mutex_);
      connections_.emplace(connection.get(), connection);
    }
    context_.metrics.connections_open.add(1);
    connection->start();
  }

  void forget(GrpcServerConnection& connection) {
    context_.metrics.connections_open.add(-1);
    const MutexLock lock(mutex_);
    connections_.erase(&connection);
    if (connections_.empty()) {
      none_left_.notify_all();
    }
  }

  detail::GrpcServerContext context_;
  std::unique_ptr<detail::Acceptor> acceptor_;  // null once stopped; loop only
  uint16_t port_ = 0;
  Mutex mutex_;
  std::condition_variable_any none_left_;
  std::map<GrpcServerConnection*, std::shared_ptr<GrpcServerConnection>> connections_
      STATOR_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<GrpcServer>> GrpcServer::listen(GrpcServerOptions options, Methods methods,
                                                       Shard& shard, Metrics& metrics) {
  auto server = std::make_unique<Server>(std::move(options), std::move(methods), shard, metrics);
  STATOR_CHECK(server->start());
  return server;
}

}  // namespace stator::net
