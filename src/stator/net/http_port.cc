// SPDX-License-Identifier: Apache-2.0
#include "stator/net/http_port.h"

#include <utility>

#include "stator/core/assert.h"
#include "stator/net/detail/shared_server.h"
#include "stator/net/shard.h"

namespace stator::net {
namespace {

void run_on(Shard& shard, Task task) {
  STATOR_ASSERT(shard.run_and_wait(std::move(task)), "set-up and tear-down fit the inbox");
}

}  // namespace

Result<std::unique_ptr<HttpPort>> HttpPort::open(ShardSet& shards, const HttpServerConfig& config,
                                                 std::span<HttpHandler* const> handlers,
                                                 Metrics& metrics, PortJoin join) {
  STATOR_ASSERT(handlers.size() == shards.count(), "one handler per shard");
  STATOR_TRY(auto line, SharedPort::open({.host = config.host,
                                          .port = config.port,
                                          .sockets = shards.count(),
                                          .join = join == PortJoin::kYes},
                                         metrics));
  auto port = std::unique_ptr<HttpPort>(new HttpPort(shards, std::move(line)));
  HttpServerConfig shared = config;
  shared.budgets = std::make_shared<HttpBudgets>(config, metrics);
  for (uint32_t i = 0; i < shards.count(); ++i) {
    STATOR_TRY(auto sockets, port->line_->sockets_of(i, shards.count()));
    STATOR_TRY(auto server, detail::make_shared_server(shards.shard(i), shared, *handlers[i],
                                                       metrics, std::move(sockets)));
    port->servers_.push_back(std::move(server));
  }
  return port;
}

HttpPort::HttpPort(ShardSet& shards, std::unique_ptr<SharedPort> line)
    : shards_(shards), line_(std::move(line)) {}

HttpPort::~HttpPort() {
  close();
}

template <typename Task>
void HttpPort::on_each(const Task& task) {
  for (uint32_t i = 0; i < servers_.size(); ++i) {
    run_on(shards_.shard(i), [&task, &server = servers_[i]] { task(server); });
  }
}

void HttpPort::leave_line() {
  run_on(shards_.shard(0), [this] { line_->leave(); });
}

void HttpPort::start() {
  run_on(shards_.shard(0), [this] { line_->attach(shards_.shard(0)); });
  if (!joined()) {
    accept();
  }
}

void HttpPort::accept() {
  on_each([](auto& server) { server->start_accepting(); });
  run_on(shards_.shard(0), [this] { line_->announce_accepting(); });
}

bool HttpPort::leave() {
  const bool handed_over = others_accept();
  if (handed_over) {
    leave_line();
  }
  on_each([handed_over](auto& server) {
    server->send_clients_away();
    if (handed_over) {
      server->close_listeners();
    }
  });
  return handed_over;
}

void HttpPort::drain() {
  leave_line();
  on_each([](auto& server) { server->stop_accepting(); });
}

void HttpPort::close() {
  leave_line();
  on_each([](auto& server) {
    server->close_all();
    server.reset();
  });
  servers_.clear();
}

size_t HttpPort::connections() const {
  size_t total = 0;
  for (const auto& server : servers_) {
    total += server->connection_count();
  }
  return total;
}

size_t HttpPort::open_exchanges() const {
  size_t total = 0;
  for (const auto& server : servers_) {
    total += server->open_exchanges();
  }
  return total;
}

}  // namespace stator::net
