// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/batch_runner.h"

#include <fmt/format.h>

#include <utility>

namespace stator::frontend {

struct BatchRunner::Run final : net::DetachedExchange::Listener {
  Run(Running& running_in, net::Shard& shard, net::HttpRequest request, Done done_in)
      : running(running_in), done(std::move(done_in)), exchange(shard, std::move(request), *this) {}

  void on_answer(int status, std::span<const net::HttpHeader> headers) override {
    outcome.status = status;
    for (const net::HttpHeader& header : headers) {
      if (header.name == "x-request-id") {
        outcome.request_id = header.value;
      }
    }
  }
  void on_bytes(std::string_view bytes) override { outcome.body += bytes; }
  void on_end(End end) override {
    if (end == End::kBroken) {
      outcome.status = 503;  // not answered: again
    }
    done(std::move(outcome));
    const auto known = running.runs.find(this);
    running.ended.push_back(std::move(known->second));
    running.runs.erase(known);
  }

  Running& running;
  Done done;
  batches::LineOutcome outcome;
  net::DetachedExchange exchange;
};

BatchRunner::BatchRunner(std::vector<Lane> lanes)
    : lanes_(std::move(lanes)), running_(lanes_.size()) {}
BatchRunner::~BatchRunner() = default;

bool BatchRunner::run(const Call& call, Done done) {
  const size_t lane = next_++ % lanes_.size();
  net::HttpRequest request("POST", call.path);
  request.add_header("content-type", "application/json");
  request.add_header("x-stator-request-priority", fmt::to_string(call.priority));
  if (!call.owner.empty()) {
    request.add_header("x-tenant-id", call.owner);
  }
  request.mutable_body() = call.body;
  return lanes_[lane].shard->post(
      [this, lane, request = std::move(request), done = std::move(done)]() mutable {
        start(lane, std::move(request), std::move(done));
      });
}

void BatchRunner::start(size_t lane, net::HttpRequest request, Done done) {
  Running& running = running_[lane];
  running.ended.clear();
  auto owned =
      std::make_unique<Run>(running, *lanes_[lane].shard, std::move(request), std::move(done));
  Run& run = *owned;
  running.runs.emplace(&run, std::move(owned));
  lanes_[lane].handler->on_request(run.exchange);
}

}  // namespace stator::frontend
