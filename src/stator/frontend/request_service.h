// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/core/flat_map.h"
#include "stator/core/random.h"
#include "stator/frontend/active_request.h"
#include "stator/frontend/answer_bodies.h"
#include "stator/frontend/fleet_service.h"
#include "stator/frontend/kept_streams.h"
#include "stator/frontend/request_dispatch.h"
#include "stator/frontend/request_reporter.h"
#include "stator/frontend/routed_inbox.h"
#include "stator/frontend/worker_events.h"
#include "stator/frontend/worker_lines.h"
#include "stator/request/action.h"
#include "stator/request/recovery.h"

namespace stator::frontend {

/// The requests that a shard runs on workers: carries out the actions that come of what happens to
/// their choices (request::ChoiceRun), from dispatch to the end of the answer.
///
///   run() ──► kRoute, kPlanAnswer ──► RequestDispatch ──► router
///             kSubmit ─────────────────────────────────────────► worker
///   client ◄── Answer ◄── Generation::on_delta ◄── WorkerEvents::on_step
///
/// F1  Every request in `active_` has an exchange that is not answered yet; when the answer ends or
///     the client leaves, the request goes, its leases with it, and its work is cancelled.
/// F2  A choice whose worker is lost goes on at another one from its journal, or fails with an
///     error: it is never left without a worker, a place in a queue, a prompt under way or a timer.
/// F3  Idle means: no active request, no name, leases sum to zero, nobody waits.
/// F4  `names_` has every choice that is not over, and every prompt that is at a worker.
///
/// Home loop: the shard's, for every method.
class RequestService final : public RoutedInbox::Owner,
                             public KeptStreams::Owner,
                             public AnswerBodies::Owner,
                             public ActiveRequest::Owner {
 public:
  struct Environment {
    net::Shard& shard;
    const FrontendConfig& config;
    ModelCatalog& catalog;
    FleetService& fleet;
    FrontendMetrics& metrics;
    const RequestMeters& meters;
    const TextMeters& texts;
    Random& random;
    net::ComputePool& compute;
    continuity::JournalHub* journals = nullptr;  ///< null: streams end with this process
    net::ByteBudget* answers = nullptr;          ///< of answers being collected; null: unbounded
    WorkerGauges* gauges = nullptr;              ///< null: nobody looks
  };
  explicit RequestService(const Environment& environment);
  RequestService(const RequestService&) = delete;
  RequestService& operator=(const RequestService&) = delete;
  ~RequestService() override;

  /// Connects to workers; once, before requests come.
  void connect(session::WorkerPoolOptions options, discovery::Discovery& discovery,
               session::Connector& connector, Metrics& metrics);
  WorkerLines& lines() { return lines_; }
  WorkerEvents& events() { return events_; }
  size_t active() const { return active_.size(); }

  void run(net::HttpExchange& exchange, GenerationPlan&& plan, const PrepareJob& job);
  /// Fails what runs.
  void stop(const Error& error);
  /// Once a second: silent workers, quiet streams, lost messages.
  void sweep(TimePoint now);
  /// Takes what routers have decided whose message was lost to a full inbox; more often.
  void take_routed() { routed_->take(); }

  /// Carries out what a choice asks for, and what comes of that.
  void perform(ChoiceRef ref, request::Actions& actions);
  /// Null: nobody keeps journals.
  KeptStreams* kept() { return kept_.get(); }
  /// A worker's step has been taken.
  void end_step();

  void on_routed(RoutedInbox::Arrival arrival) override;
  void on_copied(ActiveRequest& active) override;
  void on_body(ActiveRequest& active, std::string body) override;
  void on_client_gone(ActiveRequest& active) override;

 private:
  void start(ActiveRequest& active);
  bool carry_out(ChoiceRef ref, request::Action& action, request::Actions& out);
  bool complete(ActiveRequest& active);
  void fail(ActiveRequest& active, Error error);
  void release(ActiveRequest& active, std::string_view error_type);
  void shed_answers();

  const Environment environment_;
  RequestReporter reporter_;
  WorkerLines lines_;
  request::Recovery recovery_;
  const std::shared_ptr<RoutedInbox> routed_;  // shared with those who wait in routers' queues
  RequestDispatch dispatch_;
  AnswerBodies bodies_;
  std::unique_ptr<KeptStreams> kept_;  // null: nobody keeps journals
  FlatMap<RequestId, ChoiceRef> names_;
  FlatMap<ActiveRequest*, std::unique_ptr<ActiveRequest>> active_;  // bounded by inflight_max
  WorkerEvents events_;
};

}  // namespace stator::frontend
