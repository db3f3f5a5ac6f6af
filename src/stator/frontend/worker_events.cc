// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/worker_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "stator/frontend/request_service.h"

namespace stator::frontend {

using request::Actions;
using Loss = ChoiceRun::PromptLoss;

void WorkerEvents::on_load(WorkerId worker, const engine::LoadReport& /*load*/) {
  parts_.lines.heard_from(worker);
}

void WorkerEvents::on_accepted(WorkerId worker, inference::RequestKey key) {
  parts_.lines.heard_from(worker);
  const auto known = parts_.names.find(key.request);
  if (known == parts_.names.end() || known->second.is_prompt || known->second.run().key() != key) {
    return;
  }
  const ChoiceRef ref = known->second;
  parts_.reporter.accepted(*ref.active, ref.run());
  Actions actions;
  ref.run().on_accepted(parts_.recovery, parts_.shard.now(), actions);
  parts_.requests.perform(ref, actions);
}

void WorkerEvents::on_rejected(WorkerId worker, inference::RequestKey key, Error error) {
  parts_.lines.heard_from(worker);
  if (parts_.lines.end_probe(key.request, error.info().retry == Retry::kElsewhere)) {
    return;  // full or draining, but alive
  }
  if (pooling_->lose(worker, key, error)) {
    return;
  }
  const auto known = parts_.names.find(key.request);
  if (known == parts_.names.end()) {
    return;
  }
  const ChoiceRef ref = known->second;
  Actions actions;
  if (ref.is_prompt) {
    parts_.names.erase(known);
    ref.run().on_prompt_lost(Loss::kFailed, error, parts_.recovery, parts_.shard.now(), actions);
  } else if (ref.run().key() == key) {
    ref.run().on_lost(continuity::Loss::kRefused, std::move(error), parts_.recovery,
                      parts_.shard.now(), actions);
  }
  parts_.requests.perform(ref, actions);
}

void WorkerEvents::on_step(WorkerId worker, inference::StepOutput output) {
  parts_.lines.heard_from(worker);
  for (const inference::Delta& delta : output.deltas) {
    const auto known = parts_.names.find(delta.key.request);
    if (known == parts_.names.end()) {
      parts_.lines.end_probe(delta.key.request,
                             true);  // or cancelled while this was on its way
    } else if (known->second.is_prompt) {
      take_prompt(known->second, delta, output);
    } else {
      take(known->second, delta, output);
    }
  }
  for (inference::Pooled& pooled : output.pooled) {
    const RequestId id = pooled.key.request;
    if (!pooling_->take(worker, std::move(pooled))) {
      parts_.lines.end_probe(id, true);
    }
  }
  for (inference::Failure& failure : output.failures) {
    if (!pooling_->lose(worker, failure.key, failure.error)) {
      lose(worker, std::move(failure));
    }
  }
  parts_.requests.end_step();
}

void WorkerEvents::take(ChoiceRef ref, const inference::Delta& delta,
                        const inference::StepOutput& output) {
  ChoiceRun& run = ref.run();
  const TimePoint last_token = run.facts().last_token;
  if (!ref.active->generation.first_token()) {
    parts_.shard.refresh_now();  // a fast engine answers in the turn in which the request came
  }
  // It becomes text, and leaves at once or when its copy may.
  ActiveRequest& active = *ref.active;
  const Progress progress = active.gate == nullptr
                                ? active.generation.on_delta(run, delta, output, parts_.shard.now())
                                : parts_.requests.kept()->advance(active, run, delta, output);
  Actions actions;
  run.on_output({.progress = progress,
                 .offset = delta.offset,
                 .tokens = delta.token_count,
                 .cached_tokens = delta.cached_tokens},
                parts_.recovery, parts_.shard.now(), actions);
  if (progress != Progress::kStale && progress != Progress::kBroken) {
    parts_.reporter.output(*ref.active, run, delta, last_token);
  }
  if (run.done()) {
    parts_.reporter.answered(run);
  }
  parts_.requests.perform(ref, actions);
}

/// A prefill worker spoke.
void WorkerEvents::take_prompt(ChoiceRef ref, const inference::Delta& delta,
                               inference::StepOutput& output) {
  using Word = ChoiceRun::PromptWord;
  const auto offer = std::ranges::find(output.offers, delta.key, &inference::Offer::key);
  Actions actions;
  const Word word = ref.run().on_prompt_output(
      {.delta = delta, .offer = offer == output.offers.end() ? nullptr : &offer->handoff},
      parts_.recovery, parts_.shard.now(), actions);
  inference::Delta answer = delta;
  if (word != Word::kUnderWay) {
    parts_.names.erase(delta.key.request);
  }
  parts_.requests.perform(ref, actions);
  if (word == Word::kIsAnswer) {
    answer.key = ref.run().key();
    take(ref, answer, output);
  }
}

/// The engine could not go on.
void WorkerEvents::lose(WorkerId worker, inference::Failure failure) {
  const auto known = parts_.names.find(failure.key.request);
  const Code code = failure.error.code();
  const Retry retry = failure.error.info().retry;
  if (known == parts_.names.end()) {
    parts_.lines.end_probe(failure.key.request, retry == Retry::kElsewhere);
    return;
  }
  const ChoiceRef ref = known->second;
  const TimePoint now = parts_.shard.now();
  Actions actions;
  if (ref.is_prompt) {
    parts_.names.erase(known);
    ref.run().on_prompt_lost(Loss::kFailed, failure.error, parts_.recovery, now, actions);
  } else if (ref.run().key() == failure.key) {
    ref.run().on_lost(continuity::Loss::kFailed, std::move(failure.error), parts_.recovery, now,
                      actions);
  }
  parts_.requests.perform(ref, actions);
  if (ref.is_prompt && retry != Retry::kNever && code != Code::kOverloaded &&
      code != Code::kDraining) {
    parts_.lines.report_outcome(worker, WorkOutcome::kFailed);
  }
}

/// Gives an event to all choices for which `wanted(run)`, in the order of their
/// names: equal runs move equally. What one of them brings about may end
/// others.
template <typename Wanted, typename Event>
void WorkerEvents::tell_all(Wanted&& wanted, Event&& event) {
  std::vector<RequestId> ids;
  for (const auto& [id, ref] : parts_.names) {
    if (!ref.is_prompt && wanted(ref.run())) {
      ids.push_back(id);
    }
  }
  std::ranges::sort(ids);
  for (const RequestId id : ids) {
    if (const auto known = parts_.names.find(id);
        known != parts_.names.end() && wanted(known->second.run())) {
      const ChoiceRef ref = known->second;
      Actions actions;
      event(ref.run(), actions);
      parts_.requests.perform(ref, actions);
    }
  }
}

void WorkerEvents::on_closed(WorkerId worker, Error error) {
  parts_.lines.on_closed(worker);
  pooling_->lose_worker(worker, error);
  const TimePoint now = parts_.shard.now();
  lose_giver(worker, error);
  const auto at_it = [worker](const ChoiceRun& run) {
    return run.at_worker() && run.facts().worker.worker == worker;
  };
  tell_all(at_it, [&](ChoiceRun& run, Actions& out) {
    run.on_lost(
        continuity::Loss::kVanished,
        error.clone().with_context(fmt::format("worker {} was lost, retry", worker.value())),
        parts_.recovery, now, out);
  });
}

void WorkerEvents::on_worker_joined() {
  tell_all([](const ChoiceRun& run) { return run.state() == ChoiceRun::State::kParked; },
           [this](ChoiceRun& run, Actions& out) {
             run.on_retry_due(parts_.recovery, parts_.shard.now(), out);
           });
}

void WorkerEvents::on_engine_lost(WorkerId worker) {
  lose_giver(worker, Error(Code::kUnavailable, "the prefill worker's engine is gone"));
}

/// What it has given, or was to give, is not to be relied on any more.
void WorkerEvents::lose_giver(WorkerId worker, const Error& error) {
  tell_all([worker](const ChoiceRun& run) { return run.prompt().given_by(worker); },
           [&](ChoiceRun& run, Actions& out) {
             run.on_prompt_lost(Loss::kGiverGone, error, parts_.recovery, parts_.shard.now(), out);
           });
}

void WorkerEvents::lose_stalled(TimePoint now) {
  const auto why = [&](const ChoiceRun& run) {
    return run.at_worker()
               ? parts_.recovery.stalled(
                     signs_of(run, parts_.lines.last_heard(run.facts().worker.worker)), now)
               : std::nullopt;
  };
  tell_all([&](const ChoiceRun& run) { return why(run).has_value(); },
           [&](ChoiceRun& run, Actions& out) {
             parts_.metrics.stalls.add();
             run.on_lost(continuity::Loss::kStalled, Error(Code::kUnavailable, *why(run)),
                         parts_.recovery, now, out);
           });
  const auto prompt_stalls = [&](const ChoiceRun& run) {
    const auto& prompt = run.prompt().at_worker();
    return prompt && parts_.recovery.prompt_stalled(
                         prompt->asked, parts_.lines.last_heard(prompt->worker.worker), now);
  };
  const Error silent(Code::kUnavailable,
                     "a prefill worker went silent for longer than "
                     "frontend.stall_timeout, retry");
  tell_all(prompt_stalls, [&](ChoiceRun& run, Actions& out) {
    parts_.metrics.stalls.add();
    run.on_prompt_lost(Loss::kSilent, silent, parts_.recovery, now, out);
  });
}

}  // namespace stator::frontend
