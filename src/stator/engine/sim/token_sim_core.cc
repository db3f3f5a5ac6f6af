// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/token_sim_core.h"

#include <algorithm>
#include <utility>

#include "stator/core/assert.h"

namespace stator::engine {
namespace {

constexpr SessionId kSession{1};
constexpr uint64_t kDraftStream = 0xD4AF;

uint64_t pool_tokens(const SimEngineConfig& config) {
  return uint64_t{config.blocks} * config.block_size;
}

EngineConfig engine_config(const SimEngineConfig& config) {
  EngineConfig out;
  out.block_size = config.block_size;
  out.total_blocks = config.blocks;
  out.host_blocks = config.host_blocks;
  out.max_num_seqs = config.max_num_seqs;
  out.max_num_batched_tokens = config.max_num_batched_tokens;
  // The limit is on prompts here; answers are bounded by the pool.
  out.max_model_len = static_cast<uint32_t>(std::min<uint64_t>(pool_tokens(config), UINT32_MAX));
  out.waiting_max = UINT32_MAX;
  out.rules = config.rules;
  out.sglang = config.sglang;
  out.draft_tokens = static_cast<uint32_t>(config.draft_acceptance.size());
  out.enable_prefix_caching = config.prefix_caching;
  out.enable_chunked_prefill = config.chunked_prefill;
  return out;
}

}  // namespace

TokenSimCore::TokenSimCore(const SimEngineConfig& config, const perf::TimingModel& timing)
    : config_(config),
      timing_(timing),
      scheduler_(engine_config(config), config.publish_events ? kv::BlockPool::Events::kRecord
                                                              : kv::BlockPool::Events::kOff) {}

void TokenSimCore::submit(SimRequest request) {
  inbox_.push_back(std::move(request));
}

SimCore::Load TokenSimCore::load() const {
  const LoadReport load = scheduler_.load();
  return {.waiting = load.waiting + static_cast<uint32_t>(inbox_.size()),
          .running = load.running,
          .blocks_in_use = load.kv_used_blocks};
}

bool TokenSimCore::fits(const SimRequest& request) const {
  const uint64_t tokens = uint64_t{request.prompt_tokens} + request.output_tokens;
  return (config_.max_model_len == 0 || request.prompt_tokens < config_.max_model_len) &&
         tokens <= pool_tokens(config_) &&
         (config_.chunked_prefill || request.prefilled || tokens <= config_.max_num_batched_tokens);
}

void TokenSimCore::enqueue(const SimRequest& request, TimePoint now) {
  if (!fits(request)) {
    outcome_.rejected.push_back(request.id);
    return;
  }
  inference::EngineRequest work;
  work.key.request = RequestId(request.id);
  work.generated = request.prefilled ? 1 : 0;
  // What full blocks are is known; the tokens behind them begin the answer's blocks.
  work.tokens.assign(size_t{request.prompt_tokens} + work.generated,
                     static_cast<TokenId>(request.answer_seed));
  work.stop.max_tokens = request.output_tokens;
  answers_[request.id] = {.seed = request.answer_seed,
                          .prompt_tokens = request.prompt_tokens,
                          .tokens = work.generated,
                          .last_token = request.first_token};
  const KnownPrompt known{
      .sequences = request.sequences, .locals = request.locals, .computed = request.prefilled};
  const Status added = scheduler_.add(kSession, std::move(work), now, known);
  STATOR_ASSERT(added.has_value(), "ids are unique and the queue has no limit");
}

TimePoint TokenSimCore::start(TimePoint now) {
  STATOR_ASSERT(!busy_ && has_work(), "passes are started one after the other, for work");
  outcome_.clear();
  outcome_.start = now;
  for (const SimRequest& request : inbox_) {
    enqueue(request, now);
  }
  inbox_.clear();
  const StepPlan& plan = scheduler_.plan(now);
  computes_ = !plan.empty();
  busy_ = true;
  outcome_.passes = 1;
  outcome_.prefill_tokens = plan.shape.prefill_new_tokens;
  outcome_.preemptions =
      static_cast<uint32_t>(scheduler_.totals().preemptions -
                            std::exchange(preemptions_, scheduler_.totals().preemptions));
  outcome_.end = now + perf::to_duration(timing_.prefill_ms(plan.shape), config_.speedup);
  if (config_.role != SimRole::kPrefill) {
    outcome_.end +=
        perf::to_duration(timing_.decode_ms(plan.shape), config_.speedup * config_.decode_speedup);
  }
  outcome_.end =
      std::max(outcome_.end,
               now + perf::to_duration(config_.host_link.load_ms(plan.shape), config_.speedup));
  const uint64_t offloaded = scheduler_.host_tier().stored_total();
  outcome_.offloaded_blocks = offloaded - std::exchange(offloaded_, offloaded);
  for (const Sequence* sequence : plan.admitted) {
    outcome_.admitted.push_back({static_cast<uint32_t>(sequence->key.request.request.value()),
                                 sequence->cached_tokens, sequence->host_tokens});
  }
  sampled_.assign(plan.slices.size(), {});
  for (size_t i = 0; i < sampled_.size(); ++i) {
    if (plan.slices[i].sample) {
      sample(*plan.sequences[i], plan.slices[i].count == 1, sampled_[i]);
    }
  }
  return outcome_.end;
}

void TokenSimCore::sample(const Sequence& sequence, bool decodes, Sampled& out) const {
  const uint64_t seed =
      answers_.at(static_cast<uint32_t>(sequence.key.request.request.value())).seed;
  const auto token = [&](uint64_t index) { return static_cast<TokenId>(mix64(seed + index)); };
  const uint32_t said = sequence.output_tokens();
  out.token = token(said);
  if (!decodes) {
    return;
  }
  Random random(mix64(seed ^ kDraftStream) + said);
  const uint32_t drafts_max = sequence.stop.max_tokens - said - 1;
  for (const double acceptance : config_.draft_acceptance) {
    if (out.drafted.size() == drafts_max || random.uniform() >= acceptance) {
      return;
    }
    out.drafted.push_back(token(said + 1 + out.drafted.size()));
  }
}

void TokenSimCore::finish(SimOutcome& outcome) {
  STATOR_ASSERT(busy_, "what was started is finished");
  busy_ = false;
  if (computes_) {
    for (const SessionOutput& output : scheduler_.commit(sampled_)) {
      for (const inference::Delta& delta : output.output.deltas) {
        tell(delta);
      }
    }
  }
  outcome_.host_events = scheduler_.take_host_events();
  outcome_.events = scheduler_.take_events();
  outcome.clear();
  std::swap(outcome, outcome_);
}

void TokenSimCore::fail(TimePoint now, SimOutcome& outcome, std::vector<Lost>& lost) {
  outcome.clear();
  outcome.start = outcome.end = now;
  if (busy_) {
    std::swap(outcome.rejected, outcome_.rejected);
  }
  const size_t first = lost.size();
  for (const auto& [id, answer] : answers_) {
    lost.push_back({id, answer.tokens, answer.last_token});
  }
  std::sort(lost.begin() + static_cast<ptrdiff_t>(first), lost.end(),
            [](const Lost& a, const Lost& b) { return a.id < b.id; });
  for (const SimRequest& request : inbox_) {
    lost.push_back({request.id, request.prefilled ? 1U : 0U, request.first_token});
  }
}

void TokenSimCore::tell(const inference::Delta& delta) {
  const auto id = static_cast<uint32_t>(delta.key.request.value());
  Answer& answer = answers_.at(id);
  for (uint32_t i = 0; i < delta.token_count; ++i) {
    ++answer.tokens;
    if (answer.tokens == 1) {
      outcome_.first.push_back(id);
    } else {
      outcome_.gaps.push_back({outcome_.end - answer.last_token, 1});
    }
    if (answer.tokens == 2) {
      outcome_.second.push_back({id, outcome_.end});
    }
    answer.last_token = outcome_.end;
    const uint32_t computed = answer.prompt_tokens + answer.tokens - 1;
    if (answer.tokens > 1 && computed % config_.block_size == 0) {
      outcome_.grown.push_back({id, answer.tokens});
    }
  }
  if (delta.finish != inference::FinishReason::kNone) {
    outcome_.finished.push_back(id);
    answers_.erase(id);
  }
}

}  // namespace stator::engine
