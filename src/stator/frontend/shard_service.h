// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/continuity/journal_hub.h"
#include "stator/core/flat_map.h"
#include "stator/core/random.h"
#include "stator/frontend/endpoints.h"
#include "stator/frontend/entrance.h"
#include "stator/frontend/event_lines.h"
#include "stator/frontend/fleet_service.h"
#include "stator/frontend/frontend_config.h"
#include "stator/frontend/frontend_metrics.h"
#include "stator/frontend/generation.h"
#include "stator/frontend/kserve/kserve_service.h"
#include "stator/frontend/model_catalog.h"
#include "stator/frontend/pooling/pool_service.h"
#include "stator/frontend/preparation_desk.h"
#include "stator/frontend/prompt_encoder.h"
#include "stator/frontend/routed_inbox.h"
#include "stator/frontend/stored_work.h"
#include "stator/frontend/stream_copies.h"
#include "stator/frontend/stream_gate.h"
#include "stator/frontend/worker_gauges.h"
#include "stator/net/compute_pool.h"
#include "stator/net/http_server.h"
#include "stator/net/shard.h"
#include "stator/router/receipt.h"
#include "stator/session/worker_pool.h"
#include "stator/session/worker_session.h"
#include "stator/telemetry/request_facts.h"

namespace stator::frontend {

class ResponsesSockets;

/// What one shard's frontend needs from the process; all outlive it.
struct ShardEnvironment {
  const FrontendConfig& config;
  ModelCatalog& catalog;
  router::ReceiptLog& receipts;
  Metrics& metrics;
  const PromptEncoder& encoder;
  net::ComputePool& compute;
  const std::atomic<Stage>& stage;
  FleetService& fleet;
  continuity::JournalHub* journals = nullptr;     ///< null: streams end with this process
  net::ByteBudget* answers = nullptr;             ///< of answers being collected; null: unbounded
  const Entrance* entrance = nullptr;             ///< null: everybody may everything
  responses::ResponseStore* responses = nullptr;  ///< null: nothing is stored
  batches::BatchService* batches = nullptr;       ///< null: no files, no batches
  WorkerGauges* worker_gauges = nullptr;          ///< null: nobody looks
  media::Fetcher* fetcher = nullptr;              ///< null: media come as data: URLs only
  net::ByteBudget* media_bytes = nullptr;         ///< of media that requests hold
};

/// The frontend of one shard: answers HTTP requests by running them on workers.
///
///   on_request → PreparationDesk (parse, template, tokenizer) → route → submit ──► worker
///                                    (all workers busy: wait → on_routed ┘)
///   prefill worker ──► on_step → HandoffCourse → route → submit ──► decode worker
///   worker ──► on_step → journal check → detokenize, stop strings → Answer → exchange
///
/// F1  Every generation in `active_` has an exchange that is not answered yet; when the answer ends
///     or the client leaves, the generation goes, its leases with it, and its work is cancelled.
/// F2  A choice whose worker is lost goes on at another one from its journal, or fails with an
///     error; it is never left without a worker, a place in a queue, a prompt under way
///     (`prompts_`) or a timer (`parked_`).
/// F3  Idle means: no active generation, no choice or prompt registered, leases sum to zero, nobody
///     waits.
/// F4  Every prompt in `prompts_` belongs to a registered choice that names it (I4).
///
/// Home loop: the shard's, for every method.
class ShardService final : public net::HttpHandler,
                           public PreparationListener,
                           public RoutedInbox::Owner,
                           public StreamCopies::Owner,
                           public session::SessionEvents,
                           public session::WorkerPoolListener,
                           public PoolHost {
 public:
  ShardService(net::Shard& shard, ShardEnvironment environment);
  ~ShardService() override;

  /// Connects to workers; on the loop, once, before requests come.
  void start(session::WorkerPoolOptions options, discovery::Discovery& discovery,
             session::Connector& connector);
  /// Fails what runs and closes the sessions; on the loop.
  void stop();
  size_t active() const {
    return active_.size() + desk_.waiting() + resuming_.size() + pooling_.active();
  }
  /// Whether this shard has a line to the worker; on the loop.
  bool can_reach(WorkerId worker) const {
    return pool_ != nullptr && pool_->find_session(worker) != nullptr;
  }

  void on_request(net::HttpExchange& exchange) override;
  net::BodyRule body_rule(const net::HttpRequest& head) const override;
  std::string refusal_body(const net::HttpRequest& head, int status,
                           std::string_view message) const override;

  void on_prepared(net::HttpExchange& exchange, PrepareJob& job) override;
  void on_client_left(const PrepareJob& job) override;

  void on_routed(RoutedInbox::Arrival arrival) override;

  void on_copied(StreamCopies::Serial serial) override;
  void on_copy_lost(StreamCopies::Serial serial) override;

  void on_rejected(WorkerId worker, engine::RequestKey key, Error error) override;
  void on_accepted(WorkerId worker, engine::RequestKey key) override;
  void on_load(WorkerId worker, const engine::LoadReport&) override { heard_from(worker); }
  void on_step(WorkerId worker, engine::StepOutput output) override;
  void on_draining(WorkerId worker) override;
  void on_closed(WorkerId worker, Error error) override;

  session::WorkerSession* find_session(WorkerId worker) override {
    return pool_ == nullptr ? nullptr : pool_->find_session(worker);
  }
  RequestId next_request() override { return RequestId(++next_request_); }
  void report_outcome(WorkerId worker, WorkOutcome outcome) override { report(worker, outcome); }

  void on_synced() override {}
  void on_worker_added(const discovery::InstanceRecord& record) override;
  void on_worker_updated(const discovery::InstanceRecord& record) override;
  void on_worker_removed(WorkerId worker) override;

 private:
  /// A generation and its place in the world.
  struct Active final : net::ExchangeObserver {
    Active(ShardService& service_in, std::unique_ptr<StreamGate> gate_in, Generation generation_in)
        : service(service_in),
          gate(std::move(gate_in)),
          generation(std::move(generation_in)),
          series(service.series_of(generation)) {}
    void on_client_gone(net::ClientGone reason) override { service.client_gone(*this, reason); }
    ShardService& service;
    const std::unique_ptr<StreamGate> gate;  // the generation's exchange; null: the client's own
    Generation generation;
    const RequestSeries& series;  // of the service's metrics
    /// Where its journal is: here, and elsewhere if somebody else is there to keep it.
    struct Copy {
      StreamCopies::Serial serial = 0;
      continuity::StreamId own;
      bool kept = false;                                         // here
      continuity::StreamId stream;                               // its name elsewhere
      std::optional<continuity::JournalHub::HolderId> holder{};  // elsewhere
      size_t catching_up = 0;  // old parts that a new copy elsewhere does not have yet
      uint32_t losses = 0;     // in a row
      TimePoint renew_at{};    // no sooner
    };
    std::optional<Copy> copy;  // of its journal
    uint64_t writing = 0;      // its entry in writing_; 0: none
    bool queued = true;        // counts as before its first token
    net::Timer deadline;       // of requests that brought one
    /// Of the client's request; shared with it. Null: nothing needs one.
    std::shared_ptr<net::RequestNotes> notes;
  };
  struct ChoiceRef {
    Active* active;
    uint32_t choice;
    Choice& get() const { return active->generation.choices()[choice]; }
  };
  struct Probe {
    WorkerId worker;
    TimePoint sent;
  };
  /// A choice between two workers.
  struct Parked {
    Error cause;  // what it lost its worker to
    net::Timer retry;
  };

  /// The prompt of a choice at a prefill worker.
  struct Prompt {
    RequestId choice;
    WorkerKey worker;
    router::LoadLease lease;
    TimePoint asked;
    bool spoke = false;  // before its last word
  };

  /// A complete answer whose body the compute pool writes.
  struct Writing {
    struct Body {
      std::string text;
      std::atomic<bool> done{false};
    };
    Active* active = nullptr;
    std::shared_ptr<Body> body;  // shared with the pool's task
  };

  /// A client that came back, while its stream's journal is fetched.
  struct Resuming final : net::ExchangeObserver {
    Resuming(ShardService& service_in, net::HttpExchange& exchange_in,
             std::shared_ptr<PrepareJob> job_in, const EventId& last_in)
        : service(service_in), exchange(exchange_in), job(std::move(job_in)), last(last_in) {}
    void on_client_gone(net::ClientGone) override { service.resuming_client_gone(*this); }
    ShardService& service;
    net::HttpExchange& exchange;
    const std::shared_ptr<PrepareJob> job;  // shared with the desk later
    const EventId last;                     // that the client has
  };

  api::ErrorStyle error_style(const protocols::Protocol* protocol) const;
  /// Whether a request that costs something may start now.
  Status admit(const net::HttpRequest& request) const;
  void handle_text(net::HttpExchange& exchange, TextRoute route);
  void refuse(net::HttpExchange& exchange, const TextRoute& route, std::string_view request_id,
              const api::ApiError& error);
  void refuse(net::HttpExchange& exchange, const PrepareJob& job, const api::ApiError& error);
  void refuse_metadata(net::HttpExchange& exchange, const TextRoute& route,
                       std::string_view request_id, std::string_view message);
  void run(net::HttpExchange& exchange, GenerationPlan plan, const PrepareJob& job);
  const RequestSeries& series_of(const Generation& generation);
  // shard_telemetry.cc: what is written down of requests.
  void charge_tokens(const Active& active, uint32_t tokens) const;
  void note_plan(Active& active) const;
  void note(const Active& active, Choice& choice, telemetry::Step step, WorkerId worker = {},
            uint32_t tokens = 0) const;
  void note_first_token(Active& active, const Choice& choice, const engine::Delta& delta) const;
  void note_answer(const Choice& choice) const;
  void add_trace(const Active& active, const Choice& choice, engine::EngineRequest& request) const;
  void end_course(Active& active);
  static void exemplify(const Active& active, const Histogram& histogram, double value,
                        WallTime at);
  void note_end(Active& active, std::string_view error_type) const;
  static void note_refusal(const net::HttpRequest& request, std::string_view request_id,
                           const Error& error);
  static void audit_request(const net::HttpRequest& request, std::string_view request_id);

  void watch_deadline(Active& active);
  router::RouteRequest make_route(const Active& active, const Choice& choice,
                                  const ReplayPrompt& prompt, std::string_view receipt_id) const;
  Status dispatch(Active& active, Choice& choice);
  bool submit(Active& active, Choice& choice, router::Decision decision);
  void end_dry_run(Active& active, const Choice& choice);
  Progress advance(Active& active, Choice& choice, const engine::Delta& delta,
                   const engine::StepOutput& output);
  void go_on_without_thinking(Active& active, Choice& choice);
  void take(ChoiceRef ref, const engine::Delta& delta, const engine::StepOutput& output);
  void end_choice(Active& active, RequestId id);
  void cancel_work(const Choice& choice, session::CancelReason reason);

  // shard_prefill.cc: prompts computed by other workers than the answers.
  Status check_prefill_pin(const GenerationPlan& plan) const;
  Result<bool> begin_prefill(Active& active, Choice& choice, const ReplayPrompt& prompt,
                             std::string_view receipt_id, const router::QueueHints& hints);
  bool split_at(Choice& choice, router::PrefillRouterService::Split split);
  void on_prompt_routed(Active& active, Choice& choice, Result<router::Decision> decision);
  void ask_prefill(Active& active, Choice& choice, engine::Handoff handoff);
  bool hand_over(Active& active, Choice& choice, engine::EngineRequest& request);
  bool take_prompt(WorkerId worker, const engine::Delta& delta, engine::StepOutput& output);
  bool lose_prompt(WorkerId worker, engine::RequestKey key, const Error& error);
  void lose_giver(WorkerId worker, const Error& error);
  void lose_stalled_prompts(TimePoint now);
  void carry_on(ChoiceRef ref, HandoffCourse::Step step, const Error& error);
  void drop_prompt(Choice& choice);
  void end_handoff(const Active& active, Choice& choice);
  WorkerKey blame(const Active& active, Choice& choice, continuity::Loss loss);

  // shard_migration.cc: what happens to choices that lose their worker.
  Status check_quarantine(const GenerationPlan& plan);
  void lose(ChoiceRef ref, continuity::Loss loss, Error error);
  void lose_at(ChoiceRef ref, WorkerKey culprit, continuity::Loss loss, Error error);
  void lose_failed(ChoiceRef ref, Error error);
  std::optional<std::string> stalled(const Choice& choice, TimePoint now) const;
  void lose_stalled(TimePoint now);
  void give_up(Active& active, Choice& choice, Error error);
  void resubmit(Active& active, Choice& choice, Error cause);
  void park(const Choice& choice, Error cause, Duration wait);
  void unpark(RequestId id);
  void unpark_all();
  void fail_or_park(Active& active, Choice& choice, Error cause, Error error);
  void note_recovery(Active& active, Choice& choice, MigrationOutcome outcome);
  void log_moves(TimePoint now);
  /// It streams again, or is over: its place in the retry budget is free.
  void end_retry(Choice& choice);
  bool within_retry_budget(Choice& choice);

  // shard_journal.cc: streams that go on at another frontend.
  bool begin_resuming(net::HttpExchange& exchange, const std::shared_ptr<PrepareJob>& job);
  void on_fetched(Resuming* waiting, Result<std::vector<std::string>>& parts);
  void resuming_client_gone(Resuming& waiting);
  void fail_resuming(const Error& error);
  std::unique_ptr<StreamGate> open_gate(net::HttpExchange& exchange, const GenerationPlan& plan,
                                        const PrepareJob& job, std::optional<Active::Copy>& copy);
  void begin_copy(Active& active, const Active::Copy& copy, const PrepareJob& job);
  bool bring(Active& active, continuity::JournalStore::Place place, std::string data);
  void lose_last_copy(Active& active);
  void renew_copies(TimePoint now);
  bool copy_step(Active& active, const Choice& choice, const engine::Delta& delta,
                 const engine::StepOutput& output, uint32_t known_tokens);
  bool replay(Active& active, const continuity::StreamJournal& journal);
  void go_on(Active& active);

  // shard_answers.cc: bodies that are collected, and written by the compute pool.
  void shed_answers();
  bool hand_to_writer(Active& active);
  void on_written(uint64_t id);
  void collect_written();

  // shard_health.cc: what is known of workers.
  void heard_from(WorkerId worker);
  void report(WorkerId worker, WorkOutcome outcome);
  void apply(WorkerId worker, FleetService::Change change);
  void probe_workers(TimePoint now);
  void send_probe(WorkerId worker);
  bool end_probe(RequestId request, bool good);
  void end_probes_of(WorkerId worker);

  void fail(Active& active, Error error);
  void complete(Active& active);
  void client_gone(Active& active, net::ClientGone reason);
  void release(Active& active, std::string_view error_type);
  void observe(Active& active, Choice& choice, const engine::Delta& delta);
  void observe_parser(const Generation& generation, const RequestSeries& series);
  TimePoint last_sign(Active& active);
  void sweep();
  void schedule_sweep();
  void schedule_tick();

  net::Shard& shard_;
  ShardEnvironment environment_;
  FrontendMetrics metrics_;
  const CourseMeters course_;
  const TextMeters texts_;
  Random random_;
  uint64_t next_request_;
  PreparationDesk desk_;
  PoolService pooling_;
  StoredWork stored_;
  KserveService kserve_;
  std::unique_ptr<ResponsesSockets> sockets_;
  FlatMap<RequestId, ChoiceRef> choices_;
  FlatMap<RequestId, std::unique_ptr<Prompt>> prompts_;  // at most one per choice
  FlatMap<Active*, std::unique_ptr<Active>> active_;     // bounded by config.inflight_max
  FlatMap<RequestId, std::unique_ptr<Parked>> parked_;   // of choices_
  size_t retrying_ = 0;                                  // choices on their second move or later
  MoveLog moves_;                                        // not yet logged
  FlatMap<RequestId, Probe> probes_;                     // at most one or two per worker
  FlatMap<WorkerId, TimePoint> heard_;                   // last sign of life, of connected workers
  FlatMap<Resuming*, std::unique_ptr<Resuming>> resuming_;  // bounded by config.inflight_max
  FlatMap<uint64_t, Writing> writing_;                      // at most one per active generation
  uint64_t last_writing_ = 0;
  FlatMap<StreamCopies::Serial, Active*> copied_;  // those whose journal is kept
  StreamCopies::Serial last_copy_ = 0;
  std::shared_ptr<StreamCopies> copies_;  // shared with its calls; null: nobody keeps copies
  std::unique_ptr<session::WorkerPool> pool_;
  net::Timer sweep_timer_;
  net::Timer tick_timer_;
  TimePoint tick_due_{};
  std::shared_ptr<RoutedInbox> routed_;  // shared with those who wait in routers' queues
};

}  // namespace stator::frontend
