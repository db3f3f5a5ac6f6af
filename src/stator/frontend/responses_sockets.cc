// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/responses_sockets.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "stator/api/error_body.h"
#include "stator/frontend/answer.h"
#include "stator/json/value.h"
#include "stator/json/writer.h"
#include "stator/net/browser_guard.h"
#include "stator/net/detached_exchange.h"
#include "stator/net/websocket.h"

namespace stator::frontend {
namespace {

constexpr std::string_view kPath = "/v1/responses";
// How often sockets are looked after; idle ones of a server that leaves are closed as soon.
constexpr Duration kSweepInterval = std::chrono::seconds(1);

std::string error_event(int status, const json::Value& error) {
  std::string text;
  json::Writer json(text);
  json.begin_object().key("type").value("error").key("status").value(status);
  json.key("error").raw(json::to_text(error)).end_object();
  return text;
}

std::string error_text(int status, std::string_view message) {
  return error_event(status, json::Value::object({{"type", "invalid_request_error"},
                                                  {"code", nullptr},
                                                  {"message", message},
                                                  {"param", nullptr}}));
}

}  // namespace

/// One client's socket, and the response that it waits for.
class ResponsesSockets::Socket final : public net::WebSocket::Listener,
                                       public net::DetachedExchange::Listener {
 public:
  Socket(ResponsesSockets& service, net::HttpExchange& exchange)
      : service_(service),
        client_(exchange.request()),
        opened_at_(service.environment_.shard.now()),
        looked_at_(opened_at_),
        socket_(exchange, service.environment_.config.http.body_bytes_max, *this) {}
  ~Socket() override { cancel(); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool open() { return socket_.open(); }
  bool over() const { return socket_.over(); }
  void close(net::CloseCode code, std::string_view reason) {
    cancel();
    socket_.close(code, reason);
  }
  void look(TimePoint now, bool leaving) {
    const bool busy = run_ != nullptr && !run_->over();
    if (!busy && (leaving || now - opened_at_ >= kLifeMax)) {
      socket_.close(net::CloseCode::kGoingAway, leaving ? "the server shuts down, connect again"
                                                        : "an hour is over, connect again");
      return on_over();
    }
    if (now - looked_at_ >= kLookInterval) {
      looked_at_ = now;
      socket_.look();
    }
  }

 private:
  void cancel() {
    if (run_ != nullptr) {
      cancelled_ = true;
      run_->cancel();
    }
  }

  // WebSocket::Listener
  void on_text(std::string_view text) override;
  void on_over() override {
    cancel();
    service_.end(*this);
  }

  // DetachedExchange::Listener
  void on_answer(int status, std::span<const net::HttpHeader> /*headers*/) override {
    status_ = status;
  }
  void on_bytes(std::string_view bytes) override;
  void on_end(End end) override;
  void take_events();

  ResponsesSockets& service_;
  const net::HttpRequest client_;
  const TimePoint opened_at_;
  TimePoint looked_at_;
  net::WebSocket socket_;
  std::unique_ptr<net::DetachedExchange> run_;  // the last one
  int status_ = 500;
  std::string received_;  // what is no complete event or body yet
  bool cancelled_ = false;
};

void ResponsesSockets::Socket::on_text(std::string_view text) {
  auto message = json::parse(text);
  if (!message || !message->is_object()) {
    return socket_.send(error_text(400, "a message is a JSON object"));
  }
  if (message->text_at({"type"}) != "response.create") {
    return socket_.send(
        error_text(400, "the only message understood is one of type \"response.create\""));
  }
  if (run_ != nullptr && !run_->over()) {
    return socket_.send(error_text(409,
                                   "a response is under way on this socket: wait for its end, "
                                   "or use another socket"));
  }
  message->erase("type");
  message->erase("background");
  (*message)["stream"] = true;
  net::HttpRequest request("POST", kPath);
  request.add_header("content-type", "application/json");
  for (size_t i = 0; i < client_.header_count(); ++i) {
    const net::HttpHeader header = client_.header_at(i);
    if (header.name.starts_with("x-") || header.name.starts_with("X-") ||
        header.name.starts_with("trace")) {
      request.add_header(header.name, header.value);
    }
  }
  request.set_notes(client_.notes());
  request.mutable_body() = json::to_text(*message);
  received_.clear();
  status_ = 500;
  run_ = std::make_unique<net::DetachedExchange>(service_.environment_.shard, std::move(request),
                                                 *this);
  service_.environment_.handler.on_request(*run_);
}

void ResponsesSockets::Socket::on_bytes(std::string_view bytes) {
  received_ += bytes;
  if (status_ == 200) {
    take_events();
  }
}

void ResponsesSockets::Socket::take_events() {
  constexpr std::string_view kData = "data: ";
  constexpr std::string_view kEnd = "\n\n";
  size_t at = 0;
  for (size_t end = received_.find(kEnd); end != std::string::npos;
       end = received_.find(kEnd, at)) {
    std::string_view event = std::string_view(received_).substr(at, end - at);
    at = end + kEnd.size();
    const size_t data = event.find(kData);  // behind "event: …"
    if (data == std::string_view::npos || (data > 0 && event[data - 1] != '\n')) {
      continue;
    }
    event.remove_prefix(data + kData.size());
    if (event != "[DONE]") {
      socket_.send(event);
    }
  }
  received_.erase(0, at);
}

void ResponsesSockets::Socket::on_end(End end) {
  if (cancelled_) {
    return;
  }
  if (end == End::kBroken) {
    socket_.send(error_text(503, "the answer broke off"));
  } else if (status_ != 200) {
    const auto body = json::parse(received_);
    const json::Value* const error = body ? body->find("error") : nullptr;
    socket_.send(error != nullptr ? error_event(status_, *error)
                                  : error_text(status_, "there is no answer"));
  }
  received_ = std::string();
}

ResponsesSockets::ResponsesSockets(const Environment& environment) : environment_(environment) {}
ResponsesSockets::~ResponsesSockets() = default;

bool ResponsesSockets::answer(net::HttpExchange& exchange) {
  if (exchange.request().path() != kPath || exchange.is_internal() ||
      !net::asks_websocket(exchange)) {
    return false;
  }
  ended_.clear();
  if (sockets_.size() >= kSocketsMax ||
      environment_.stage.load(std::memory_order_relaxed) != Stage::kServing) {
    respond_error(exchange,
                  Error(Code::kOverloaded,
                        "too many WebSockets are open here, or the "
                        "server shuts down: connect again shortly"),
                  {.overload_status = environment_.config.overload_status},
                  environment_.config.retry_after);
    return true;
  }
  // No page of a browser asks before it opens one.
  const FrontendConfig& config = environment_.config;
  if (Status may = net::check_may_change(
          exchange.request(),
          {.cors_origins = config.http.cors_origins, .allowed_hosts = config.http.allowed_hosts});
      !may) {
    respond_error(exchange, std::move(may.error()), {.overload_status = config.overload_status},
                  config.retry_after);
    return true;
  }
  auto socket = std::make_unique<Socket>(*this, exchange);
  if (!socket->open()) {
    return true;
  }
  Socket* const key = socket.get();
  sockets_.emplace(key, std::move(socket));
  schedule();
  return true;
}

void ResponsesSockets::end(Socket& socket) {
  const auto found = sockets_.find(&socket);
  if (found != sockets_.end()) {
    ended_.push_back(std::move(found->second));
    sockets_.erase(found);
    if (!forget_timer_.pending()) {  // what is written down of the socket waits for it
      forget_timer_ = environment_.shard.after(Duration::zero(), [this] { ended_.clear(); });
    }
  }
}

void ResponsesSockets::schedule() {
  if (!sockets_.empty() && !sweep_timer_.pending()) {
    sweep_timer_ = environment_.shard.after(kSweepInterval, [this] { sweep(); });
  }
}

void ResponsesSockets::sweep() {
  ended_.clear();
  const bool leaving = environment_.stage.load(std::memory_order_relaxed) != Stage::kServing;
  const TimePoint now = environment_.shard.now();
  std::vector<Socket*> all;
  for (const auto& [socket, owned] : sockets_) {
    all.push_back(socket);
  }
  for (Socket* const socket : all) {
    if (sockets_.contains(socket)) {
      socket->look(now, leaving);
    }
  }
  schedule();
}

void ResponsesSockets::stop() {
  forget_timer_.cancel();
  sweep_timer_.cancel();
  for (const auto& [socket, owned] : sockets_) {
    socket->close(net::CloseCode::kGoingAway, "the server shuts down, connect again");
  }
  sockets_.clear();
}

}  // namespace stator::frontend
