// SPDX-License-Identifier: Apache-2.0
// The part of ShardService that deals with lost workers: who goes on elsewhere, when, and who
// fails.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "stator/core/hash.h"
#include "stator/core/log.h"
#include "stator/core/random.h"
#include "stator/frontend/shard_service.h"

namespace stator::frontend {
namespace {

using namespace std::chrono_literals;
using continuity::Loss;

// How often a request without a worker looks for one, beside being told of new ones.
constexpr Duration kParkedRetry = 100ms;
// Second and later moves under way at once: this many, or this part of what is active.
constexpr size_t kRetriesMin = 10;
constexpr size_t kRetriesPart = 5;
// A worker may compute a long prompt for a while without a word.
constexpr int kFirstTokenPatience = 4;

/// Equal for equal prompts to equal models.
uint64_t fingerprint_of(const GenerationPlan& plan, const std::vector<TokenId>& prompt) {
  return xxh3_64(std::as_bytes(std::span(prompt))) ^ mix64(xxh3_64(plan.model->name));
}

/// A worker that will not go on from a prompt of others may well do the whole request.
bool refuses_handoff(const Choice& choice, const Error& error) {
  return choice.course.state() == HandoffCourse::State::kTaking &&
         error.info().retry == Retry::kNever;
}

/// For the log of moves.
std::string_view why_of(Loss loss) {
  switch (loss) {
    case Loss::kRefused:
      return "it took nothing new";
    case Loss::kHandedOff:
      return "it drains";
    case Loss::kFailed:
      return "its engine failed";
    case Loss::kStalled:
      return "it went silent";
    case Loss::kVanished:
      return "its connection broke";
  }
  return "";
}

MigrationKind kind_of(bool had_tokens) {
  return had_tokens ? MigrationKind::kOngoingRequest : MigrationKind::kNewRequest;
}

}  // namespace

Status ShardService::check_quarantine(const GenerationPlan& plan) {
  for (const auto& prompt : plan.prompts) {
    const Duration left =
        environment_.fleet.quarantined(fingerprint_of(plan, prompt), shard_.now());
    if (left > Duration::zero()) {
      metrics_.quarantined.add();
      return Error(
          Code::kUnavailable,
          fmt::format("workers died while they ran this request; it is refused for another "
                      "{} s (frontend.poison_workers)",
                      std::chrono::ceil<std::chrono::seconds>(left).count()));
    }
  }
  return {};
}

void ShardService::on_rejected(WorkerId worker, engine::RequestKey key, Error error) {
  heard_from(worker);
  if (end_probe(key.request, error.info().retry == Retry::kElsewhere)) {
    return;  // full or draining, but alive
  }
  if (pooling_.lose(worker, key, error) || lose_prompt(worker, key, error)) {
    return;
  }
  const auto known = choices_.find(key.request);
  if (known == choices_.end() || known->second.get().key() != key) {
    return;
  }
  if (refuses_handoff(known->second.get(), error)) {
    lose(known->second, Loss::kFailed, std::move(error));
    return;
  }
  if (error.info().retry == Retry::kNever) {
    fail(*known->second.active, std::move(error));
    return;
  }
  lose(known->second, Loss::kRefused, std::move(error));
}

void ShardService::lose_failed(ChoiceRef ref, Error error) {
  if (refuses_handoff(ref.get(), error)) {
    lose(ref, Loss::kFailed, std::move(error));
    return;
  }
  if (error.info().retry == Retry::kNever) {
    if (error.info().log_level == LogLevel::kError) {
      report(ref.get().worker.worker, WorkOutcome::kFailed);
    }
    fail(*ref.active, std::move(error));
    return;
  }
  Loss loss = Loss::kFailed;
  if (error.code() == Code::kDraining) {
    loss = Loss::kHandedOff;
    metrics_.drain_handoffs.add();
  } else if (error.code() == Code::kOverloaded && ref.get().journal.attempt_is_fresh()) {
    loss = Loss::kRefused;
  }
  lose(ref, loss, std::move(error));
}

void ShardService::on_draining(WorkerId worker) {
  environment_.fleet.draining(worker);
  environment_.catalog.set_draining(worker);
}

void ShardService::on_closed(WorkerId worker, Error error) {
  environment_.catalog.remove_worker(worker);
  end_probes_of(worker);
  pooling_.lose_worker(worker, error);
  lose_giver(worker, error);
  std::vector<RequestId> lost;
  for (const auto& [id, ref] : choices_) {
    const Choice& choice = ref.get();
    if (!choice.lease.empty() && choice.worker.worker == worker) {
      lost.push_back(id);
    }
  }
  std::ranges::sort(lost);  // equal runs move equally
  for (const RequestId id : lost) {
    const auto known = choices_.find(id);
    if (known != choices_.end()) {
      lose(known->second, Loss::kVanished,
           error.clone().with_context(fmt::format("worker {} was lost, retry", worker.value())));
    }
  }
}

/// Why its worker has to be given up, if it has. A worker that talks may still have forgotten one
/// request, so the request's own silence counts, too.
std::optional<std::string> ShardService::stalled(const Choice& choice, TimePoint now) const {
  const FrontendConfig& config = environment_.config;
  const auto late = [now](TimePoint since, Duration limit) {
    return limit > Duration::zero() && now - since >= limit;
  };
  const uint64_t worker = choice.worker.worker.value();
  const TimePoint own_sign = std::max(choice.submitted, choice.last_token);
  if (!choice.accepted && late(choice.submitted, config.accept_timeout)) {
    return fmt::format(
        "worker {} neither took nor refused the request within frontend.accept_timeout, retry",
        worker);
  }
  if (late(own_sign, config.stream_idle_timeout)) {
    return fmt::format("worker {} produced no token within frontend.stream_idle_timeout, retry",
                       worker);
  }
  const auto heard = heard_.find(choice.worker.worker);
  const TimePoint any_sign = heard == heard_.end() ? own_sign : std::max(own_sign, heard->second);
  const int patience = choice.journal.attempt_is_fresh() ? kFirstTokenPatience : 1;
  if (late(any_sign, config.stall_timeout * patience)) {
    return fmt::format("worker {} went silent for longer than frontend.stall_timeout, retry",
                       worker);
  }
  return std::nullopt;
}

void ShardService::lose_stalled(TimePoint now) {
  std::vector<RequestId> lost;
  for (const auto& [id, ref] : choices_) {
    if (!ref.get().lease.empty() && stalled(ref.get(), now)) {
      lost.push_back(id);
    }
  }
  std::ranges::sort(lost);
  for (const RequestId id : lost) {
    const auto known = choices_.find(id);
    if (known == choices_.end()) {
      continue;
    }
    if (auto why = stalled(known->second.get(), now)) {
      metrics_.stalls.add();
      cancel_work(known->second.get(), session::CancelReason::kSuperseded);
      lose(known->second, Loss::kStalled, Error(Code::kUnavailable, std::move(*why)));
    }
  }
}

void ShardService::lose(ChoiceRef ref, Loss loss, Error error) {
  Choice& choice = ref.get();
  const WorkerKey culprit = blame(*ref.active, choice, loss);
  if (culprit == choice.worker && (loss == Loss::kFailed || loss == Loss::kStalled)) {
    report(choice.worker.worker, loss == Loss::kFailed ? WorkOutcome::kFailed : WorkOutcome::kHung);
  }
  lose_at(ref, culprit, loss, std::move(error));
}

void ShardService::lose_at(ChoiceRef ref, WorkerKey culprit, Loss loss, Error error) {
  using Step = continuity::Journal::Step;
  Active& active = *ref.active;
  Choice& choice = ref.get();
  choice.lease.mark_failed();
  choice.lease.release();
  choice.ticket = {};
  continuity::Journal& journal = choice.journal;
  const uint32_t poison = environment_.config.poison_workers;
  Step step = journal.lose(loss, culprit);
  if (step == Step::kResubmit && poison > 0 && journal.workers_killed() >= poison) {
    step = Step::kGiveUp;
  }
  if (step == Step::kFinishLength || step == Step::kFinishStop) {
    const auto finish =
        step == Step::kFinishLength ? api::FinishReason::kLength : api::FinishReason::kStop;
    active.generation.finish_choice(choice, finish, shard_.now());
    end_choice(active, choice.id);
    return;
  }
  if (step == Step::kGiveUp) {
    give_up(active, choice, std::move(error));
    return;
  }
  const bool has_tokens = journal.generated() > 0;
  if (!has_tokens) {
    metrics_.retried_requests.add();
  }
  if (loss != Loss::kRefused) {
    metrics_.migrated(active.generation.plan().answer.model, kind_of(has_tokens));
    note(active, choice, telemetry::Step::kLost, choice.worker.worker);
    if (!choice.lost) {
      choice.lost = {.at = shard_.now(),
                     .had_tokens = has_tokens,
                     .worker = choice.worker.worker,
                     .why = why_of(loss)};
    }
  }
  // A new request asks round quickly; one that has something to lose does not press those who are
  // full.
  const uint32_t nth =
      loss == Loss::kRefused && choice.lost ? journal.refusals() + 1 : journal.migrations();
  const Duration wait = continuity::migration_backoff(nth, random_);
  if (wait > Duration::zero()) {
    park(choice, std::move(error), wait);
  } else {
    resubmit(active, choice, std::move(error));
  }
}

/// Its thinking budget is spent: a next attempt answers from where the reasoning ends. The worker
/// has the prompt and the reasoning in its cache.
void ShardService::go_on_without_thinking(Active& active, Choice& choice) {
  using Step = continuity::Journal::Step;
  cancel_work(choice, session::CancelReason::kSuperseded);
  const Step step = active.generation.end_thinking(choice, shard_.now());
  if (step == Step::kResubmit) {
    resubmit(active, choice,
             Error(Code::kUnavailable, "no worker goes on after the thinking budget, retry"));
    return;
  }
  active.generation.finish_choice(choice, api::FinishReason::kLength, shard_.now());
  end_choice(active, choice.id);
}

void ShardService::give_up(Active& active, Choice& choice, Error error) {
  const continuity::Journal& journal = choice.journal;
  const uint32_t poison = environment_.config.poison_workers;
  const GenerationPlan& plan = active.generation.plan();
  if (journal.too_long()) {
    metrics_.migration_too_long(plan.answer.model);
  }
  if (poison > 0 && journal.workers_killed() >= poison) {
    metrics_.poisoned.add();
    environment_.fleet.quarantine(fingerprint_of(plan, plan.prompts[choice.prompt]), shard_.now());
    log::error("frontend", "workers keep dying under one request, it is refused for a while",
               {{"request_id", plan.answer.request_id}, {"workers", journal.workers_killed()}});
    error = Error(Code::kUnavailable,
                  fmt::format("{} workers died while they ran this request; it is not tried again "
                              "(frontend.poison_workers)",
                              journal.workers_killed()));
  } else if (journal.exhausted() && journal.migrations() > 0) {
    error = std::move(error).with_context(fmt::format(
        "after {} moves to other workers (frontend.migration_limit)", journal.migrations()));
  }
  fail(active, std::move(error));
}

/// Many requests that lose one worker after the other must not drown those that are left: only so
/// many of them may be under way at once. First moves are free.
bool ShardService::within_retry_budget(Choice& choice) {
  if (choice.retrying || choice.journal.migrations() < 2) {
    return true;
  }
  if (retrying_ >= std::max<size_t>(kRetriesMin, active_.size() / kRetriesPart)) {
    metrics_.retry_budget_exhausted.add();
    return false;
  }
  ++retrying_;
  choice.retrying = true;
  return true;
}

void ShardService::resubmit(Active& active, Choice& choice, Error cause) {
  if (!within_retry_budget(choice)) {
    Error error = cause.clone();
    fail_or_park(active, choice, std::move(cause), std::move(error));
    return;
  }
  if (Status sent = dispatch(active, choice); !sent) {
    fail_or_park(active, choice, std::move(cause), std::move(sent.error()));
  }
}

/// Nobody takes it now. What was generated already is worth a wait; a new request is told at once.
void ShardService::fail_or_park(Active& active, Choice& choice, Error cause, Error error) {
  const TimePoint now = shard_.now();
  const bool may_change = error.info().retry != Retry::kNever;
  const Duration patience = environment_.config.migration_wait;
  if (may_change && choice.lost && now - choice.lost->at < patience) {
    choice.journal.forgive();
    park(choice, std::move(cause), kParkedRetry);
    return;
  }
  fail(active, std::move(cause));  // says more than "nobody left"
}

void ShardService::park(const Choice& choice, Error cause, Duration wait) {
  const RequestId id = choice.id;
  auto parked = std::make_unique<Parked>(Parked{.cause = std::move(cause), .retry = {}});
  parked->retry = shard_.after(wait, [this, id] { unpark(id); });
  parked_.insert_or_assign(id, std::move(parked));
}

void ShardService::unpark(RequestId id) {
  const auto found = parked_.find(id);
  const auto known = choices_.find(id);
  if (found == parked_.end() || known == choices_.end()) {
    return;
  }
  const std::unique_ptr<Parked> parked = std::move(found->second);
  parked_.erase(found);
  resubmit(*known->second.active, known->second.get(), std::move(parked->cause));
}

void ShardService::unpark_all() {
  std::vector<RequestId> ids;
  ids.reserve(parked_.size());
  for (const auto& [id, parked] : parked_) {
    ids.push_back(id);
  }
  std::ranges::sort(ids);
  for (const RequestId id : ids) {
    unpark(id);
  }
}

void ShardService::note_recovery(Active& active, Choice& choice, MigrationOutcome outcome) {
  metrics_.migration_ended(active.generation.plan().answer.model, kind_of(choice.lost->had_tokens),
                           outcome, shard_.now() - choice.lost->at);
  if (outcome == MigrationOutcome::kSuccess) {
    moves_.moved(choice.lost->worker, choice.worker.worker, choice.lost->why, shard_.now());
  }
  choice.lost.reset();
}

void ShardService::log_moves(TimePoint now) {
  const ModelCatalog& catalog = environment_.catalog;
  for (const MoveLog::Line& line : moves_.take(now)) {
    log::info("frontend", "streams moved to another worker",
              {{"streams", line.streams},
               {"from", line.from.value()},
               {"from_url", catalog.place_of(line.from)},
               {"to", line.to.value()},
               {"to_url", catalog.place_of(line.to)},
               {"why", line.why}});
  }
}

void ShardService::end_retry(Choice& choice) {
  retrying_ -= std::exchange(choice.retrying, false) ? 1 : 0;
}

}  // namespace stator::frontend
