// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "stator/core/assert.h"
#include "stator/engine/core/finish.h"

namespace stator::engine {
namespace {

using inference::FinishReason;

/// While others run, an admission leaves this share of the pool alone, so that they can grow for a
/// while before somebody must be preempted and recomputed.
constexpr uint32_t kWatermarkDivisor = 100;

/// Kept prefixes may hold this share of the pool.
constexpr uint32_t kKeptDivisor = 4;

/// SGLang falls back to the order of arrival when more than this wait.
constexpr size_t kPrefixOrderMax = 128;

}  // namespace

bool Scheduler::PolicyOrder::operator()(const Sequence* a, const Sequence* b) const {
  if (policy == SchedulingPolicy::kPriority && a->priority != b->priority) {
    return a->priority > b->priority;
  }
  return a->id < b->id;
}

Scheduler::Scheduler(const EngineConfig& config, kv::BlockPool::Events events)
    : config_(config),
      host_(config.host_blocks, events, config.eviction),
      pool_(config.total_blocks, events, config.host_blocks > 0 ? &host_ : nullptr,
            config.eviction),
      kept_(config.total_blocks / kKeptDivisor),
      waiting_(PolicyOrder{config.policy}),
      new_token_ratio_(config.sglang) {}

Scheduler::~Scheduler() = default;

Status Scheduler::add(SessionId session, inference::EngineRequest request, TimePoint now,
                      const KnownPrompt& known, std::unique_ptr<guided::Guide> guide) {
  STATOR_ASSERT(!planned_, "S7: add between plan and commit");
  if (waiting_count() - preempted_waiting_ >= config_.waiting_max) {
    return Error(Code::kOverloaded,
                 fmt::format("the engine's queue is full with {} waiting requests (waiting_max)",
                             config_.waiting_max));
  }
  STATOR_TRY(std::shared_ptr<const Adapter> adapter, find_adapter(request, config_));
  const SequenceKey key{.session = session, .request = request.key};
  auto [entry, inserted] = live_.try_emplace(key);
  if (!inserted) {
    return Error(Code::kAlreadyExists,
                 fmt::format("request {} attempt {} is running already",
                             to_string(key.request.request), to_string(key.request.attempt)));
  }
  const uint64_t seed = blocks::hash_seed(request.lora_name, request.cache_salt);
  entry->second = std::make_unique<Sequence>(key, pool_, SequenceHashes(config_.block_size, seed));
  Sequence& sequence = *entry->second;
  sequence.owner = owner_of(request, config_.adapters.get(), config_.long_prompts);
  sequence.adapter = std::move(adapter);
  sequence.id = next_sequence_++;
  sequence.priority = request.priority;
  sequence.session_slot = take_slot(session);
  sequence.prompt_tokens = static_cast<uint32_t>(request.tokens.size()) - request.generated;
  sequence.spread(request.phase == inference::Phase::kPrefill ? config_.handoff_passes : 1);
  sequence.arrived = now;
  sequence.tokens = std::move(request.tokens);
  sequence.sampling = std::move(request.sampling);
  sequence.stop = std::move(request.stop);
  sequence.known_computed = known.computed;
  sequence.guide = std::move(guide);
  sequence.scores_prompt = request.prompt_logprobs;
  sequence.context = std::move(request.context);
  if (config_.enable_prefix_caching) {
    sequence.hasher.adopt(known.sequences, known.locals);
    sequence.hasher.append(
        std::span<const TokenId>(sequence.tokens)
            .subspan(std::min(sequence.tokens.size(),
                              known.sequences.size() * size_t{config_.block_size})));
  }
  waiting_.insert(&sequence);
  return {};
}

bool Scheduler::cancel(SessionId session, inference::RequestKey key) {
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
  now_ = now;
  kept_.expire(now);
  plan_.slices.clear();
  plan_.sequences.clear();
  plan_.admitted.clear();
  plan_.tokens = 0;
  plan_.shape = {};
  budget_ = config_.max_num_batched_tokens;
  for (const Sequence* sequence : running_) {
    if (sequence->guide != nullptr) {
      sequence->guide->stay_within_limits();  // before masks are shown to the runner
    }
  }
  if (config_.rules == SchedulingRules::kSglang) {
    if (!plan_prompts(now) || config_.sglang.mixed_chunk) {
      plan_decodes();
    }
  } else if (!plan_running()) {
    plan_waiting(now);
  }
  merge_admitted();
  plan_.copies = host_.take_copies();
  plan_.shape.kv_tokens = uint64_t{pool_.used_blocks()} * config_.block_size;
  plan_.shape.kv_tokens_max = uint64_t{config_.total_blocks} * config_.block_size;
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
  chosen_.clear();
  const uint64_t preemptions_before = totals_.preemptions;
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.remaining() > 1) {
      chosen_.push_back(&sequence);  // its blocks were taken at admission
    } else if (grow(sequence)) {
      schedule(sequence, 1);
    }
  }
  if (!plan_.slices.empty() && config_.prefill_budget > 0) {
    budget_ = std::min(budget_, config_.prefill_budget);
  }
  for (Sequence* sequence : chosen_) {
    if (budget_ == 0) {
      break;
    }
    schedule(*sequence, std::min({sequence->remaining(), budget_, sequence->pass_tokens}));
  }
  return totals_.preemptions != preemptions_before;
}

void Scheduler::plan_waiting(TimePoint now) {
  while (!waiting_.empty() && budget_ > 0 && running_count_ < config_.max_num_seqs &&
         try_admit(**waiting_.begin(), now)) {
  }
}

/// What of its tokens the cache has. At least one must be computed to get logits for the next.
Scheduler::PrefixHit Scheduler::find_prefix(const Sequence& sequence) const {
  // What is not computed has no logits.
  const size_t matchable =
      sequence.scores_prompt ? 0 : (sequence.tokens.size() - 1) / config_.block_size;
  const size_t hashed = sequence.hasher.sequences().size();
  PrefixHit hit{.wanted = sequence.full_blocks(std::min(matchable, hashed))};
  hit.peek = pool_.peek_prefix(hit.wanted);
  hit.computed = hit.peek.blocks * config_.block_size;
  if (!sequence.known_computed) {
    hit.host_blocks = host_.match({hit.wanted, hit.peek.blocks, hit.peek.last});
    hit.computed += hit.host_blocks * config_.block_size;
  } else {
    hit.computed = std::min(static_cast<uint32_t>(sequence.tokens.size()) - 1,
                            std::max(hit.computed, sequence.prompt_tokens));
  }
  return hit;
}

bool Scheduler::has_room(const Sequence& sequence, const PrefixHit& hit) const {
  const uint32_t missing = blocks_wanted(sequence) - hit.peek.blocks;
  const bool spares = running_count_ > 0 && config_.rules == SchedulingRules::kVllm;
  const uint32_t reserve = spares ? config_.total_blocks / kWatermarkDivisor : 0;
  return uint64_t{missing} + hit.peek.idle_blocks + reserve <= pool_.available_blocks() &&
         (config_.rules != SchedulingRules::kTrtllm ||
          promised_blocks_ + blocks_to_end(sequence) <= config_.total_blocks);
}

/// Whether it has, once prefixes that are kept have given way; `hit` is what it finds then.
bool Scheduler::make_room(const Sequence& sequence, PrefixHit& hit) {
  while (!has_room(sequence, hit)) {
    if (!kept_.give_up_one()) {
      return false;
    }
    hit = find_prefix(sequence);
  }
  return true;
}

bool Scheduler::try_admit(Sequence& sequence, TimePoint now) {
  PrefixHit hit = find_prefix(sequence);
  const bool fits = make_room(sequence, hit);
  const uint32_t remaining = static_cast<uint32_t>(sequence.tokens.size()) - hit.computed;
  if (!fits || (remaining > budget_ && !config_.enable_chunked_prefill)) {
    return false;
  }
  admit(sequence, hit, now);
  schedule(sequence, std::min({remaining, budget_, sequence.pass_tokens}));
  return true;
}

void Scheduler::admit(Sequence& sequence, const PrefixHit& hit, TimePoint now) {
  waiting_.erase(&sequence);
  take_blocks(sequence, hit);
  sequence.computed = hit.computed;
  sequence.registered = hit.peek.blocks;
  register_full_blocks(sequence);  // of what was computed elsewhere
  sequence.state = Sequence::State::kRunning;
  preempted_waiting_ -= std::exchange(sequence.preempted, false) ? 1 : 0;
  promised_blocks_ += blocks_to_end(sequence);
  ++running_count_;
  if (!std::exchange(sequence.admitted, true)) {
    const uint32_t hit_tokens = (hit.peek.blocks + hit.host_blocks) * config_.block_size;
    sequence.cached_tokens = std::min(hit_tokens, sequence.prompt_tokens);
    sequence.host_tokens = hit.host_blocks * config_.block_size;
    totals_.prefix_query_tokens += sequence.tokens.size();
    totals_.prefix_hit_tokens += hit_tokens;
    totals_.host_hit_tokens += sequence.host_tokens;
    totals_.queue_wait += now - sequence.arrived;
    sequence.note_admission(now);
    ++totals_.admitted_requests;
  }
  plan_.admitted.push_back(&sequence);
}

/// Those the device has, then room for what comes from host memory and for what is computed.
void Scheduler::take_blocks(Sequence& sequence, const PrefixHit& hit) {
  const uint32_t missing = blocks_wanted(sequence) - hit.peek.blocks;
  sequence.chain = pool_.match_prefix(hit.wanted);
  // Held, because allocate() may send other blocks to host memory.
  const std::vector<uint32_t> slots =
      host_.hold({hit.wanted, hit.peek.blocks, hit.peek.last}, hit.host_blocks);
  for (uint32_t i = 0; i < missing; ++i) {
    sequence.chain.append(pool_.allocate());
  }
  for (uint32_t i = 0; i < slots.size(); ++i) {
    host_.load(slots[i], sequence.chain.ids()[hit.peek.blocks + i]);
  }
  plan_.shape.host_tokens += uint64_t{hit.host_blocks} * config_.block_size;
}

// SGLang's rules.

bool Scheduler::plan_prompts(TimePoint now) {
  const uint32_t decodes =
      config_.sglang.mixed_chunk ? running_count_ - (chunked_ == nullptr ? 0 : 1) : 0;
  if (running_count_ == 0) {
    new_token_ratio_.on_idle();
  }
  PrefillAdmission pass(config_.sglang,
                        {.room_tokens = uint64_t{pool_.available_blocks()} * config_.block_size,
                         .promised_tokens = promised_tokens(),
                         .chunk_tokens = budget_ - decodes,
                         .page_tokens = config_.block_size});
  if (chunked_ != nullptr) {
    Sequence& sequence = *chunked_;
    const uint32_t left = sequence.remaining();
    const uint32_t tokens = pass.resume(left, answer_left(sequence));
    chunked_ = tokens < left ? chunked_ : nullptr;
    if (tokens > 0) {  // decodes may have taken them all
      schedule(sequence, tokens);
    }
  }
  for (Sequence* sequence : prompt_order()) {
    PrefixHit hit = find_prefix(*sequence);
    const uint32_t left = static_cast<uint32_t>(sequence->tokens.size()) - hit.computed;
    if (chunked_ != nullptr || pass.closed() || running_count_ >= config_.max_num_seqs ||
        !make_room(*sequence, hit)) {
      break;
    }
    uint32_t tokens = pass.offer(left, answer_left(*sequence));
    if (tokens == 0 && running_count_ == 0) {
      tokens = std::min(left, budget_);  // alone it always fits
    }
    if (tokens == 0) {
      break;
    }
    admit(*sequence, hit, now);
    schedule(*sequence, tokens);
    chunked_ = tokens < left ? sequence : nullptr;
  }
  return !plan_.empty();
}

/// Who waits, in the order they are taken in.
std::vector<Sequence*> Scheduler::prompt_order() const {
  std::vector<Sequence*> order(waiting_.begin(), waiting_.end());
  if (config_.sglang.longest_prefix_first && order.size() <= kPrefixOrderMax) {
    FlatMap<const Sequence*, uint32_t> cached;
    for (const Sequence* sequence : order) {
      cached[sequence] = find_prefix(*sequence).computed;
    }
    const PolicyOrder arrival{config_.policy};
    std::ranges::sort(order, [&](const Sequence* a, const Sequence* b) {
      const uint32_t of_a = cached.at(a);
      const uint32_t of_b = cached.at(b);
      return of_a != of_b ? of_a > of_b : arrival(a, b);
    });
  }
  return order;
}

double Scheduler::promised_tokens() const {
  uint64_t tokens = 0;
  for (const Sequence* sequence : running_) {
    if (sequence->state == Sequence::State::kRunning && sequence != chunked_) {
      tokens += std::min(answer_left(*sequence), config_.sglang.clip_max_new_tokens);
    }
  }
  return static_cast<double>(tokens) * new_token_ratio_.value();
}

uint32_t Scheduler::answer_left(const Sequence& sequence) const {
  const auto length = static_cast<uint32_t>(sequence.tokens.size());
  return std::min(sequence.stop.max_tokens - sequence.output_tokens(),
                  config_.max_model_len - length);
}

void Scheduler::plan_decodes() {
  chosen_.clear();
  uint32_t missing = 0;
  for (Sequence* sequence : running_) {
    const bool in_this_pass = std::ranges::find(plan_.sequences, sequence) != plan_.sequences.end();
    if (sequence != chunked_ && !in_this_pass) {
      chosen_.push_back(sequence);
      missing += blocks_missing(*sequence);
    }
  }
  if (!chosen_.empty() && !retract(missing)) {
    new_token_ratio_.on_decode();
  }
  for (Sequence* sequence : chosen_) {
    if (grow(*sequence)) {
      schedule(*sequence, 1);
    }
  }
}

/// Sends sequences of chosen_, who all decode, back to the queue until `missing` blocks are to be
/// had or one is left. False when nobody had to go.
bool Scheduler::retract(uint32_t missing) {
  while (missing > pool_.available_blocks() && kept_.give_up_one()) {
  }
  if (missing <= pool_.available_blocks()) {
    return false;
  }
  // Fewest generated tokens first, then longest prompts.
  std::ranges::sort(chosen_, [](const Sequence* a, const Sequence* b) {
    return std::pair(a->output_tokens(), b->prompt_tokens) >
           std::pair(b->output_tokens(), a->prompt_tokens);
  });
  while (missing > pool_.available_blocks() && chosen_.size() > 1) {
    Sequence* victim = chosen_.back();
    chosen_.pop_back();
    missing -= blocks_missing(*victim);
    std::erase(running_, victim);
    preempt(*victim);
  }
  uint64_t generated = 0;
  uint64_t allowed = 0;
  for (const Sequence* sequence : chosen_) {
    generated += sequence->output_tokens();
    allowed += sequence->output_tokens() + answer_left(*sequence);
  }
  new_token_ratio_.on_retraction(generated, allowed, static_cast<uint32_t>(chosen_.size()));
  std::ranges::sort(chosen_, PolicyOrder{config_.policy});
  return true;
}

bool Scheduler::grow(Sequence& sequence) {
  const uint32_t needed = blocks_wanted(sequence);
  while (sequence.chain.size() < needed) {
    kv::BlockHandle block = pool_.allocate();
    if (block) {
      sequence.chain.append(std::move(block));
      continue;
    }
    if (kept_.give_up_one()) {
      continue;
    }
    if (config_.rules == SchedulingRules::kSglang) {
      return false;  // beside a prompt that was begun; it goes on when that is done
    }
    STATOR_ASSERT(running_.size() > 1, "S5: a sequence alone does not fit into the pool");
    Sequence& last = *running_.back();
    running_.pop_back();
    preempt(last);
    if (sequence.state == Sequence::State::kWaiting) {
      return false;
    }
  }
  return true;
}

/// The caller has taken it out of running_.
void Scheduler::preempt(Sequence& sequence) {
  STATOR_ASSERT(config_.rules != SchedulingRules::kTrtllm, "room was promised to the last token");
  --running_count_;
  promised_blocks_ -= blocks_to_end(sequence);
  sequence.chain.clear();
  sequence.computed = 0;
  sequence.registered = 0;
  sequence.known_computed = false;
  sequence.prompt_scores.clear();
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
                                       .stop = &sequence.stop,
                                       .score_prompt = sequence.scores_prompt,
                                       .adapter = sequence.adapter.get(),
                                       .may_draft = !sequence.sampling.logprobs});
  if (SequenceSlice& slice = plan_.slices.back(); slice.sample && sequence.guide != nullptr) {
    // The last of the tokens left is for EOS.
    const uint32_t left = std::max(answer_left(sequence), 2U) - 1;
    slice.may_draft = false;  // in free text before the grammar begins, too
    if (const guided::TokenSet* mask = sequence.guide->mask(left); mask != nullptr) {
      slice.allowed = mask->words();
      slice.may_end = sequence.guide->may_end();
      sequence.guess_masks.begin(*sequence.guide, left);
      slice.guess_masks = &sequence.guess_masks;
      slice.may_draft = !sequence.sampling.logprobs;
    }
  }
  plan_.sequences.push_back(&sequence);
  plan_.tokens += count;
  budget_ -= count;
  const uint32_t end = sequence.computed + count;
  plan_.shape.add_prompt(std::min(sequence.computed, sequence.prompt_tokens),
                         std::min(end, sequence.prompt_tokens));
  if (end == sequence.tokens.size()) {
    ++plan_.shape.decode_requests;
    plan_.shape.context_tokens += end;
  }
}

void Scheduler::merge_admitted() {
  const PolicyOrder order{config_.policy};
  const auto middle = static_cast<ptrdiff_t>(running_.size());
  running_.insert(running_.end(), plan_.admitted.begin(), plan_.admitted.end());
  // Sorted already, unless priorities differ or prefixes went first.
  const auto old_last = running_.begin() + std::max<ptrdiff_t>(middle - 1, 0);
  if (!std::is_sorted(old_last, running_.end(), order)) {
    std::ranges::sort(running_, order);
  }
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
    std::ranges::move(sampled[i].prompt, std::back_inserter(sequence.prompt_scores));
    if (!sampled[i].error.empty()) {
      fail(sequence, Error(Code::kInternal, sampled[i].error));
    } else if (slice.sample) {
      accept(sequence, sampled[i]);
    }
    if (sequence.state == Sequence::State::kRunning) {
      register_full_blocks(sequence);
    }
  }
  totals_.computed_tokens += plan_.tokens;
  close_outputs();
  return outputs_;
}

void Scheduler::register_full_blocks(Sequence& sequence) {
  if (!config_.enable_prefix_caching) {
    return;
  }
  const uint32_t end = sequence.computed / config_.block_size;
  const kv::SequenceBlocks blocks = sequence.full_blocks(std::max(end, sequence.registered));
  for (; sequence.registered < end; ++sequence.registered) {
    sequence.chain.register_block(sequence.registered, blocks[sequence.registered]);
  }
}

void Scheduler::accept(Sequence& sequence, Sampled& sampled) {
  STATOR_ASSERT(sampled.drafted.size() <= config_.draft_tokens, "more tokens than there is room");
  inference::StepOutput& output = output_for(sequence);
  inference::Delta& delta = output.deltas.emplace_back();
  delta.key = sequence.key.request;
  delta.offset = sequence.output_tokens();
  delta.token_begin = static_cast<uint32_t>(output.tokens.size());
  if (std::exchange(sequence.first_delta, false)) {
    delta.cached_tokens = sequence.cached_tokens;
    delta.queued_us = sequence.queued_us;
    send_prompt_scores(sequence, output);
  }
  append_token(sequence, sampled.token, output, delta);
  if (!follow_grammar(sequence, output, delta)) {
    refuse_token(sequence, output);
    return;
  }
  if (sampled.logprobs) {
    output.logprobs.resize(output.tokens.size());
    output.logprobs.back() = std::move(*sampled.logprobs);
  }
  for (const TokenId token : sampled.drafted) {
    if (delta.finish != FinishReason::kNone) {
      break;
    }
    ++sequence.computed;
    append_token(sequence, token, output, delta);
    if (!follow_grammar(sequence, output, delta)) {
      refuse_token(sequence, output);
      return;
    }
  }
  if (delta.finish != FinishReason::kNone) {
    ++totals_.finished_requests;
    register_full_blocks(sequence);
    end(sequence);
  }
}

/// Tells the guide of the last token; what ends a sequence is no part of its text. False if the
/// grammar has no place for it.
bool Scheduler::follow_grammar(Sequence& sequence, inference::StepOutput& output,
                               inference::Delta& delta) {
  if (sequence.guide == nullptr || delta.finish == FinishReason::kStop) {
    return true;
  }
  if (!sequence.guide->accept(sequence.tokens.back())) {
    return false;
  }
  if (delta.finish != FinishReason::kNone || !sequence.guide->must_end()) {
    return true;
  }
  const inference::StopConditions& stop = sequence.stop;
  if (stop.ignore_eos || stop.eos_token_ids.empty()) {
    delta.finish = FinishReason::kLength;
  } else if (!sequence.sampling.logprobs) {
    // The only token that may come needs no pass to be found.
    append_token(sequence, stop.eos_token_ids.front(), output, delta);
    delta.finish = FinishReason::kStop;
  }
  return true;
}

/// Nothing of the last delta is sent: its grammar has no place for a token of it.
void Scheduler::refuse_token(Sequence& sequence, inference::StepOutput& output) {
  output.tokens.resize(output.deltas.back().token_begin);
  output.logprobs.resize(std::min(output.logprobs.size(), output.tokens.size()));
  output.deltas.pop_back();
  fail(sequence, Error(Code::kUnsupported,
                       "no token of the model's vocabulary goes on as structured_outputs asks"));
}

void Scheduler::fail(Sequence& sequence, Error error) {
  output_for(sequence).failures.push_back({.key = sequence.key.request, .error = std::move(error)});
  end(sequence);
}

void Scheduler::send_prompt_scores(Sequence& sequence, inference::StepOutput& output) const {
  if (sequence.scores_prompt) {
    output.prompts.push_back(
        {.key = sequence.key.request, .tokens = std::move(sequence.prompt_scores)});
    sequence.scores_prompt = false;
  }
}

void Scheduler::append_token(Sequence& sequence, TokenId token, inference::StepOutput& output,
                             inference::Delta& delta) {
  ++delta.token_count;
  output.tokens.push_back(token);
  sequence.tokens.push_back(token);
  if (config_.enable_prefix_caching) {
    sequence.hasher.append(std::span(&token, 1));
  }
  ++totals_.generated_tokens;
  set_finish(delta, sequence, config_.max_model_len);
}

inference::StepOutput& Scheduler::output_for(const Sequence& sequence) {
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
    promised_blocks_ -= blocks_to_end(sequence);
  }
  chunked_ = chunked_ == &sequence ? nullptr : chunked_;
  sequence.state = Sequence::State::kEnded;
  keep_prefix(sequence);
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

/// What its client wants again stays; what nobody wants any more may go.
void Scheduler::keep_prefix(const Sequence& sequence) {
  if (sequence.context == nullptr) {
    return;
  }
  const inference::RequestContext& context = *sequence.context;
  if (context.session_final) {
    kept_.forget(context.session);
  } else if (const uint32_t keep_s = keep_seconds(context); keep_s > 0 && sequence.registered > 0) {
    kept_.keep(pool_.match_prefix(sequence.full_blocks(sequence.registered)), context.session,
               now_ + std::chrono::seconds(keep_s));
  }
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

size_t Scheduler::cached_blocks(const kv::SequenceBlocks& sequence) const {
  const kv::BlockPool::PrefixPeek peek = pool_.peek_prefix(sequence);
  return peek.blocks + host_.match({sequence, peek.blocks, peek.last});
}

std::vector<uint32_t> Scheduler::reserve_host_slots(const kv::SequenceBlocks& sequence,
                                                    uint32_t count) {
  const kv::BlockPool::PrefixPeek peek = pool_.peek_prefix(sequence);
  const kv::HostTier::Tail tail{sequence, peek.blocks, peek.last};
  // Held meanwhile: without what is in front, blocks that are loaded would be of no use.
  const std::vector<uint32_t> front = host_.hold(tail, host_.match(tail));
  std::vector<uint32_t> slots = host_.reserve(count);
  host_.use(front);
  return slots;
}

void Scheduler::give_back_host_slots(std::span<const uint32_t> slots) {
  for (const uint32_t slot : slots) {
    host_.give_back(slot);
  }
}

void Scheduler::reset_prefix_cache() {
  STATOR_ASSERT(!planned_, "S7: reset between plan and commit");
  kept_.clear();
  pool_.reset();
}

uint32_t Scheduler::blocks_for(size_t tokens) const {
  return static_cast<uint32_t>((tokens + config_.block_size - 1) / config_.block_size);
}

uint32_t Scheduler::blocks_wanted(const Sequence& sequence) const {
  return std::min(blocks_for(sequence.tokens.size() + config_.draft_tokens),
                  blocks_to_end(sequence));
}

uint32_t Scheduler::blocks_missing(const Sequence& sequence) const {
  const auto has = static_cast<uint32_t>(sequence.chain.size());
  return std::max(blocks_wanted(sequence), has) - has;
}

uint32_t Scheduler::blocks_to_end(const Sequence& sequence) const {
  return blocks_for(std::min(uint64_t{sequence.prompt_tokens} + sequence.stop.max_tokens,
                             uint64_t{config_.max_model_len}));
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
