// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/sim_scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "stator/core/assert.h"

namespace stator::engine {
namespace {

uint32_t ceil_div(uint64_t tokens, uint32_t block_size) {
  return static_cast<uint32_t>((tokens + block_size - 1) / block_size);
}

/// Both keep their memory. Member by member: as often as engines pass, the moves of std::swap
/// count.
void exchange(SimOutcome& a, SimOutcome& b) {
  std::swap(a.start, b.start);
  std::swap(a.end, b.end);
  std::swap(a.passes, b.passes);
  std::swap(a.dummy_passes, b.dummy_passes);
  std::swap(a.prefill_tokens, b.prefill_tokens);
  std::swap(a.preemptions, b.preemptions);
  std::swap(a.offloaded_blocks, b.offloaded_blocks);
  a.admitted.swap(b.admitted);
  a.rejected.swap(b.rejected);
  a.first.swap(b.first);
  a.second.swap(b.second);
  a.grown.swap(b.grown);
  a.finished.swap(b.finished);
  a.gaps.swap(b.gaps);
  a.host_events.swap(b.host_events);
  a.events.swap(b.events);
}

}  // namespace

SimScheduler::SimScheduler(const SimEngineConfig& config, const perf::TimingModel& timing)
    : config_(config), timing_(timing), cache_(config.blocks) {}

SimCore::Load SimScheduler::load() const {
  return {.waiting = static_cast<uint32_t>(waiting_.size()),
          .running = static_cast<uint32_t>(running_.size()),
          .blocks_in_use = cache_.in_use()};
}

uint32_t SimScheduler::generated(const Sequence& sequence) const {
  const uint64_t since = sequence.state == State::kDecoding ? passes_ - sequence.base : 0;
  return sequence.generated + static_cast<uint32_t>(since);
}

uint32_t SimScheduler::length(const Sequence& sequence) const {
  return sequence.request.prompt_tokens + generated(sequence);
}

uint32_t SimScheduler::decoding() const {
  return static_cast<uint32_t>(running_.size() - completing_.size()) -
         (prefilling_ == kNobody ? 0 : 1);
}

SimScheduler::Index SimScheduler::take_record(SimRequest request) {
  Index index = static_cast<Index>(sequences_.size());
  if (free_records_.empty()) {
    sequences_.emplace_back();
  } else {
    index = free_records_.back();
    free_records_.pop_back();
    sequences_[index] = {};
  }
  sequences_[index].generated = request.prefilled ? 1 : 0;
  sequences_[index].last_token = request.first_token;
  sequences_[index].request = std::move(request);
  return index;
}

void SimScheduler::submit(SimRequest request) {
  waiting_.push_back(take_record(std::move(request)));
}

// Planning a pass.

TimePoint SimScheduler::start(TimePoint now) {
  STATOR_ASSERT(!busy() && has_work(), "passes are started one after the other, for work");
  pending_.clear();
  preempted_ = false;
  head_blocked_ = false;
  perf::PassShape shape;
  step_.start = now;
  plan_blocks();
  budget_ = config_.max_num_batched_tokens - decoding();
  plan_prefill(shape);
  plan_admissions(shape);
  std::erase_if(fresh_, [&](Index i) { return sequences_[i].state != State::kDecoding; });

  shape.decode_requests = decoding() + static_cast<uint32_t>(completing_.size());
  shape.context_tokens = context_tokens_;
  for (const Index index : completing_) {
    shape.context_tokens += length(sequences_[index]);
  }
  shape.kv_tokens = uint64_t{cache_.in_use()} * config_.block_size;
  shape.kv_tokens_max = uint64_t{config_.blocks} * config_.block_size;
  step_ = {.start = now, .passes = 1, .shape = shape};
  step_.prefill = perf::to_duration(timing_.prefill_ms(shape), config_.speedup);
  step_.decode = decode_time(0);
  step_.passes = quiet_passes();
  return end_of(step_.passes);
}

/// Decoding sequences whose block is full need the next one, in the order of admission.
void SimScheduler::plan_blocks() {
  std::ranges::sort(needs_block_, {}, [&](Index i) { return sequences_[i].order; });
  for (size_t i = 0; i < needs_block_.size(); ++i) {
    const Index index = needs_block_[i];
    if (sequences_[index].state == State::kDecoding && make_room(index, 1)) {
      cache_.take_nameless(1, removed_);
      ++sequences_[index].nameless_blocks;
      note_removed();
    }
  }
  needs_block_.clear();
}

void SimScheduler::plan_prefill(perf::PassShape& shape) {
  if (prefilling_ == kNobody) {
    return;
  }
  const Index index = prefilling_;
  const Sequence& sequence = sequences_[index];
  const uint32_t tokens = std::min(length(sequence) - sequence.computed, budget_);
  const uint32_t blocks = ceil_div(uint64_t{sequence.computed} + tokens, config_.block_size) -
                          sequence.named_blocks - sequence.nameless_blocks;
  if (make_room(index, blocks)) {
    prefilling_ = kNobody;
    schedule_chunk(index, tokens, shape);
  }
}

/// Frees blocks until `blocks` are to be had, by preempting; false when `index` itself had to go.
bool SimScheduler::make_room(Index index, uint32_t blocks) {
  while (!cache_.can_take({}, blocks)) {
    const Index victim =
        config_.preemption == SimPreemption::kNewest ? running_.back() : running_.front();
    preempt(victim);
    if (victim == index) {
      return false;
    }
  }
  return true;
}

void SimScheduler::preempt(Index index) {
  STATOR_ASSERT(config_.rules == SchedulingRules::kVllm, "room was promised to the last token");
  Sequence& sequence = sequences_[index];
  if (sequence.state == State::kDecoding) {
    context_tokens_ -= length(sequence);
    sequence.generated = generated(sequence);
    sequence.last_token = step_.start;  // the pass before ended then
  }
  free_blocks(sequence);
  sequence.state = State::kWaiting;
  sequence.computed = 0;
  const auto at = std::ranges::find(running_, index) - running_.begin();
  running_.erase(running_.begin() + at);
  next_.erase(next_.begin() + at);
  prefilling_ = prefilling_ == index ? kNobody : prefilling_;
  waiting_.push_front(index);
  preempted_ = true;
  ++pending_.preemptions;
}

uint32_t SimScheduler::blocks_to_end(const Sequence& sequence) const {
  return ceil_div(uint64_t{sequence.request.prompt_tokens} + sequence.request.output_tokens,
                  config_.block_size);
}

bool SimScheduler::fits(const Sequence& sequence) const {
  const SimRequest& request = sequence.request;
  const uint64_t tokens = uint64_t{request.prompt_tokens} + request.output_tokens;
  return (config_.max_model_len == 0 || request.prompt_tokens < config_.max_model_len) &&
         blocks_to_end(sequence) <= config_.blocks &&
         (config_.chunked_prefill || request.prefilled || tokens <= config_.max_num_batched_tokens);
}

void SimScheduler::plan_admissions(perf::PassShape& shape) {
  while (!preempted_ && !waiting_.empty() && running_.size() < config_.max_num_seqs) {
    const Index index = waiting_.front();
    if (!fits(sequences_[index])) {
      waiting_.pop_front();
      pending_.rejected.push_back(sequences_[index].request.id);
      free_records_.push_back(index);
      continue;
    }
    if (!admit(index, shape)) {
      head_blocked_ = true;
      break;
    }
  }
}

/// Takes the first one waiting in, with as much of its prompt as is left of the budget; false when
/// there is no room.
bool SimScheduler::admit(Index index, perf::PassShape& shape) {
  Sequence& sequence = sequences_[index];
  const SimRequest& request = sequence.request;
  const uint32_t tokens_all = length(sequence);
  PrefixCache::Chain chain = request.sequences;
  // The last token is computed even when all blocks are cached: it makes the next one.
  chain = chain.first(std::min<size_t>(chain.size(), (tokens_all - 1) / config_.block_size));
  const PrefixCache::Match match =
      config_.prefix_caching ? cache_.match(chain) : PrefixCache::Match{};
  const uint32_t cached = match.blocks * config_.block_size;
  const uint32_t computed = request.prefilled ? request.prompt_tokens : cached;
  const uint32_t tokens = std::min(tokens_all - computed, budget_);
  if (tokens == 0 || (!config_.chunked_prefill && computed + tokens < tokens_all)) {
    return false;
  }
  // All of the sequence must fit, though its blocks are taken chunk by chunk: vLLM's
  // scheduler_reserve_full_isl.
  if (!cache_.can_take(match, ceil_div(tokens_all, config_.block_size) - match.blocks)) {
    return false;
  }
  if (config_.rules == SchedulingRules::kTrtllm) {
    if (promised_blocks_ + blocks_to_end(sequence) > config_.blocks) {
      return false;
    }
    promised_blocks_ += blocks_to_end(sequence);
  }
  waiting_.pop_front();
  running_.push_back(index);
  next_.push_back(kNever);
  sequence.leaf = cache_.acquire(chain, match.blocks);
  sequence.named_blocks = match.blocks;
  sequence.computed = computed;
  sequence.order = ++admissions_;
  sequence.state = State::kPrefilling;
  pending_.admitted.push_back({request.id, cached});
  schedule_chunk(index, tokens, shape);
  return true;
}

void SimScheduler::schedule_chunk(Index index, uint32_t tokens, perf::PassShape& shape) {
  Sequence& sequence = sequences_[index];
  const uint32_t prompt = sequence.request.prompt_tokens;
  shape.add_prompt(std::min(sequence.computed, prompt),
                   std::min(sequence.computed + tokens, prompt));
  sequence.computed += tokens;
  budget_ -= tokens;
  grow(sequence);
  if (sequence.computed == length(sequence)) {
    completing_.push_back(index);
  } else {
    prefilling_ = index;
  }
}

// Blocks.

/// Gives the sequence the blocks its computed tokens need; there is room. Full ones get their
/// names, so that who is scheduled next finds them.
void SimScheduler::grow(Sequence& sequence) {
  const uint32_t full = sequence.computed / config_.block_size;
  if (config_.prefix_caching && full > sequence.named_blocks) {
    name_blocks(sequence, full);
  }
  const uint32_t more = ceil_div(sequence.computed, config_.block_size) - sequence.named_blocks -
                        sequence.nameless_blocks;
  cache_.take_nameless(more, removed_);
  sequence.nameless_blocks += more;
  note_removed();
}

void SimScheduler::name_blocks(Sequence& sequence, uint32_t count) {
  SimRequest& request = sequence.request;
  while (request.sequences.size() < count) {
    const blocks::LocalHash local = answer_block(request.answer_seed, request.sequences.size());
    request.sequences.push_back(request.sequences.empty()
                                    ? blocks::chain(local)
                                    : blocks::chain(request.sequences.back(), local));
    request.locals.push_back(local);
  }
  cache_.give_nameless(sequence.nameless_blocks);
  sequence.nameless_blocks = 0;
  const auto extended =
      cache_.extend(sequence.leaf, PrefixCache::Chain(request.sequences).first(count),
                    sequence.named_blocks, removed_);
  sequence.leaf = extended.leaf;
  note_removed();
  const uint32_t from = sequence.named_blocks + extended.shared;
  sequence.named_blocks = count;
  if (!config_.publish_events || from == count) {
    return;
  }
  kv::BlocksStored stored;
  if (from > 0) {
    stored.parent = blocks::ExternalHash(request.sequences[from - 1].value());
  }
  stored.blocks.resize(count - from);
  for (uint32_t i = from; i < count; ++i) {
    stored.blocks[i - from] = {blocks::ExternalHash(request.sequences[i].value()),
                               request.locals[i]};
  }
  pending_.events.emplace_back(std::move(stored));
}

void SimScheduler::note_removed() {
  if (config_.publish_events && !removed_.empty()) {
    kv::BlocksRemoved gone;
    gone.blocks.resize(removed_.size());
    std::ranges::transform(removed_, gone.blocks.begin(), [](blocks::SequenceHash hash) {
      return blocks::ExternalHash(hash.value());
    });
    pending_.events.emplace_back(std::move(gone));
  }
  removed_.clear();
}

void SimScheduler::free_blocks(Sequence& sequence) {
  cache_.give_nameless(sequence.nameless_blocks);
  cache_.release(sequence.leaf);
  sequence.leaf = PrefixCache::kNone;
  sequence.named_blocks = 0;
  sequence.nameless_blocks = 0;
}

// Time.

Duration SimScheduler::decode_time(uint64_t pass) const {
  if (config_.role == SimRole::kPrefill) {
    return {};  // the token comes out of the prefill
  }
  perf::PassShape shape = step_.shape;
  shape.context_tokens += pass * shape.decode_requests;
  return perf::to_duration(timing_.decode_ms(shape), config_.speedup * config_.decode_speedup);
}

TimePoint SimScheduler::end_of(uint64_t passes) const {
  if (!step_.paced.empty()) {
    return step_.paced[passes - 1];
  }
  TimePoint end = step_.start + step_.prefill;
  if (!timing_.reads_context()) {
    return end + step_.decode * static_cast<int64_t>(passes);
  }
  for (uint64_t pass = 0; pass < passes; ++pass) {
    end += decode_time(pass);
  }
  return end;
}

/// How many passes like the planned one follow each other until the schedule changes by itself.
uint64_t SimScheduler::quiet_passes() const {
  const bool may_admit =
      !waiting_.empty() && !head_blocked_ && running_.size() < config_.max_num_seqs;
  if (running_.empty() || !completing_.empty() || prefilling_ != kNobody || may_admit ||
      !pending_.events.empty() || !pending_.rejected.empty()) {
    return 1;
  }
  return *std::ranges::min_element(next_) - passes_;
}

TimePoint SimScheduler::interrupt(TimePoint now) {
  STATOR_ASSERT(busy(), "only passes under way are interrupted");
  // Who stands before it found no room, and finds none until something changes.
  if (head_blocked_ || running_.size() >= config_.max_num_seqs) {
    return end_of(step_.passes);
  }
  uint64_t passes = 1;
  if (!timing_.reads_context() && step_.decode > Duration::zero()) {
    const Duration since = now - step_.start - step_.prefill + step_.decode - Duration(1);
    passes = static_cast<uint64_t>(std::max<int64_t>(1, since / step_.decode));
  } else {
    while (passes < step_.passes && end_of(passes) < now) {
      ++passes;
    }
  }
  step_.passes = std::min(step_.passes, passes);
  return end_of(step_.passes);
}

void SimScheduler::list_ends(std::vector<TimePoint>& ends) const {
  TimePoint end = step_.start + step_.prefill;
  for (uint64_t pass = 0; pass < step_.passes; ++pass) {
    end += timing_.reads_context() ? decode_time(pass) : step_.decode;
    ends.push_back(end);
  }
}

void SimScheduler::keep_pace(std::span<const TimePoint> ends) {
  step_.passes = ends.size();
  step_.paced.assign(ends.begin(), ends.end());
}

// The end of passes.

void SimScheduler::finish(SimOutcome& outcome) {
  STATOR_ASSERT(busy(), "what was started is finished");
  outcome.clear();
  exchange(outcome, pending_);
  outcome.start = step_.start;
  outcome.end = end_of(step_.passes);
  outcome.passes = step_.passes;
  outcome.prefill_tokens = step_.shape.prefill_new_tokens;
  count_gaps(outcome);
  context_tokens_ += decoding() * step_.passes;
  passes_ += step_.passes;
  for (const Index index : completing_) {
    start_answer(index, outcome);
  }
  completing_.clear();
  end_passes(outcome);
  std::ranges::move(pending_.events, std::back_inserter(outcome.events));
  pending_.events.clear();
  step_.passes = 0;
}

void SimScheduler::fail(TimePoint now, SimOutcome& outcome, std::vector<Lost>& lost) {
  TimePoint last = now;
  uint64_t ended = 0;
  if (busy()) {
    last = step_.start;
    while (ended < step_.passes && end_of(ended + 1) <= now) {
      last = end_of(++ended);
    }
  }
  if (ended > 0) {
    step_.passes = ended;
    finish(outcome);
  } else {
    outcome.clear();
    outcome.start = outcome.end = now;
    std::swap(outcome.rejected, pending_.rejected);
  }
  for (const Index index : running_) {
    const Sequence& sequence = sequences_[index];
    lost.push_back({sequence.request.id, generated(sequence),
                    sequence.state == State::kDecoding ? last : sequence.last_token});
  }
  for (const Index index : waiting_) {
    const Sequence& sequence = sequences_[index];
    lost.push_back({sequence.request.id, sequence.generated, sequence.last_token});
  }
}

void SimScheduler::count_gaps(SimOutcome& outcome) {
  const TimePoint second = end_of(1);
  for (const Index index : fresh_) {
    outcome.second.push_back({sequences_[index].request.id, second});
  }
  fresh_.clear();
  const uint64_t requests = decoding();
  if (requests == 0) {
    return;
  }
  if (!step_.paced.empty()) {
    TimePoint before = step_.start;
    for (uint64_t pass = 0; pass < step_.passes; ++pass) {
      outcome.gaps.push_back({step_.paced[pass] - before, requests});
      before = step_.paced[pass];
    }
    return;
  }
  if (!timing_.reads_context()) {
    outcome.gaps.push_back({step_.prefill + step_.decode, requests * step_.passes});
    return;
  }
  for (uint64_t pass = 0; pass < step_.passes; ++pass) {
    outcome.gaps.push_back(
        {(pass == 0 ? step_.prefill : Duration()) + decode_time(pass), requests});
  }
}

/// The pass that completed its prompt also made its first token, or the next one after a
/// preemption.
void SimScheduler::start_answer(Index index, SimOutcome& outcome) {
  Sequence& sequence = sequences_[index];
  const uint32_t id = sequence.request.id;
  sequence.state = State::kDecoding;
  sequence.base = passes_;
  sequence.request.prefilled = false;  // should it be preempted, its prompt is computed here
  ++sequence.generated;
  context_tokens_ += length(sequence);
  if (sequence.generated == 1) {
    outcome.first.push_back(id);
    fresh_.push_back(index);
    return;
  }
  outcome.gaps.push_back({outcome.end - sequence.last_token, 1});
  if (sequence.generated == 2) {
    outcome.second.push_back({id, outcome.end});
  }
}

uint64_t SimScheduler::next_change(const Sequence& sequence) const {
  const uint32_t in_block = (length(sequence) - 1) % config_.block_size;
  return passes_ + std::min(sequence.request.output_tokens - generated(sequence),
                            config_.block_size - in_block);
}

void SimScheduler::end_passes(SimOutcome& outcome) {
  size_t kept = 0;
  for (size_t i = 0; i < running_.size(); ++i) {
    const Index index = running_[i];
    Sequence& sequence = sequences_[index];
    const bool is_new = sequence.state == State::kDecoding && sequence.base == passes_;
    running_[kept] = index;
    next_[kept] = next_[i];
    if (next_[i] != passes_ && !is_new) {
      ++kept;
      continue;
    }
    // The latest token has no KV yet.
    const uint32_t computed = length(sequence) - 1;
    const bool block_full = computed % config_.block_size == 0;
    if (block_full && !is_new) {
      if (config_.prefix_caching) {
        name_blocks(sequence, computed / config_.block_size);
      }
      outcome.grown.push_back({sequence.request.id, generated(sequence)});
    }
    if (generated(sequence) < sequence.request.output_tokens) {
      if (block_full) {
        needs_block_.push_back(index);
      }
      next_[kept++] = next_change(sequence);
      continue;
    }
    outcome.finished.push_back(sequence.request.id);
    promised_blocks_ -= config_.rules == SchedulingRules::kTrtllm ? blocks_to_end(sequence) : 0;
    context_tokens_ -= length(sequence);
    free_blocks(sequence);
    sequence.state = State::kWaiting;
    free_records_.push_back(index);
  }
  running_.resize(kept);
  next_.resize(kept);
  std::erase_if(fresh_, [&](Index i) { return sequences_[i].state != State::kDecoding; });
}

}  // namespace stator::engine
