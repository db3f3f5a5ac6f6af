// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/shard_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "stator/core/assert.h"
#include "stator/core/log.h"
#include "stator/frontend/endpoints.h"
#include "stator/frontend/pooling/pool_routes.h"
#include "stator/frontend/request_context.h"
#include "stator/frontend/request_id.h"
#include "stator/frontend/request_record.h"
#include "stator/frontend/responses_sockets.h"
#include "stator/frontend/text_routes.h"
#include "stator/net/client_origin.h"
#include "stator/protocols/routes.h"

namespace stator::frontend {
namespace {

using namespace std::chrono_literals;

// How often quiet and stuck streams are looked for; both limits are tens of seconds.
constexpr Duration kSweepInterval = 1s;
// How often routers' queues look for requests that waited too long.
constexpr Duration kTickInterval = 100ms;

// One constant label for models we do not serve: clients must not be able to make series.
constexpr std::string_view kUnknownModel = "unknown";

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

/// The class of requests that the client wishes (x-dynamo-meta-policy-class).
std::string_view policy_class_of(const GenerationPlan& plan) {
  if (plan.context != nullptr) {
    for (const auto& [name, value] : plan.context->metadata) {
      if (name == "policy-class") {
        return value;
      }
    }
  }
  return {};
}

}  // namespace

ShardService::ShardService(net::Shard& shard, ShardEnvironment environment)
    : shard_(shard),
      environment_(environment),
      metrics_(environment.metrics, environment.config.metrics_prefix),
      course_(environment.metrics, environment.config.metrics_prefix),
      texts_(shard.clock(), environment.metrics, environment.config.metrics_prefix),
      random_(Random::from_entropy()),
      // Unique over shards and, in all likelihood, over restarts: workers key on it.
      next_request_((random_.next() << 24) & 0x001FFFFFFF000000ULL),
      desk_(shard, environment.compute,
            {.config = environment.config,
             .catalog = environment.catalog,
             .encoder = environment.encoder,
             .responses = environment.responses,
             .fetcher = environment.fetcher,
             .media_bytes = environment.media_bytes},
            *this),
      pooling_(shard,
               {.config = environment.config, .metrics = metrics_, .compute = environment.compute},
               *this),
      stored_(shard, {environment.responses, environment.batches}, environment.config),
      kserve_({.shard = shard,
               .config = environment.config,
               .catalog = environment.catalog,
               .stage = environment.stage,
               .handler = *this}),
      sockets_(std::make_unique<ResponsesSockets>(
          ResponsesSockets::Environment{.shard = shard,
                                        .config = environment.config,
                                        .stage = environment.stage,
                                        .handler = *this})),
      copies_(environment.journals == nullptr
                  ? nullptr
                  : std::make_shared<StreamCopies>(*environment.journals, shard, *this)),
      routed_(std::make_shared<RoutedInbox>(shard, *this)) {}

ShardService::~ShardService() {
  STATOR_ASSERT(active_.empty(), "F1: stop() ends every generation before the service goes");
}

void ShardService::start(session::WorkerPoolOptions options, discovery::Discovery& discovery,
                         session::Connector& connector) {
  pool_ = std::make_unique<session::WorkerPool>(
      std::move(options), session::WorkerPool::Wiring{discovery, connector, shard_, *this, *this},
      environment_.metrics);
  schedule_sweep();
  schedule_tick();
}

void ShardService::stop() {
  sweep_timer_.cancel();
  tick_timer_.cancel();
  routed_->close();
  const Error stopping(Code::kUnavailable, "the server is shutting down, retry");
  kserve_.stop();
  sockets_->stop();
  desk_.fail_all(stopping);
  fail_resuming(stopping);
  pooling_.stop(stopping);
  while (!active_.empty()) {
    fail(*active_.begin()->second, stopping.clone());
  }
  stored_.stop();
  if (copies_ != nullptr) {
    copies_->close();
    copies_.reset();
  }
  pool_.reset();
}

void ShardService::on_request(net::HttpExchange& exchange) {
  const net::HttpRequest& request = exchange.request();
  const Entrance* entrance = environment_.entrance;
  if (entrance != nullptr && !exchange.is_internal() &&
      !entrance->admit(exchange, Listener::kPublic, shard_.now())) {
    return;
  }
  if (kserve_.answer(exchange) || sockets_->answer(exchange)) {
    return;
  }
  if (request.method() == "POST") {
    if (const auto route = find_text_route(request.path())) {
      handle_text(exchange, *route);
      return;
    }
  }
  if (stored_.answer(exchange)) {
    return;
  }
  const EndpointContext context{
      .config = environment_.config,
      .catalog = environment_.catalog,
      .receipts = environment_.receipts,
      .metrics = environment_.metrics,
      .wall_now = shard_.clock().wall_now(),
      .stage = environment_.stage.load(std::memory_order_relaxed),
      .client_is_local = request.path().starts_with("/receipts/") && net::client_is_local(exchange),
      .may_see_newest = entrance != nullptr && entrance->knows_callers(),
      .shows_details = entrance == nullptr || entrance->shows_details(request)};
  if (!answer_endpoint(exchange, context)) {
    answer_unknown_route(exchange, error_style(protocols::find_protocol(request.path())));
  }
}

net::BodyRule ShardService::body_rule(const net::HttpRequest& head) const {
  net::BodyRule rule = frontend::body_rule(head, environment_.config);
  return environment_.entrance == nullptr ? rule
                                          : environment_.entrance->body_rule(head, std::move(rule));
}

std::string ShardService::refusal_body(const net::HttpRequest& head, int status,
                                       std::string_view message) const {
  const protocols::Protocol* protocol = protocols::find_protocol(head.path());
  if (protocol == nullptr) {
    return net::error_body(status, message);
  }
  std::string body;
  api::append_error_body(body, {.status = status, .message = message}, error_style(protocol));
  return body;
}

api::ErrorStyle ShardService::error_style(const protocols::Protocol* protocol) const {
  return protocols::style_for(protocol, {.overload_status = environment_.config.overload_status});
}

Status ShardService::admit(const net::HttpRequest& request) const {
  if (environment_.stage.load(std::memory_order_relaxed) == Stage::kStopping) {
    return Error(Code::kUnavailable, "the server is shutting down, retry elsewhere");
  }
  if (active() >= environment_.config.inflight_max) {
    return Error(Code::kOverloaded,
                 "too many requests in flight here (frontend.inflight_max), retry shortly");
  }
  if (!is_json_content_type(request)) {
    return Error(Code::kUnsupportedMedia, "send the body as Content-Type: application/json");
  }
  if (const auto encoding = request.header("content-encoding").value_or("identity");
      encoding != "identity") {
    return Error(Code::kUnsupportedMedia,
                 fmt::format("Content-Encoding: {} is not understood here: send the body as it is",
                             encoding.substr(0, 32)));
  }
  return {};
}

void ShardService::handle_text(net::HttpExchange& exchange, TextRoute route) {
  net::HttpRequest& request = exchange.request();
  std::string request_id = make_request_id(request, random_);
  if (Status admitted = admit(request); !admitted) {
    refuse(exchange, route, request_id, std::move(admitted.error()));
    return;
  }
  if (const auto wrong = check_metadata(request, environment_.config.metadata_header)) {
    refuse_metadata(exchange, route, request_id, *wrong);
    return;
  }
  audit_request(request, request_id);
  auto job = std::make_shared<PrepareJob>();
  job->route = route;
  job->body = request.take_body();
  job->body_lease = exchange.take_body_lease();
  job->http = request;
  job->request_id = std::move(request_id);
  job->wall_now = shard_.clock().wall_now();
  job->received = shard_.clock().now();
  if (copies_ != nullptr && begin_resuming(exchange, job)) {
    return;
  }
  course_.preparing(1);
  desk_.submit(exchange, std::move(job));
}

void ShardService::on_prepared(net::HttpExchange& exchange, PrepareJob& job) {
  course_.preparing(-1);
  course_.prepared(shard_.clock().now() - job.received);
  if (auto* plan = std::get_if<GenerationPlan>(&job.outcome)) {
    net::HttpExchange& out = stored_.place(exchange, plan->answer, job.http);
    run(out, std::move(*plan), job);
  } else if (auto* pool_plan = std::get_if<PoolPlan>(&job.outcome)) {
    pooling_.run(exchange, std::move(*pool_plan), job.received);
  } else if (const auto* body = std::get_if<std::string>(&job.outcome)) {
    exchange.respond(200, kJson, *body, request_id_headers(job.route, job.request_id));
  } else {
    refuse(exchange, job, std::get<api::ApiError>(job.outcome));
  }
}

void ShardService::on_client_left(const PrepareJob& job) {
  course_.preparing(-1);
  metrics_.disconnected_clients.add();
  if (const auto endpoint = endpoint_of(job.route)) {
    // The job may still be with a thread (J1): what it knows of the model is not looked at.
    metrics_.refused(kUnknownModel, *endpoint, false, "cancelled");
  }
}

void ShardService::refuse(net::HttpExchange& exchange, const PrepareJob& job,
                          const api::ApiError& error) {
  if (const auto endpoint = endpoint_of(job.route)) {
    const std::string_view model = job.model.empty() ? kUnknownModel : std::string_view(job.model);
    metrics_.refused(model, *endpoint, job.stream, FrontendMetrics::error_type(error.code()));
  }
  respond_error(exchange, error, error_style(job.route.protocol), environment_.config.retry_after,
                request_id_headers(job.route, job.request_id));
}

void ShardService::refuse(net::HttpExchange& exchange, const TextRoute& route,
                          std::string_view request_id, const api::ApiError& error) {
  note_refusal(exchange.request(), request_id, error.error);
  if (const auto endpoint = endpoint_of(route)) {
    const PeekedRequest peeked = peek_request(exchange.request().body(), environment_.catalog);
    metrics_.refused(peeked.model.empty() ? kUnknownModel : std::string_view(peeked.model),
                     *endpoint, peeked.stream, FrontendMetrics::error_type(error.code()));
  }
  respond_error(exchange, error, error_style(route.protocol), environment_.config.retry_after,
                request_id_headers(route, request_id));
}

void ShardService::run(net::HttpExchange& exchange, GenerationPlan plan, const PrepareJob& job) {
  const FrontendConfig& config = environment_.config;
  plan.migration = {.migrations_max = config.migration_limit,
                    .refusals_max = config.refusals_max,
                    .tokens_max = config.migration_max_seq_len};
  plan.texts = &texts_;
  if (Status allowed = check_quarantine(plan); !allowed) {
    const std::string_view type = FrontendMetrics::error_type(allowed.error().code());
    metrics_.refused(plan.answer.model, plan.answer.label(), plan.answer.stream, type);
    respond_error(exchange, std::move(allowed.error()), plan.answer.error_style, config.retry_after,
                  answer_headers(plan.answer));
    return;
  }
  std::optional<Active::Copy> copy;
  auto gate = open_gate(exchange, plan, job, copy);
  if (gate != nullptr && plan.thinking) {
    plan.ignore_thinking_budget();  // a copy of the journal has what workers wrote, nothing else
  }
  net::HttpExchange& out = gate == nullptr ? exchange : *gate;
  auto owned = std::make_unique<Active>(
      *this, std::move(gate), Generation(std::move(plan), out, job.received, environment_.answers));
  Active& active = *owned;
  active_.emplace(&active, std::move(owned));
  exchange.set_observer(&active);
  active.notes = exchange.request().notes();
  note_plan(active);

  active.series.started.add();
  active.series.inflight.add(1);
  active.series.active.add(1);
  active.series.queued.add(1);
  if (const std::string& adapter = active.generation.plan().adapter; !adapter.empty()) {
    metrics_.adapter(adapter).arrivals.add();
    metrics_.adapter(adapter).active.add(1);
  }
  active.series.input_tokens.observe(active.generation.prompt_tokens());
  for (Choice& choice : active.generation.choices()) {
    choice.id = RequestId(++next_request_);
    choices_.emplace(choice.id, ChoiceRef{&active, choice.index});
  }
  if (copy) {
    begin_copy(active, *copy, job);
  }
  watch_deadline(active);
  if (job.resumed == nullptr || replay(active, job.resumed->journal)) {
    go_on(active);
  }
}

const RequestSeries& ShardService::series_of(const Generation& generation) {
  const AnswerSpec& answer = generation.plan().answer;
  return metrics_.series(answer.model, answer.label(), answer.stream);
}

void ShardService::watch_deadline(Active& active) {
  const auto timeout = active.generation.plan().timeout;
  if (!timeout) {
    return;
  }
  const Duration left = active.generation.received() + *timeout - shard_.now();
  active.deadline = shard_.after(std::max(left, Duration::zero()), [this, &active] {
    fail(active,
         Error(Code::kDeadline, "the request took longer than x-request-timeout-ms allows"));
  });
}

router::RouteRequest ShardService::make_route(const Active& active, const Choice& choice,
                                              const ReplayPrompt& prompt,
                                              std::string_view receipt_id) const {
  const GenerationPlan& plan = active.generation.plan();
  const RoutingWish& wish = plan.routing;
  // Whatever an engine has cached, it computes the last token, and so the block that token is in.
  const std::span<const blocks::SequenceHash> all = prompt.sequences;
  const size_t useful = (std::max<size_t>(prompt.tokens.size(), 1) - 1) / plan.model->block_size;
  router::RouteRequest request{.request_id = receipt_id,
                               .model = plan.model->name,
                               .prompt_tokens = static_cast<uint32_t>(prompt.tokens.size()),
                               .block_size = plan.model->block_size,
                               .sequences = all.first(std::min(useful, all.size())),
                               .tracked = all,
                               .constraints = {.pinned = wish.pinned,
                                               .pinned_rank = wish.pinned_rank,
                                               .allowed = wish.allowed,
                                               .excluded = choice.journal.avoided(),
                                               .required_taints = wish.required_taints,
                                               .preferred_taints = wish.preferred_taints},
                               .prefill_pinned = wish.prefill_pinned,
                               .prefill_pinned_rank = wish.prefill_rank,
                               .override = wish.override,
                               .expected_output_tokens = wish.expected_output_tokens,
                               // What was begun is worth more than what was not.
                               .tier = choice.journal.generated() > 0
                                           ? router::BrownOut::kTierMax
                                           : router::tier_of(wish.strict_priority, plan.priority),
                               .session = wish.session,
                               .media_json = plan.media_json};
  if (choice.terms) {
    request.constraints.required_taints = choice.terms->required_taints;
    request.constraints.preferred_taints = choice.terms->preferred_taints;
    request.override = choice.terms->override;
  }
  return request;
}

Status ShardService::dispatch(Active& active, Choice& choice) {
  const GenerationPlan& plan = active.generation.plan();
  const ReplayPrompt prompt = active.generation.make_replay_prompt(choice);
  const std::string& request_id = plan.answer.request_id;
  const std::string receipt_id =
      choice.index == 0 ? request_id : fmt::format("{}-{}", request_id, choice.index);
  const TimePoint received = active.generation.received();
  router::QueueHints hints{
      .arrival = received,
      .strict_priority = plan.routing.strict_priority,
      .priority_jump = static_cast<double>(plan.priority) + plan.routing.latency_sensitivity,
      .tenant = plan.routing.tenant,
      .tenant_weight = plan.routing.tenant_weight,
      .policy_class = policy_class_of(plan),
      .held_bytes = prompt.tokens.size() * sizeof(TokenId)};
  if (plan.timeout) {
    hints.deadline = received + *plan.timeout;
  }
  while (true) {
    STATOR_TRY(const bool elsewhere, begin_prefill(active, choice, prompt, receipt_id, hints));
    if (elsewhere) {
      return {};
    }
    auto routed = plan.model->router->route_or_wait(
        make_route(active, choice, prompt, receipt_id), hints,
        [inbox = routed_, id = choice.id, attempt = choice.journal.attempt()](
            Result<router::Decision> decision) { inbox->put({id, attempt, std::move(decision)}); });
    if (!routed && choice.course.active()) {
      // Nobody can go on from it now. Perhaps somebody can do everything.
      choice.course.abandon();
      end_handoff(active, choice);
      if (std::exchange(choice.whole_next, true)) {
        return std::move(routed.error());
      }
      continue;
    }
    if (!routed) {
      return std::move(routed.error());
    }
    if (!routed->decision) {
      choice.worker = {};
      choice.ticket = std::move(routed->ticket);
      note(active, choice, telemetry::Step::kQueued);
      return {};
    }
    if (submit(active, choice, std::move(*routed->decision))) {
      return {};
    }
  }
}

/// False when this shard cannot reach the chosen worker: it is as good as absent, though another
/// shard may reach it.
bool ShardService::submit(Active& active, Choice& choice, router::Decision decision) {
  session::WorkerSession* session = pool_->find_session(decision.worker.worker);
  if (session == nullptr) {
    choice.journal.avoid(decision.worker);
    return false;
  }
  choice.worker = decision.worker;
  choice.submitted = shard_.now();
  if (active.generation.plan().dry_run) {
    end_dry_run(active, choice);
    return true;
  }
  engine::EngineRequest request = active.generation.make_engine_request(choice, choice.submitted);
  if (!hand_over(active, choice, request)) {
    return false;
  }
  choice.lease = std::move(decision.lease);
  choice.expected_cached_tokens = decision.overlap_blocks * decision.receipt.block_size;
  choice.accepted = false;
  choice.queue_depth = active.generation.plan().model->router->waiting();
  note(active, choice, telemetry::Step::kRouted, choice.worker.worker,
       choice.expected_cached_tokens);
  add_trace(active, choice, request);
  note(active, choice, telemetry::Step::kSubmitted, choice.worker.worker);
  session->submit(std::move(request));
  return true;
}

/// It is known who would answer. The answer is sent from the loop: callers still look at `active`.
void ShardService::end_dry_run(Active& active, const Choice& choice) {
  active.deadline = shard_.after(Duration::zero(), [this, id = choice.id] {
    const auto known = choices_.find(id);
    if (known == choices_.end()) {
      return;
    }
    Active& asked = *known->second.active;
    asked.generation.finish_choice(known->second.get(), api::FinishReason::kStop, shard_.now());
    end_choice(asked, id);
  });
}

void ShardService::on_routed(RoutedInbox::Arrival arrival) {
  const auto known = choices_.find(arrival.choice);
  if (known == choices_.end()) {
    return;  // given up while this was on its way
  }
  Active& active = *known->second.active;
  Choice& choice = known->second.get();
  if (choice.journal.attempt() != arrival.attempt || !choice.lease.empty()) {
    return;
  }
  choice.ticket = {};
  if (arrival.what == RoutedInbox::For::kPrompt) {
    on_prompt_routed(active, choice, std::move(arrival.decision));
    return;
  }
  if (!arrival.decision) {
    Error cause = arrival.decision.error().clone();
    fail_or_park(active, choice, std::move(cause), std::move(arrival.decision.error()));
    return;
  }
  if (!submit(active, choice, std::move(*arrival.decision))) {
    if (Status sent = dispatch(active, choice); !sent) {
      Error cause = sent.error().clone();
      fail_or_park(active, choice, std::move(cause), std::move(sent.error()));
    }
  }
}

void ShardService::on_step(WorkerId worker, engine::StepOutput output) {
  heard_from(worker);
  for (const engine::Delta& delta : output.deltas) {
    const auto known = choices_.find(delta.key.request);
    if (known != choices_.end()) {
      take(known->second, delta, output);
    } else if (!take_prompt(worker, delta, output)) {
      end_probe(delta.key.request, true);  // or cancelled while this was on its way
    }
  }
  for (engine::Pooled& pooled : output.pooled) {
    const RequestId request = pooled.key.request;
    if (!pooling_.take(worker, std::move(pooled))) {
      end_probe(request, true);
    }
  }
  for (engine::Failure& failure : output.failures) {
    if (pooling_.lose(worker, failure.key, failure.error)) {
      continue;
    }
    const auto known = choices_.find(failure.key.request);
    if (lose_prompt(worker, failure.key, failure.error)) {
      if (failure.error.info().retry != Retry::kNever &&
          failure.error.code() != Code::kOverloaded && failure.error.code() != Code::kDraining) {
        report(worker, WorkOutcome::kFailed);
      }
    } else if (known == choices_.end()) {
      end_probe(failure.key.request, failure.error.info().retry == Retry::kElsewhere);
    } else if (known->second.get().key() == failure.key) {
      lose_failed(known->second, std::move(failure.error));
    }
  }
  if (copies_ != nullptr) {
    copies_->flush();
  }
  shed_answers();
}

/// The choice's output grows, what it wrote leaves when it may.
Progress ShardService::advance(Active& active, Choice& choice, const engine::Delta& delta,
                               const engine::StepOutput& output) {
  if (active.gate == nullptr) {
    return active.generation.on_delta(choice, delta, output, shard_.now());
  }
  const uint32_t known_tokens = choice.journal.generated();
  active.gate->begin_step();
  const Progress progress = active.generation.on_delta(choice, delta, output, shard_.now());
  const bool taken = progress != Progress::kStale && progress != Progress::kBroken;
  active.gate->end_step(taken && copy_step(active, choice, delta, output, known_tokens)
                            ? StreamGate::Copied::kUnderWay
                            : StreamGate::Copied::kNothing);
  return progress;
}

void ShardService::take(ChoiceRef ref, const engine::Delta& delta,
                        const engine::StepOutput& output) {
  Active& active = *ref.active;
  Choice& choice = ref.get();
  const Progress progress = advance(active, choice, delta, output);
  switch (progress) {
    case Progress::kStale:
      metrics_.stale_deltas.add();
      return;
    case Progress::kBroken:
      metrics_.offset_gaps.add();
      cancel_work(choice, session::CancelReason::kSuperseded);
      lose(ref, continuity::Loss::kFailed,
           Error(Code::kUnavailable, "the worker's output is not contiguous, retry"));
      return;
    case Progress::kRunning:
    case Progress::kChoiceDone:
    case Progress::kChoiceDoneCancelEngine:
    case Progress::kThoughtEnough:
      break;
  }
  if (choice.course.active()) {
    choice.prompt_from = choice.course.giver().worker;
    choice.course.on_output();
    end_handoff(active, choice);
    if (choice.prompt_done != TimePoint()) {
      choice.transfer = shard_.now() - std::exchange(choice.prompt_done, {});
      metrics_.prompt_moved(choice.transfer);
    }
  }
  observe(active, choice, delta);
  if (progress == Progress::kThoughtEnough) {
    go_on_without_thinking(active, choice);
    return;
  }
  if (progress == Progress::kChoiceDoneCancelEngine) {
    cancel_work(choice, session::CancelReason::kStopped);
  }
  if (progress != Progress::kRunning) {
    report(choice.worker.worker, WorkOutcome::kServed);
    note_answer(choice);
    end_choice(active, choice.id);
  }
}

void ShardService::end_choice(Active& active, RequestId id) {
  if (const auto known = choices_.find(id); known != choices_.end()) {
    drop_prompt(known->second.get());
    course_.leave(known->second.get().place);
    choices_.erase(known);
  }
  if (active.generation.all_finished()) {
    complete(active);
  }
}

void ShardService::cancel_work(const Choice& choice, session::CancelReason reason) {
  if (pool_ == nullptr) {
    return;
  }
  if (auto* session = pool_->find_session(choice.worker.worker)) {
    session->cancel(choice.key(), reason);
  }
}

void ShardService::observe(Active& active, Choice& choice, const engine::Delta& delta) {
  if (delta.token_count == 0) {
    return;
  }
  const RequestSeries& series = active.series;
  const TimePoint now = shard_.now();
  series.output_tokens.add(delta.token_count);
  if (delta.offset == 0) {
    choice.first_token = now;
    note_first_token(active, choice, delta);
  } else {
    series.inter_token_latency.observe(seconds(now - choice.last_token) / delta.token_count,
                                       delta.token_count);
  }
  if (delta.offset == 0 || choice.lost) {
    note(active, choice, telemetry::Step::kFirstToken, choice.worker.worker, delta.cached_tokens);
  }
  choice.last_token = now;
  end_retry(choice);
  if (choice.lost) {
    note_recovery(active, choice, MigrationOutcome::kSuccess);
  }
  // The lease follows the output into new KV blocks, so later decisions see it.
  choice.lease.add_output_tokens(delta.token_count);
}

void ShardService::on_accepted(WorkerId worker, engine::RequestKey key) {
  heard_from(worker);
  const auto known = choices_.find(key.request);
  if (known != choices_.end() && known->second.get().key() == key) {
    known->second.get().accepted = true;
    course_.accepted(known->second.get().place, shard_.now());
    const auto step = known->second.get().course.on_accepted(shard_.now());
    carry_on(known->second, step,
             Error(Code::kUnavailable, "a prompt was handed over too late, retry"));
  }
}

void ShardService::fail(Active& active, Error error) {
  if (active.gate != nullptr) {
    active.gate->give_up();
    if (active.gate->done()) {
      release(active, "");  // only its copy was not complete
      return;
    }
  }
  const std::string_view type = FrontendMetrics::error_type(error.code());
  if (error.info().log_level >= LogLevel::kError) {
    log::error("frontend", error.message(),
               {{"request_id", active.generation.plan().answer.request_id}});
  }
  active.generation.fail(std::move(error));
  release(active, type);
}

void ShardService::complete(Active& active) {
  if (hand_to_writer(active)) {
    return;
  }
  active.generation.finish(shard_.now());
  if (active.gate != nullptr && !active.gate->done()) {
    return;  // until its copy is complete, or lost
  }
  release(active, "");
}

void ShardService::client_gone(Active& active, net::ClientGone) {
  metrics_.disconnected_clients.add();
  release(active, "cancelled");
}

void ShardService::release(Active& active, std::string_view error_type) {
  Generation& generation = active.generation;
  for (Choice& choice : generation.choices()) {
    drop_prompt(choice);
    if (choices_.erase(choice.id) > 0 && !choice.lease.empty()) {
      cancel_work(choice, session::CancelReason::kClientGone);
    }
    choice.course.abandon();
    end_handoff(active, choice);
    parked_.erase(choice.id);
    end_retry(choice);
    if (choice.lost) {
      note_recovery(
          active, choice,
          error_type == "cancelled" ? MigrationOutcome::kCancelled : MigrationOutcome::kFailure);
    }
  }
  const AnswerSpec& answer = generation.plan().answer;
  const RequestSeries& series = active.series;
  note_end(active, error_type);
  series.inflight.add(-1);
  end_course(active);
  series.output_sequence.observe(generation.output_tokens());
  series.cached_tokens.observe(generation.cached_tokens());
  series.reasoning_tokens.add(generation.reasoning_tokens());
  observe_parser(generation, series);
  metrics_.finished(answer.model, answer.label(), answer.stream, error_type);
  if (active.copy) {
    copied_.erase(active.copy->serial);
  }
  writing_.erase(active.writing);
  active_.erase(&active);
}

void ShardService::schedule_sweep() {
  sweep_timer_ = shard_.after(kSweepInterval, [this] {
    sweep();
    schedule_sweep();
  });
}

void ShardService::schedule_tick() {
  tick_due_ = shard_.clock().now() + kTickInterval;
  tick_timer_ = shard_.after(kTickInterval, [this] {
    course_.loop_was_late(std::max(shard_.clock().now() - tick_due_, Duration::zero()));
    routed_->take();
    environment_.catalog.tick();
    schedule_tick();
  });
}

/// When something last gave a generation reason to hope: attempts and waits for a worker have their
/// own limits.
TimePoint ShardService::last_sign(Active& active) {
  TimePoint sign = active.generation.last_activity();
  for (const Choice& choice : active.generation.choices()) {
    const bool waits = !choice.ticket.empty() || parked_.contains(choice.id);
    sign = std::max(sign, waits ? shard_.now() : choice.submitted);
  }
  return sign;
}

void ShardService::sweep() {
  desk_.sweep();
  pooling_.sweep();
  stored_.sweep();
  collect_written();
  shed_answers();
  const FrontendConfig& config = environment_.config;
  const TimePoint now = shard_.now();
  lose_stalled(now);
  lose_stalled_prompts(now);
  probe_workers(now);
  log_moves(now);
  renew_copies(now);
  std::vector<Active*> stuck;
  for (const auto& [active, owned] : active_) {
    const Duration quiet = now - last_sign(*active);
    if (config.stream_idle_timeout > Duration::zero() && quiet >= config.stream_idle_timeout) {
      stuck.push_back(active);
    } else if (config.keep_alive_interval > Duration::zero()) {
      active->generation.keep_alive(now, config.keep_alive_interval);
    }
  }
  for (Active* active : stuck) {
    fail(*active, Error(Code::kDeadline,
                        "the worker produced no token within "
                        "frontend.stream_idle_timeout"));
  }
}

}  // namespace stator::frontend
