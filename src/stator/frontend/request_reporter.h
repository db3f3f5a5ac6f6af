// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/frontend/active_request.h"
#include "stator/frontend/event_lines.h"
#include "stator/frontend/frontend_metrics.h"
#include "stator/frontend/model_catalog.h"
#include "stator/frontend/request_meters.h"
#include "stator/frontend/worker_gauges.h"
#include "stator/inference/request.h"
#include "stator/inference/step_output.h"
#include "stator/net/shard.h"
#include "stator/router/receipt_findings.h"
#include "stator/telemetry/request_facts.h"

namespace stator::frontend {

struct PoolPlan;

/// What a shard counts, logs and notes of the requests it runs: series and gauges, the record that
/// becomes the access line and the spans, the tenant's budget, the log of moves. It decides
/// nothing. Home loop: the shard's.
class RequestReporter {
 public:
  struct Environment {
    net::Shard& shard;
    FrontendMetrics& metrics;
    const RequestMeters& meters;
    const ModelCatalog& catalog;
    router::ReceiptFindings& findings;
    WorkerGauges* gauges = nullptr;  ///< null: nobody looks
  };
  explicit RequestReporter(const Environment& environment) : environment_(environment) {}

  void begun(ActiveRequest& active) const;
  /// A choice takes a step; of several choices the first one's steps are written down.
  void step(ActiveRequest& active, const ChoiceRun& run, telemetry::Step step,
            WorkerKey worker = {}, uint32_t tokens = 0) const;
  void accepted(const ActiveRequest& active, const ChoiceRun& run) const;
  /// New tokens; the choice's last ones before came then.
  void output(ActiveRequest& active, const ChoiceRun& run, const inference::Delta& delta,
              TimePoint last_token) const;
  /// Its worker has said all of a choice.
  void answered(const ChoiceRun& run) const;
  /// What a choice wants to be known: kNote, kCount, kHandoverEnded, kRecovered; nothing of others.
  void report(ActiveRequest& active, const ChoiceRun& run, const request::Action& action);
  void choice_over(ActiveRequest& active, uint32_t index) const;
  /// The last that is said of it. `error_type` empty: it was answered.
  void ended(ActiveRequest& active, std::string_view error_type) const;
  /// The worker's spans belong below ours of this attempt; choices beyond the first have none of
  /// their own.
  void add_trace(const ActiveRequest& active, const ChoiceRun& run,
                 inference::EngineRequest& request) const;
  /// Which streams moved, once a second or so.
  void log_moves(TimePoint now);

 private:
  void counted(const ActiveRequest& active, const request::Action& action) const;
  void recovered(const ActiveRequest& active, const request::Action& action);
  void first_token(ActiveRequest& active, const ChoiceRun& run,
                   const inference::Delta& delta) const;
  void note_plan(ActiveRequest& active) const;
  void note_end(ActiveRequest& active, std::string_view error_type) const;
  void charge_tokens(const ActiveRequest& active, uint32_t tokens) const;
  void parsed(const ActiveRequest& active) const;

  const Environment environment_;
  MoveLog moves_;  // not yet logged
};

/// Under which name the receipt of a choice's routing is kept.
std::string receipt_id_of(const GenerationPlan& plan, const ChoiceRun& run);

/// A request that does not get as far as a plan.
void note_refusal(const net::HttpRequest& request, std::string_view request_id, const Error& error,
                  std::string_view model = {}, bool stream = false);
/// A request for vectors or scores, when it has a plan: it is charged, and its facts are noted.
void note_pool_plan(const net::HttpRequest& request, const PoolPlan& plan, TimePoint now);
/// Its first part goes to that worker; what travels with it says whose trace it is.
void note_pool_part(net::RequestNotes* notes, WorkerKey worker, TimePoint now,
                    inference::EngineRequest& request);
void note_pool_end(net::RequestNotes* notes, std::string_view error_type);
/// Before its body is given away.
void audit_request(const net::HttpRequest& request, std::string_view request_id);

}  // namespace stator::frontend
