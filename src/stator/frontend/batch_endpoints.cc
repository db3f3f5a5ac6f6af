// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/batch_endpoints.h"

#include <utility>
#include <vector>

#include "stator/frontend/answer.h"
#include "stator/frontend/stored_responses.h"
#include "stator/net/browser_guard.h"

namespace stator::frontend {

void BatchEndpoints::refuse(net::HttpExchange& exchange, const api::ApiError& error) {
  respond_error(exchange, error, {.overload_status = config_.overload_status}, config_.retry_after);
}

bool BatchEndpoints::answer(net::HttpExchange& exchange) {
  net::HttpRequest& request = exchange.request();
  if (!batches::is_batch_path(request.path()) ||
      !batches::methods_of(request.path()).contains(request.method())) {
    return false;
  }
  if (service_ == nullptr) {
    refuse(exchange, Error(Code::kNotFound,
                           "files and batches need a folder: start the server with "
                           "--batches-folder DIR (STATOR_BATCHES_FOLDER)"));
    return true;
  }
  if (request.method() != "GET") {
    if (Status may = net::check_may_change(request, {.cors_origins = config_.http.cors_origins,
                                                     .allowed_hosts = config_.http.allowed_hosts});
        !may) {
      refuse(exchange, std::move(may.error()));
      return true;
    }
  }
  const uint64_t id = ++last_id_;
  auto waiting = std::make_unique<Waiting>();
  waiting->owner = this;
  waiting->id = id;
  waiting->exchange = &exchange;
  waiting->outcome = std::make_shared<Outcome>();
  waiting->body_lease = exchange.take_body_lease();
  batches::ApiCall call{.method = std::string(request.method()),
                        .path = std::string(request.path()),
                        .query = std::string(request.query()),
                        .content_type = std::string(request.header("content-type").value_or("")),
                        .body = request.take_body(),
                        .owner = owner_of(request, config_)};
  const bool taken = service_->ask(std::move(call), [this, id, outcome = waiting->outcome](
                                                        api::ApiResult<batches::ApiReply> reply) {
    outcome->reply = std::move(reply);
    outcome->done.store(true, std::memory_order_release);
    // A message that a full inbox refuses is made up for by sweep().
    static_cast<void>(shard_.post([this, id] { collect(id); }));
  });
  if (!taken) {
    refuse(exchange, Error(Code::kOverloaded, "too many calls about files and batches wait"));
    return true;
  }
  exchange.set_observer(waiting.get());
  waiting_.emplace(id, std::move(waiting));
  return true;
}

void BatchEndpoints::collect(uint64_t id) {
  const auto known = waiting_.find(id);
  if (known == waiting_.end()) {
    return;  // its client left
  }
  const std::unique_ptr<Waiting> waiting = std::move(known->second);
  waiting_.erase(known);
  net::HttpExchange& exchange = *waiting->exchange;
  exchange.set_observer(nullptr);
  api::ApiResult<batches::ApiReply>& reply = *waiting->outcome->reply;
  if (reply) {
    exchange.respond_with(200, reply->content_type, std::move(reply->body));
  } else {
    refuse(exchange, reply.error());
  }
}

void BatchEndpoints::sweep() {
  std::vector<uint64_t> done;
  for (const auto& [id, waiting] : waiting_) {
    if (waiting->outcome->done.load(std::memory_order_acquire)) {
      done.push_back(id);
    }
  }
  for (const uint64_t id : done) {
    collect(id);
  }
}

void BatchEndpoints::stop() {
  sweep();
  for (auto& [id, waiting] : waiting_) {
    waiting->exchange->set_observer(nullptr);
    refuse(*waiting->exchange, Error(Code::kUnavailable, "the server is shutting down, retry"));
  }
  waiting_.clear();
}

}  // namespace stator::frontend
