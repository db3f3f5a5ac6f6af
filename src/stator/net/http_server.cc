// SPDX-License-Identifier: Apache-2.0
#include "stator/net/http_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "stator/core/assert.h"
#include "stator/net/detail/acceptor.h"
#include "stator/net/detail/cors_policy.h"
#include "stator/net/detail/http2_connection.h"
#include "stator/net/detail/http_connection.h"
#include "stator/net/detail/server_context.h"
#include "stator/net/detail/shared_server.h"
#include "stator/net/detail/socket.h"
#include "stator/net/detail/transport.h"
#include "stator/net/shard.h"

namespace stator::net {
namespace {

using detail::HttpConnection;
using detail::ServerConnection;
using std::chrono::milliseconds;

constexpr Duration kSweepMin = milliseconds(5);
constexpr Duration kSweepMax = std::chrono::seconds(1);

Duration sweep_period(const HttpServerConfig& config) {
  const Duration shortest = std::min({config.header_timeout, config.body_timeout,
                                      config.idle_timeout, config.slow_client_timeout});
  return std::clamp(shortest / 4, kSweepMin, kSweepMax);
}

/// I1  connections_[i]->position == i for every connection not yet reaped.
/// I2  A connection in context_.dirty or .delayed is in connections_: reap() clears all three.
class Server final : public detail::SharedServer, private TurnHook {
 public:
  Server(Shard& shard, HttpServerConfig config, HttpHandler& handler, Metrics& metrics,
         std::unique_ptr<detail::TlsContext> tls, detail::CorsPolicy cors)
      : shard_(shard),
        context_(shard, std::move(config), handler, metrics, std::move(cors)),
        tls_(std::move(tls)) {
    context_.make_room = [this](const ServerConnection& asker) {
      shed_bodies(asker.held_body().bytes + 1);
    };
    context_.go_on_in_http2 = [this](HttpConnection& from, std::string_view bytes) {
      go_on_in_http2(from, bytes);
    };
  }

  ~Server() override {
    close_all();
    reap();
    close_listeners();
    shard_.remove_turn_hook(*this);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Status start(std::vector<detail::ListenSocket> sockets) {
    for (detail::ListenSocket& socket : sockets) {
      port_ = socket.port;
      STATOR_TRY(auto acceptor,
                 detail::Acceptor::open(
                     shard_, std::move(socket), context_.metrics.accept_backoffs,
                     [this](detail::FileDescriptor fd) { add_connection(std::move(fd)); }));
      acceptors_.push_back(std::move(acceptor));
    }
    shard_.add_turn_hook(TurnPhase::kFlush, *this);
    sweep();
    return {};
  }

  uint16_t port() const override { return port_; }
  void start_accepting() override;
  void send_clients_away() override { context_.send_away = true; }
  void close_listeners() override { acceptors_.clear(); }
  void stop_accepting() override;
  void close_all() override;
  size_t connection_count() const override {
    return connection_count_.load(std::memory_order_relaxed);
  }
  size_t open_exchanges() const override {
    return context_.open_exchanges.load(std::memory_order_relaxed);
  }

 private:
  void add_connection(detail::FileDescriptor fd);
  void reject_connection(const detail::FileDescriptor& fd);
  void go_on_in_http2(HttpConnection& from, std::string_view bytes);
  void sweep();
  void shed_bodies(size_t share_bytes);
  void shed_bodies_for_others();
  void shed_output();
  void flush_delayed();
  void on_turn_end() override;
  void reap();

  Shard& shard_;
  detail::ServerContext context_;
  std::unique_ptr<detail::TlsContext> tls_;  // null for plain HTTP
  std::vector<std::unique_ptr<detail::Acceptor>> acceptors_;
  uint16_t port_ = 0;
  std::vector<std::shared_ptr<ServerConnection>> connections_;
  std::vector<std::shared_ptr<ServerConnection>> replaced_;  // until the loop is back from them
  std::vector<ServerConnection*> flushing_;                  // scratch, kept for its capacity
  std::atomic<size_t> connection_count_{0};
  size_t refusals_seen_ = 0;  // of the budget for bodies, at the last sweep
  Timer sweep_timer_;
  Timer flush_timer_;
};

// ---- accepting

void Server::start_accepting() {
  for (const auto& acceptor : acceptors_) {
    acceptor->start();
  }
}

void Server::add_connection(detail::FileDescriptor fd) {
  if (connections_.size() >= context_.config.connections_max) {
    return reject_connection(fd);
  }
  auto transport =
      tls_ != nullptr ? tls_->accept(fd.get()) : detail::make_plain_transport(fd.get());
  if (transport == nullptr) {
    return;
  }
  auto connection = std::make_shared<HttpConnection>(context_, std::move(fd), std::move(transport));
  // A handshake has the time that headers have; a plain connection may be opened ahead of use.
  if (!connection->start(tls_ != nullptr ? context_.config.header_timeout
                                         : context_.config.idle_timeout)) {
    return;
  }
  connection->position = connections_.size();
  connections_.push_back(std::move(connection));
  connection_count_.store(connections_.size(), std::memory_order_relaxed);
  context_.metrics.connections_open.add(1);
}

/// The client's place in the list stays.
void Server::go_on_in_http2(HttpConnection& from, std::string_view bytes) {
  const size_t position = from.position;
  std::erase(context_.dirty, &from);
  std::erase(context_.delayed, &from);
  HttpConnection::Socket socket = from.hand_over();
  auto connection = std::make_shared<detail::Http2Connection>(context_, std::move(socket.fd),
                                                              std::move(socket.transport));
  connection->position = position;
  replaced_.push_back(std::exchange(connections_[position], connection));
  context_.metrics.http2_connections.add();
  connection->start(bytes);
}

// Best effort and without state: a connection beyond the bound must not cost one.
void Server::reject_connection(const detail::FileDescriptor& fd) {
  context_.metrics.rejected_connections.add();
  if (tls_ != nullptr) {
    return;
  }
  const std::string body = error_body(503, "too many open connections; try again later");
  std::string answer;
  detail::append_head(answer,
                      {.status = 503,
                       .connection = detail::ConnectionHeader::kClose,
                       .date_line = context_.date_line(),
                       .content_type = "application/json",
                       .content_bytes = body.size()},
                      {});
  const auto transport = detail::make_plain_transport(fd.get());
  static_cast<void>(transport->write(answer + body));
  transport->shutdown_write();
  // Input left unread would turn the close into a reset that overtakes the answer.
  static_cast<void>(transport->read(context_.read_buffer));
}

void Server::stop_accepting() {
  for (const auto& acceptor : acceptors_) {
    acceptor->take_waiting();  // who is in the queue has been promised an answer
  }
  close_listeners();
  context_.send_away = true;
  context_.draining = true;
  // By index: what is read now may be answered, and its handler do anything but reap.
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (!connections_[i]->is_closed()) {
      connections_[i]->close_if_idle();
    }
  }
}

void Server::close_all() {
  for (const auto& connection : connections_) {
    if (!connection->is_closed()) {
      connection->close_now(ClientGone::kServerClosed);
    }
  }
}

// ---- deadlines and flushing

void Server::sweep() {
  const TimePoint now = shard_.now();
  // By index: an observer told of a dropped client may make this server do anything but reap.
  for (size_t i = 0; i < connections_.size(); ++i) {
    connections_[i]->check_deadlines(now);
  }
  shed_bodies_for_others();
  shed_output();
  sweep_timer_ = shard_.after(sweep_period(context_.config), [this] { sweep(); });
}

/// Refuses the largest body, if it has at least the fair share and `share_bytes`.
void Server::shed_bodies(size_t share_bytes) {
  std::vector<Holding> holdings(connections_.size());
  std::ranges::transform(connections_, holdings.begin(),
                         [](const auto& connection) { return connection->held_body(); });
  const size_t share = std::max(share_bytes, context_.budgets->bodies.fair_share());
  for (const size_t i : choose_to_shed(holdings, 1, share)) {
    connections_[i]->refuse_for_room();
  }
}

/// Shards cannot take room from each other: each looks whether requests were refused, by whichever,
/// and gives up its largest body for the next ones.
void Server::shed_bodies_for_others() {
  ByteBudget& bodies = context_.budgets->bodies;
  const size_t refusals = bodies.refusals();
  if (refusals != refusals_seen_ && bodies.full()) {
    shed_bodies(0);
  }
  refusals_seen_ = bodies.refusals();
}

/// Drops the clients with the most output until the budget holds again. Those of other shards with
/// more than the fair share go at their next sweep.
void Server::shed_output() {
  ByteBudget& output = context_.budgets->output;
  const size_t excess = output.excess();
  if (excess == 0) {
    return;
  }
  std::vector<Holding> holdings(connections_.size());
  std::ranges::transform(connections_, holdings.begin(), [](const auto& connection) {
    return connection->is_closed() ? Holding{} : connection->held_output();
  });
  for (const size_t i : choose_to_shed(holdings, excess, output.fair_share())) {
    if (!connections_[i]->is_closed()) {
      output.count_refusal();
      connections_[i]->drop_slow_client();
    }
  }
}

void Server::on_turn_end() {
  if (!context_.dirty.empty()) {
    flushing_.swap(context_.dirty);
    for (ServerConnection* connection : flushing_) {
      connection->flush_turn();
    }
    flushing_.clear();
    shed_output();
  }
  if (!context_.delayed.empty() && !flush_timer_.pending()) {
    flush_timer_ = shard_.after(context_.config.stream_flush_interval, [this] { flush_delayed(); });
  }
  reap();
  if (!context_.dirty.empty()) {
    // An observer wrote to another stream: do not sleep on that.
    shard_.defer([] {});
  }
}

void Server::flush_delayed() {
  flushing_.swap(context_.delayed);
  for (ServerConnection* connection : flushing_) {
    connection->flush();
  }
  flushing_.clear();
}

void Server::reap() {
  replaced_.clear();
  if (context_.closed.empty()) {
    return;
  }
  const auto gone = [](const ServerConnection* connection) { return connection->is_closed(); };
  std::erase_if(context_.dirty, gone);
  std::erase_if(context_.delayed, gone);
  for (const ServerConnection* connection : context_.closed) {
    const size_t position = connection->position;
    STATOR_ASSERT(connections_[position].get() == connection, "I1: positions follow the list");
    std::swap(connections_[position], connections_.back());
    connections_[position]->position = position;
    connections_.pop_back();
  }
  context_.metrics.connections_open.add(-static_cast<double>(context_.closed.size()));
  context_.closed.clear();
  connection_count_.store(connections_.size(), std::memory_order_relaxed);
}

}  // namespace

Result<std::unique_ptr<detail::SharedServer>> detail::make_shared_server(
    Shard& shard, HttpServerConfig config, HttpHandler& handler, Metrics& metrics,
    std::vector<ListenSocket> sockets) {
  std::unique_ptr<TlsContext> tls;
  if (!config.tls_cert_path.empty() || !config.tls_key_path.empty() ||
      !config.tls_client_ca_path.empty()) {
    STATOR_TRY(
        tls, TlsContext::load(
                 config.tls_cert_path, config.tls_key_path, config.tls_client_ca_path,
                 config.http2_streams_max > 0 ? TlsContext::Http2::kYes : TlsContext::Http2::kNo));
  }
  STATOR_TRY(auto cors, CorsPolicy::parse(config.cors_origins));
  auto server = std::make_unique<Server>(shard, std::move(config), handler, metrics, std::move(tls),
                                         std::move(cors));
  STATOR_CHECK(server->start(std::move(sockets)));
  return server;
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(Shard& shard, HttpServerConfig config,
                                                       HttpHandler& handler, Metrics& metrics) {
  std::vector<detail::ListenSocket> sockets(1);
  STATOR_TRY(sockets[0], detail::listen_tcp(config.host, config.port,
                                            config.port_use == HttpServerConfig::PortUse::kFirst
                                                ? detail::Sharing::kExclusive
                                                : detail::Sharing::kJoin));
  STATOR_TRY(auto server, detail::make_shared_server(shard, std::move(config), handler, metrics,
                                                     std::move(sockets)));
  server->start_accepting();
  return server;
}

Result<std::vector<std::unique_ptr<HttpServer>>> HttpServer::listen_on_all(
    ShardSet& shards, HttpServerConfig config, std::span<HttpHandler* const> handlers,
    Metrics& metrics) {
  STATOR_ASSERT(handlers.size() == shards.count(), "one handler per shard");
  config.budgets = std::make_shared<HttpBudgets>(config, metrics);
  std::vector<std::unique_ptr<HttpServer>> servers;
  for (uint32_t i = 0; i < shards.count(); ++i) {
    STATOR_TRY(auto server, listen(shards.shard(i), config, *handlers[i], metrics));
    config.port = server->port();
    config.port_use = HttpServerConfig::PortUse::kJoin;
    servers.push_back(std::move(server));
  }
  return servers;
}

}  // namespace stator::net
