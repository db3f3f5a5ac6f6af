// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/pooling/pool_service.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <utility>

#include "stator/core/log.h"
#include "stator/frontend/answer.h"
#include "stator/frontend/pooling/pool_routes.h"
#include "stator/frontend/request_reporter.h"
#include "stator/router/router_service.h"

namespace stator::frontend {
namespace {

// Larger bodies are written by the compute pool: about a quarter of a millisecond on the loop.
constexpr size_t kInlineBytesMax = size_t{64} << 10;

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

/// A body that the compute pool writes. Shared with its task.
struct PoolService::Writing {
  std::optional<api::ApiResult<PoolBody>> body;
  std::atomic<bool> done{false};
};

struct PoolService::Run final : net::ExchangeObserver {
  Run(PoolService& service_in, net::HttpExchange& exchange_in, PoolPlan plan_in,
      TimePoint received_in)
      : service(service_in),
        exchange(exchange_in),
        plan(std::make_shared<PoolPlan>(std::move(plan_in))),
        received(received_in),
        notes(exchange_in.request().notes()),
        answers(plan->parts.size()),
        ids(plan->parts.size()),
        attempts(plan->parts.size()),
        open(plan->parts.size()) {}
  void on_client_gone(net::ClientGone) override { service.client_gone(*this); }

  PoolService& service;
  net::HttpExchange& exchange;
  const std::shared_ptr<PoolPlan> plan;  // shared with the task that writes the body
  const TimePoint received;
  const std::shared_ptr<net::RequestNotes> notes;  // until it ends, whoever else has them
  std::vector<inference::PoolAnswer> answers;      // by part
  std::vector<RequestId> ids;      // by part, in parts_; those that are not there are void
  std::vector<uint32_t> attempts;  // by part
  std::vector<WorkerKey> avoided;  // by all parts: they failed one of them
  size_t open;                     // parts without an answer
  net::Timer deadline;
  std::shared_ptr<Writing> writing;  // shared with the compute pool's task
  const RequestSeries* series = nullptr;
};

PoolService::PoolService(net::Shard& shard, Environment environment, PoolHost& host)
    : shard_(shard), environment_(environment), host_(host) {}

PoolService::~PoolService() = default;

void PoolService::run(net::HttpExchange& exchange, PoolPlan plan, TimePoint received) {
  auto owned = std::make_unique<Run>(*this, exchange, std::move(plan), received);
  Run& run = *owned;
  runs_.emplace(&run, std::move(owned));
  exchange.set_observer(&run);
  run.series = &environment_.metrics.series(
      run.plan->model->name, EndpointLabel(endpoint_label(run.plan->call.kind)), false);
  note_pool_plan(exchange.request(), *run.plan, shard_.now());
  run.series->started.add();
  run.series->inflight.add(1);
  run.series->input_tokens.observe(run.plan->prompt_tokens);
  if (run.plan->timeout) {
    const Duration left = received + *run.plan->timeout - shard_.now();
    run.deadline = shard_.after(std::max(left, Duration::zero()), [this, &run] {
      fail(run, Error(Code::kDeadline, "the request took longer than x-request-timeout-ms allows"));
    });
  }
  for (size_t i = 0; i < run.plan->parts.size(); ++i) {
    if (Status sent = dispatch(run, i); !sent) {
      fail(run, std::move(sent.error()));
      return;
    }
  }
}

Status PoolService::dispatch(Run& run, size_t index) {
  const PoolPlan& plan = *run.plan;
  const PoolPart& part = plan.parts[index];
  std::array<std::string, 1> taints;
  if (!plan.adapter.empty()) {
    taints[0] = adapter_taint(plan.adapter);
  }
  while (true) {
    auto decision = plan.model->router->route(
        {.request_id = plan.request_id,
         .model = plan.model->name,
         .prompt_tokens = static_cast<uint32_t>(part.tokens.size()),
         .block_size = plan.model->block_size,
         .sequences = {},
         .constraints = {.excluded = run.avoided,
                         .required_taints = std::span<const std::string>(taints).first(
                             plan.adapter.empty() ? 0 : 1)},
         .expected_output_tokens = 1,
         .tier = router::tier_of(0, plan.priority),
         .holds_blocks = false});
    if (!decision) {
      return std::move(decision.error());
    }
    session::WorkerSession* const session = host_.find_session(decision->worker.worker);
    if (session == nullptr) {
      run.avoided.push_back(decision->worker);
      continue;
    }
    const RequestId id = host_.next_request();
    run.ids[index] = id;
    parts_.emplace(id, Part{.run = &run,
                            .index = index,
                            .worker = decision->worker,
                            .lease = std::move(decision->lease),
                            .asked = shard_.now()});
    inference::EngineRequest request{.key = {id, Attempt(0)},
                                     .tokens = part.tokens,
                                     .priority = plan.priority,
                                     .lora_name = plan.adapter,
                                     .pool = part.pool};
    if (plan.timeout) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          run.received + *plan.timeout - shard_.now());
      request.deadline_ms = static_cast<uint32_t>(std::max<int64_t>(left.count(), 1));
    }
    note_pool_part(run.notes.get(), decision->worker, shard_.now(), request);
    session->submit(std::move(request));
    return {};
  }
}

bool PoolService::take(WorkerId worker, inference::Pooled pooled) {
  const auto known = parts_.find(pooled.key.request);
  if (known == parts_.end()) {
    return false;
  }
  Run& run = *known->second.run;
  run.answers[known->second.index] = std::move(pooled.answer);
  parts_.erase(known);
  host_.report_outcome(worker, WorkOutcome::kServed);
  size_t numbers = 0;
  for (const inference::PoolAnswer& answer : run.answers) {
    numbers += answer.values.size();
  }
  if (numbers > kPoolNumbersMax) {
    fail(run, Error(Code::kInvalidArgument,
                    fmt::format("the answer would have more than {} numbers: divide the request",
                                kPoolNumbersMax)));
  } else if (--run.open == 0) {
    finish(run);
  }
  return true;
}

bool PoolService::lose(WorkerId worker, inference::RequestKey key, const Error& error) {
  const auto known = parts_.find(key.request);
  if (known == parts_.end()) {
    return false;
  }
  Part part = std::move(known->second);
  parts_.erase(known);
  if (error.info().retry == Retry::kNever) {
    if (error.info().log_level == LogLevel::kError) {
      host_.report_outcome(worker, WorkOutcome::kFailed);
    }
    // What an engine cannot do is the request's fault: a 501 makes clients try again.
    const bool cannot = error.code() == Code::kUnsupported;
    fail(*part.run, error.clone().with_code(cannot ? Code::kInvalidArgument : error.code()));
    return true;
  }
  retry(std::move(part), error);
  return true;
}

/// At another worker, unless too many have been asked.
void PoolService::retry(Part part, const Error& error) {
  Run& run = *part.run;
  part.lease = {};
  run.avoided.push_back(part.worker);
  environment_.metrics.retried_requests.add();
  if (++run.attempts[part.index] > environment_.config.migration_limit) {
    fail(run, error.clone());
    return;
  }
  if (Status sent = dispatch(run, part.index); !sent) {
    fail(run, error.clone());  // what happened, not that nobody is left
  }
}

void PoolService::lose_worker(WorkerId worker, const Error& error) {
  std::vector<RequestId> lost;
  for (const auto& [id, part] : parts_) {
    if (part.worker.worker == worker) {
      lost.push_back(id);
    }
  }
  std::ranges::sort(lost);  // equal runs move equally
  for (const RequestId id : lost) {
    lose(worker, {id, Attempt(0)},
         error.clone().with_context(fmt::format("worker {} was lost, retry", worker.value())));
  }
}

void PoolService::finish(Run& run) {
  const PoolPlan& plan = *run.plan;
  const size_t bytes = pool_body_bytes(plan, run.answers);
  if (bytes <= kInlineBytesMax) {
    auto body = make_pool_body(plan, std::move(run.answers));
    respond(run, body);
    return;
  }
  run.writing = std::make_shared<Writing>();
  auto answers = std::make_shared<std::vector<inference::PoolAnswer>>(std::move(run.answers));
  Status taken = environment_.compute.submit(
      {.bytes = bytes, .run = [this, at = &run, plan = run.plan, answers, writing = run.writing] {
         writing->body = make_pool_body(*plan, std::move(*answers));
         writing->done.store(true, std::memory_order_release);
         // A message that a full inbox refuses is made up for by sweep().
         static_cast<void>(shard_.post([this, at] { on_written(at); }));
       }});
  if (!taken) {
    fail(run, std::move(taken.error()));
  }
}

void PoolService::on_written(Run* run) {
  const auto known = runs_.find(run);
  if (known == runs_.end() || run->writing == nullptr ||
      !run->writing->done.load(std::memory_order_acquire)) {
    return;  // the client left, or the request failed
  }
  const auto writing = std::move(run->writing);
  respond(*run, *writing->body);
}

void PoolService::respond(Run& run, api::ApiResult<PoolBody>& body) {
  if (!body) {
    const std::string_view type = FrontendMetrics::error_type(body.error().code());
    respond_error(run.exchange, body.error(),
                  {.overload_status = environment_.config.overload_status},
                  environment_.config.retry_after);
    end(run, type);
    return;
  }
  const PoolPlan& plan = *run.plan;
  std::vector<net::HttpHeader> headers = {{"x-request-id", plan.request_id_echo}};
  const std::string ignored = fmt::format("{}", fmt::join(plan.call.ignored_fields, ","));
  if (!ignored.empty()) {
    headers.push_back({"x-stator-ignored-fields", ignored});
  }
  if (!body->metadata.empty()) {
    headers.push_back({"metadata", body->metadata});
  }
  run.exchange.respond_with(200, body->content_type, std::move(body->text), headers);
  environment_.metrics.embedded(plan.model->name, shard_.now() - run.received);
  end(run, "");
}

void PoolService::fail(Run& run, Error error) {
  const std::string_view type = FrontendMetrics::error_type(error.code());
  if (error.info().log_level >= LogLevel::kError) {
    log::error("frontend", error.message(), {{"request_id", run.plan->request_id}});
  }
  respond_error(run.exchange, std::move(error),
                {.overload_status = environment_.config.overload_status},
                environment_.config.retry_after);
  end(run, type);
}

void PoolService::client_gone(Run& run) {
  environment_.metrics.disconnected_clients.add();
  end(run, "cancelled");
}

void PoolService::end(Run& run, std::string_view error_type) {
  for (const RequestId id : run.ids) {
    const auto known = parts_.find(id);
    if (known == parts_.end()) {
      continue;
    }
    if (auto* session = host_.find_session(known->second.worker.worker)) {
      session->cancel({id, Attempt(0)}, session::CancelReason::kClientGone);
    }
    parts_.erase(known);
  }
  note_pool_end(run.notes.get(), error_type);
  run.series->inflight.add(-1);
  run.series->duration.observe(seconds(shard_.now() - run.received));
  environment_.metrics.finished(
      run.plan->model->name, EndpointLabel(endpoint_label(run.plan->call.kind)), false, error_type);
  runs_.erase(&run);
}

void PoolService::sweep() {
  std::vector<Run*> written;
  for (const auto& [run, owned] : runs_) {
    if (run->writing != nullptr && run->writing->done.load(std::memory_order_acquire)) {
      written.push_back(run);
    }
  }
  for (Run* run : written) {
    on_written(run);
  }
  const Duration patience = environment_.config.stream_idle_timeout;
  if (patience <= Duration::zero()) {
    return;
  }
  std::vector<std::pair<RequestId, WorkerId>> late;
  for (const auto& [id, part] : parts_) {
    if (shard_.now() - part.asked >= patience) {
      late.emplace_back(id, part.worker.worker);
    }
  }
  for (const auto& [id, worker] : late) {
    if (auto* session = host_.find_session(worker); session != nullptr && parts_.contains(id)) {
      session->cancel({id, Attempt(0)}, session::CancelReason::kSuperseded);
      host_.report_outcome(worker, WorkOutcome::kHung);
    }
    lose(
        worker, {id, Attempt(0)},
        Error(Code::kUnavailable, "the worker did not answer within frontend.stream_idle_timeout"));
  }
}

void PoolService::stop(const Error& error) {
  while (!runs_.empty()) {
    fail(*runs_.begin()->second, error.clone());
  }
}

}  // namespace stator::frontend
