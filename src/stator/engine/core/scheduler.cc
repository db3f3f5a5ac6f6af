// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "stator/core/assert.h"

namespace stator::engine {
namespace {

using api::FinishReason;

/// While others run, an admission leaves this share of the pool alone, so that they can grow for a
/// while before somebody must be preempted and recomputed.
constexpr uint32_t kWatermarkDivisor = 100;

bool contains(std::span<const TokenId> tokens, TokenId token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

/// Decides whether `delta`'s last token ends its sequence, which already contains the token.
void set_finish(Delta& delta, const Sequence& sequence, uint32_t max_model_len) {
  const api::StopConditions& stop = sequence.stop;
  const TokenId token = sequence.tokens.back();
  if (sequence.output_tokens() >= stop.min_tokens) {
    if (!stop.ignore_eos && contains(stop.eos_token_ids, token)) {
      delta.finish = FinishReason::kStop;
      return;
    }
    if (contains(stop.stop_token_ids, token)) {
      delta.finish = FinishReason::kStop;
      delta.stopped_by_token = true;
      return;
    }
  }
  if (sequence.output_tokens() >= stop.max_tokens || sequence.tokens.size() >= max_model_len) {
    delta.finish = FinishReason::kLength;
  }
}

}  // namespace

bool Scheduler::PolicyOrder::operator()(const Sequence* a, const Sequence* b) const {
  if (policy == SchedulingPolicy::kPriority && a->priority != b->priority) {
    return a->priority > b->priority;
  }
  return a->id < b->id;
}

Scheduler::Scheduler(const EngineConfig& config, kv::BlockPool::Events events)
    : config_(config), pool_(config.total_blocks, events), waiting_(PolicyOrder{config.policy}) {}

Scheduler::~Scheduler() = default;

Status Scheduler::add(SessionId session, EngineRequest request, TimePoint now) {
  STATOR_ASSERT(!planned_, "S7: add between plan and commit");
  if (waiting_count() - preempted_waiting_ >= config_.waiting_max) {
    return Error(Code::kOverloaded,
                 fmt::format("the engine's queue is full with {} waiting requests (waiting_max)",
                             config_.waiting_max));
  }
  const SequenceKey key{.session = session, .request = request.key};
  auto [entry, inserted] = live_.try_emplace(key);
  if (!inserted) {
    return Error(Code::kAlreadyExists,
                 fmt::format("request {} attempt {} is running already",
                             to_string(key.request.request), to_string(key.request.attempt)));
  }
  const uint64_t seed = blocks::hash_seed(request.lora_name, request.cache_salt);
  entry->second =
      std::make_unique<Sequence>(key, pool_, blocks::BlockHasher(config_.block_size, seed));
  Sequence& sequence = *entry->second;
  sequence.id = next_sequence_++;
  sequence.priority = request.priority;
  sequence.session_slot = take_slot(session);
  sequence.prompt_tokens = static_cast<uint32_t>(request.tokens.size()) - request.generated;
  sequence.arrived = now;
  sequence.tokens = std::move(request.tokens);
  sequence.sampling = std::move(request.sampling);
  sequence.stop = std::move(request.stop);
  if (config_.enable_prefix_caching) {
    sequence.hasher.append(sequence.tokens);
  }
  waiting_.insert(&sequence);
  return {};
}

bool Scheduler::cancel(SessionId session, RequestKey key) {
  STATOR_ASSERT(!planned_, "S7: cancel between plan and commit");
  const auto found = live_.find(SequenceKey{.session = session, .request = key});
  if (found == live_.end()) {
    return false;
  }
  end(*found->second);
  return true;
}

void Scheduler::cancel_session(SessionId session) {
  STATOR_ASSERT(!planned_, "S7: cancel between plan and commit");
  for (Sequence* sequence : live_in_arrival_order()) {
    if (sequence->key.session == session) {
      end(*sequence);
    }
  }
}

std::vector<SessionOutput>& Scheduler::fail_all(const Error& error) {
  STATOR_ASSERT(!planned_, "S7: fail_all between plan and commit");
  outputs_.clear();
  for (Sequence* sequence : live_in_arrival_order()) {
    output_for(*sequence).failures.push_back(
        {.key = sequence->key.request, .error = error.clone()});
    end(*sequence);
  }
  close_outputs();
  return outputs_;
}

const StepPlan& Scheduler::plan(TimePoint now) {
  STATOR_ASSERT(!planned_, "S7: plan twice without commit");
  forget_ended();
  plan_.slices.clear();
  plan_.sequences.clear();
  plan_.tokens = 0;
  budget_ = config_.max_num_batched_tokens;
  if (!plan_running()) {
    plan_waiting(now);
  }
  STATOR_ASSERT(!plan_.empty() || idle(), "S5: live requests but nothing to compute");
  planned_ = !plan_.empty();
  return plan_;
}

void Scheduler::forget_ended() {
  if (!ended_.empty()) {
    std::erase_if(running_, [](const Sequence* s) { return s->state == Sequence::State::kEnded; });
    ended_.clear();
  }
}

// Decodes first: a long prefill must not hold up everybody's next token.
bool Scheduler::plan_running() {
  prefills_.clear();
  const uint64_t preemptions_before = totals_.preemptions;
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.remaining() > 1) {
      prefills_.push_back(&sequence);  // its blocks were taken at admission
    } else if (grow(sequence)) {
      schedule(sequence, 1);
    }
  }
  for (Sequence* sequence : prefills_) {
    if (budget_ == 0) {
      break;
    }
    schedule(*sequence, std::min(sequence->remaining(), budget_));
  }
  return totals_.preemptions != preemptions_before;
}

void Scheduler::plan_waiting(TimePoint now) {
  admitted_.clear();
  while (!waiting_.empty() && budget_ > 0 && running_count_ < config_.max_num_seqs &&
         try_admit(**waiting_.begin(), now)) {
  }
  merge_admitted();
}

bool Scheduler::try_admit(Sequence& sequence, TimePoint now) {
  // At least one token must be computed to get logits for the next one.
  const size_t matchable = (sequence.tokens.size() - 1) / config_.block_size;
  const auto hashes = sequence.hasher.sequences();
  const auto wanted = hashes.first(std::min(matchable, hashes.size()));
  const kv::BlockPool::PrefixPeek peek = pool_.peek_prefix(wanted);
  const uint32_t hit_tokens = peek.blocks * config_.block_size;
  const uint32_t missing = blocks_for(sequence.tokens.size()) - peek.blocks;
  const uint32_t reserve = running_count_ > 0 ? config_.total_blocks / kWatermarkDivisor : 0;
  if (uint64_t{missing} + peek.idle_blocks + reserve > pool_.available_blocks()) {
    return false;
  }
  const uint32_t remaining = static_cast<uint32_t>(sequence.tokens.size()) - hit_tokens;
  if (remaining > budget_ && !config_.enable_chunked_prefill) {
    return false;
  }

  waiting_.erase(waiting_.begin());
  sequence.chain = pool_.match_prefix(wanted);
  for (uint32_t i = 0; i < missing; ++i) {
    sequence.chain.append(pool_.allocate());
  }
  sequence.computed = hit_tokens;
  sequence.state = Sequence::State::kRunning;
  preempted_waiting_ -= std::exchange(sequence.preempted, false) ? 1 : 0;
  ++running_count_;
  if (!std::exchange(sequence.admitted, true)) {
    sequence.cached_tokens = std::min(hit_tokens, sequence.prompt_tokens);
    totals_.prefix_query_tokens += sequence.tokens.size();
    totals_.prefix_hit_tokens += hit_tokens;
    totals_.queue_wait += now - sequence.arrived;
    ++totals_.admitted_requests;
  }
  admitted_.push_back(&sequence);
  schedule(sequence, std::min(remaining, budget_));
  return true;
}

bool Scheduler::grow(Sequence& sequence) {
  const uint32_t needed = blocks_for(sequence.tokens.size());
  while (sequence.chain.size() < needed) {
    kv::BlockHandle block = pool_.allocate();
    if (block) {
      sequence.chain.append(std::move(block));
      continue;
    }
    preempt_last();
    if (sequence.state == Sequence::State::kWaiting) {
      return false;
    }
  }
  return true;
}

void Scheduler::preempt_last() {
  STATOR_ASSERT(running_.size() > 1, "S5: a sequence alone does not fit into the pool");
  Sequence& sequence = *running_.back();
  running_.pop_back();
  --running_count_;
  sequence.chain.clear();
  sequence.computed = 0;
  sequence.state = Sequence::State::kWaiting;
  sequence.preempted = true;
  ++preempted_waiting_;
  ++totals_.preemptions;
  waiting_.insert(&sequence);
}

void Scheduler::schedule(Sequence& sequence, uint32_t count) {
  plan_.slices.push_back(SequenceSlice{.sequence = sequence.id,
                                       .tokens = sequence.tokens,
                                       .prompt_tokens = sequence.prompt_tokens,
                                       .start = sequence.computed,
                                       .count = count,
                                       .blocks = sequence.chain.ids(),
                                       .sample = count == sequence.remaining(),
                                       .sampling = &sequence.sampling,
                                       .stop = &sequence.stop});
  plan_.sequences.push_back(&sequence);
  plan_.tokens += count;
  budget_ -= count;
}

void Scheduler::merge_admitted() {
  const PolicyOrder order{config_.policy};
  if (running_.empty() || admitted_.empty() || order(running_.back(), admitted_.front())) {
    running_.insert(running_.end(), admitted_.begin(), admitted_.end());
    return;
  }
  merged_.clear();
  merged_.reserve(running_.size() + admitted_.size());
  std::merge(running_.begin(), running_.end(), admitted_.begin(), admitted_.end(),
             std::back_inserter(merged_), order);
  running_.swap(merged_);
}

std::vector<SessionOutput>& Scheduler::commit(std::span<Sampled> sampled) {
  STATOR_ASSERT(planned_, "S7: commit without a plan");
  STATOR_ASSERT(sampled.size() == plan_.slices.size(), "one outcome per slice");
  planned_ = false;
  outputs_.clear();
  for (size_t i = 0; i < sampled.size(); ++i) {
    Sequence& sequence = *plan_.sequences[i];
    const SequenceSlice& slice = plan_.slices[i];
    sequence.computed += slice.count;
    if (config_.enable_prefix_caching) {
      register_full_blocks(sequence, slice.start);
    }
    if (slice.sample) {
      accept(sequence, sampled[i]);
    }
  }
  totals_.computed_tokens += plan_.tokens;
  close_outputs();
  return outputs_;
}

void Scheduler::register_full_blocks(Sequence& sequence, uint32_t computed_before) {
  const uint32_t end = sequence.computed / config_.block_size;
  for (uint32_t i = computed_before / config_.block_size; i < end; ++i) {
    sequence.chain.register_block(
        i, {.sequence = sequence.hasher.sequences()[i], .local = sequence.hasher.locals()[i]});
  }
}

void Scheduler::accept(Sequence& sequence, Sampled& sampled) {
  StepOutput& output = output_for(sequence);
  Delta& delta = output.deltas.emplace_back();
  delta.key = sequence.key.request;
  delta.offset = sequence.output_tokens();
  delta.token_begin = static_cast<uint32_t>(output.tokens.size());
  delta.token_count = 1;
  if (std::exchange(sequence.first_delta, false)) {
    delta.cached_tokens = sequence.cached_tokens;
  }
  output.tokens.push_back(sampled.token);
  if (sampled.logprobs) {
    output.logprobs.resize(output.tokens.size());
    output.logprobs.back() = std::move(*sampled.logprobs);
  }
  sequence.tokens.push_back(sampled.token);
  if (config_.enable_prefix_caching) {
    sequence.hasher.append(sampled.token);
  }
  ++totals_.generated_tokens;
  set_finish(delta, sequence, config_.max_model_len);
  if (delta.finish != FinishReason::kNone) {
    ++totals_.finished_requests;
    end(sequence);
  }
}

StepOutput& Scheduler::output_for(const Sequence& sequence) {
  SessionSlot& slot = sessions_[sequence.session_slot];
  if (slot.output == kNone) {
    slot.output = static_cast<uint32_t>(outputs_.size());
    output_slots_.push_back(sequence.session_slot);
    SessionOutput& made = outputs_.emplace_back();
    made.session = slot.session;
    const size_t deltas_max = std::min<size_t>(slot.live, plan_.slices.size());
    made.output.deltas.reserve(deltas_max);
    made.output.tokens.reserve(deltas_max);
  }
  return outputs_[slot.output].output;
}

void Scheduler::close_outputs() {
  for (const uint32_t slot : output_slots_) {
    sessions_[slot].output = kNone;
  }
  output_slots_.clear();
  for (auto& [session, output] : outputs_) {
    if (!output.logprobs.empty()) {
      output.logprobs.resize(output.tokens.size());
    }
  }
}

std::vector<Sequence*> Scheduler::live_in_arrival_order() const {
  std::vector<Sequence*> out;
  out.reserve(live_.size());
  for (const auto& [key, sequence] : live_) {
    out.push_back(sequence.get());
  }
  std::sort(out.begin(), out.end(), [](auto* a, auto* b) { return a->id < b->id; });
  return out;
}

void Scheduler::end(Sequence& sequence) {
  if (sequence.state == Sequence::State::kWaiting) {
    waiting_.erase(&sequence);
    preempted_waiting_ -= sequence.preempted ? 1 : 0;
  } else {
    --running_count_;
  }
  sequence.state = Sequence::State::kEnded;
  sequence.chain.clear();
  SessionSlot& slot = sessions_[sequence.session_slot];
  if (--slot.live == 0) {
    session_slots_.erase(slot.session);
    free_slots_.push_back(sequence.session_slot);
  }
  const auto found = live_.find(sequence.key);
  ended_.push_back(std::move(found->second));  // running_ may still point to it
  live_.erase(found);
}

uint32_t Scheduler::take_slot(SessionId session) {
  const auto [entry, inserted] = session_slots_.try_emplace(session, 0);
  if (inserted) {
    if (free_slots_.empty()) {
      free_slots_.push_back(static_cast<uint32_t>(sessions_.size()));
      sessions_.emplace_back();
    }
    entry->second = free_slots_.back();
    free_slots_.pop_back();
    sessions_[entry->second].session = session;
  }
  ++sessions_[entry->second].live;
  return entry->second;
}

void Scheduler::reset_prefix_cache() {
  STATOR_ASSERT(!planned_, "S7: reset between plan and commit");
  pool_.reset();
}

uint32_t Scheduler::blocks_for(size_t tokens) const {
  return static_cast<uint32_t>((tokens + config_.block_size - 1) / config_.block_size);
}

LoadReport Scheduler::load() const {
  return {.kv_used_blocks = pool_.used_blocks(),
          .kv_cached_blocks = pool_.cached_blocks(),
          .kv_total_blocks = pool_.total_blocks(),
          .running = running_count_,
          .waiting = waiting_count(),
          .prefix_hit_tokens = totals_.prefix_hit_tokens,
          .prefix_query_tokens = totals_.prefix_query_tokens,
          .preemptions = totals_.preemptions};
}

void Scheduler::check_invariants() const {
  const PolicyOrder order{config_.policy};
  std::vector<const Sequence*> running;
  for (const Sequence* sequence : running_) {
    if (sequence->state != Sequence::State::kEnded) {
      running.push_back(sequence);
    }
  }
  STATOR_ASSERT(running.size() == running_count_, "S1: running count and list disagree");
  STATOR_ASSERT(running.size() + waiting_.size() == live_.size(), "S1: a sequence is in no queue");
  STATOR_ASSERT(std::is_sorted(running.begin(), running.end(), order), "S1: policy order");
  STATOR_ASSERT(running_count_ <= config_.max_num_seqs, "S2: too many running");
  STATOR_ASSERT(plan_.tokens <= config_.max_num_batched_tokens, "S2: too many tokens planned");
  for (const Sequence* sequence : running) {
    STATOR_ASSERT(sequence->state == Sequence::State::kRunning, "S1: state and queue disagree");
    STATOR_ASSERT(sequence->computed < sequence->tokens.size(), "S3: nothing left to compute");
    STATOR_ASSERT(sequence->chain.size() >= blocks_for(sequence->computed),
                  "S1: computed positions without a block");
  }
  uint32_t preempted = 0;
  for (const Sequence* sequence : waiting_) {
    STATOR_ASSERT(sequence->state == Sequence::State::kWaiting, "S1: state and queue disagree");
    STATOR_ASSERT(sequence->chain.empty(), "S1: a waiting sequence holds blocks");
    preempted += sequence->preempted ? 1 : 0;
  }
  STATOR_ASSERT(preempted == preempted_waiting_, "S2: preempted count");
  pool_.check_invariants();
}

}  // namespace stator::engine
