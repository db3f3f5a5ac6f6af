// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fault_sim/virtual_engine.h"

#include <utility>

namespace stator::fault_sim {

VirtualEngine::VirtualEngine(engine::EngineConfig config,
                             std::unique_ptr<engine::ModelRunner> runner, net::VirtualTime& time)
    : config_(std::move(config)),
      runner_(std::move(runner)),
      time_(time),
      info_{.kind = config_.kind,
            .version = config_.version,
            .block_size = config_.block_size,
            .total_blocks = config_.total_blocks,
            .max_model_len = config_.max_model_len,
            .max_num_seqs = config_.max_num_seqs,
            .max_num_batched_tokens = config_.max_num_batched_tokens,
            .vocab_size = runner_->vocab_size()},
      scheduler_(config_),
      events_(config_.dp_rank) {}

void VirtualEngine::stop() {
  if (std::exchange(stopped_, true)) {
    return;
  }
  alive_ = std::make_shared<const bool>(true);  // a step under way never ends
  stepping_ = false;
  // What is planned is computed: the scheduler must not be left between plan and commit.
  if (!sampled_.empty()) {
    deliver(scheduler_.commit(sampled_));
    sampled_.clear();
  }
  apply_commands();
  deliver(scheduler_.fail_all(Error(Code::kDraining, "the engine is shutting down")));
  events_.append(scheduler_.take_events());
}

engine::SessionId VirtualEngine::open_session(engine::EngineSink& sink) {
  const engine::SessionId session(++last_session_);
  sinks_.emplace(session, &sink);
  return session;
}

void VirtualEngine::close_session(engine::SessionId session) {
  if (sinks_.erase(session) > 0) {
    push(Close{session});
  }
}

Status VirtualEngine::submit(engine::SessionId session, inference::EngineRequest request) {
  STATOR_CHECK(engine::validate(request, config_, info_.vocab_size));
  if (stopped_) {
    return Error(Code::kDraining, "the engine is shutting down");
  }
  if (scheduler_.waiting_count() + commands_.size() >= config_.waiting_max) {
    return Error(Code::kOverloaded, "the engine's queue is full");
  }
  push(Submit{session, std::move(request)});
  return {};
}

void VirtualEngine::cancel(engine::SessionId session, inference::RequestKey key) {
  push(Cancel{session, key});
}

void VirtualEngine::reset_prefix_cache() {
  scheduler_.reset_prefix_cache();
  events_.append(scheduler_.take_events());
}

void VirtualEngine::set_hung(bool hung) {
  hung_ = hung;
  if (!hung && std::exchange(step_is_over_, false)) {
    end_step();
  } else if (!hung && !stepping_) {
    begin_step();
  }
}

void VirtualEngine::push(Command command) {
  commands_.push_back(std::move(command));
  if (!stepping_ && !hung_) {
    stepping_ = true;
    schedule(Duration::zero(), &VirtualEngine::begin_step);
  }
}

void VirtualEngine::schedule(Duration delay, void (VirtualEngine::*what)()) {
  time_.after(delay, [this, what, weak = std::weak_ptr(alive_)] {
    if (!weak.expired()) {
      (this->*what)();
    }
  });
}

void VirtualEngine::apply_commands() {
  std::vector<engine::SessionOutput> refused;
  for (Command& command : std::exchange(commands_, {})) {
    if (auto* submit = std::get_if<Submit>(&command)) {
      const inference::RequestKey key = submit->request.key;
      Status added = scheduler_.add(submit->session, std::move(submit->request), time_.now());
      if (!added) {
        refused.emplace_back().session = submit->session;
        refused.back().output.failures.push_back({key, std::move(added.error())});
      }
    } else if (const auto* cancel = std::get_if<Cancel>(&command)) {
      scheduler_.cancel(cancel->session, cancel->key);
    } else {
      scheduler_.cancel_session(std::get<Close>(command).session);
    }
  }
  deliver(refused);
}

void VirtualEngine::begin_step() {
  stepping_ = false;
  if (stopped_ || hung_) {
    return;
  }
  apply_commands();
  const engine::StepPlan& plan = scheduler_.plan(time_.now());
  if (plan.empty()) {
    events_.append(scheduler_.take_events());
    return;
  }
  stepping_ = true;
  sampled_.clear();
  sampled_.resize(plan.slices.size());
  runner_->run(plan.slices, sampled_);
  const Duration time = runner_->pass_time(plan.shape);
  schedule(Duration(static_cast<int64_t>(static_cast<double>(time.count()) * slowness_)),
           &VirtualEngine::end_step);
}

void VirtualEngine::end_step() {
  if (hung_) {
    step_is_over_ = true;
    return;
  }
  deliver(scheduler_.commit(sampled_));
  sampled_.clear();
  events_.append(scheduler_.take_events());
  begin_step();
}

void VirtualEngine::deliver(std::vector<engine::SessionOutput>& outputs) {
  for (auto& [session, output] : outputs) {
    if (const auto sink = sinks_.find(session); sink != sinks_.end()) {
      sink->second->on_step(std::move(output));
    }
  }
}

}  // namespace stator::fault_sim
