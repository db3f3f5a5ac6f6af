// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/naive_sim_core.h"

#include <algorithm>
#include <utility>

#include "stator/core/assert.h"

namespace stator::engine {

void NaiveSimCore::submit(SimRequest request) {
  auto sequence = std::make_unique<Sequence>();
  sequence->generated = request.prefilled ? 1 : 0;
  sequence->last_token = request.first_token;
  sequence->request = std::move(request);
  waiting_.push_back(std::move(sequence));
}

SimCore::Load NaiveSimCore::load() const {
  return {.waiting = static_cast<uint32_t>(waiting_.size()),
          .running = static_cast<uint32_t>(running_.size()),
          .blocks_in_use = in_use()};
}

uint32_t NaiveSimCore::free_blocks() const {
  return config_.blocks - static_cast<uint32_t>(blocks_.size()) - nameless_;
}

uint32_t NaiveSimCore::in_use() const {
  return static_cast<uint32_t>(blocks_.size() - idle_.size()) + nameless_;
}

/// Makes sure that a block is free.
void NaiveSimCore::take_block() {
  if (free_blocks() > 0) {
    return;
  }
  STATOR_ASSERT(!idle_.empty(), "room was checked before");
  if (config_.publish_events) {
    outcome_.events.emplace_back(kv::BlocksRemoved{{blocks::ExternalHash(idle_.front().value())}});
  }
  blocks_.erase(idle_.front());
  idle_.pop_front();
}

void NaiveSimCore::hold(blocks::SequenceHash hash) {
  Block& block = blocks_.at(hash);
  if (block.holders++ == 0) {
    idle_.erase(block.idle);
  }
}

void NaiveSimCore::release(Sequence& sequence) {
  for (; !sequence.held.empty(); sequence.held.pop_back()) {
    const blocks::SequenceHash hash = sequence.held.back();
    Block& block = blocks_.at(hash);
    if (--block.holders == 0) {
      block.idle = idle_.insert(idle_.end(), hash);
    }
  }
  nameless_ -= sequence.nameless;
  sequence.nameless = 0;
}

/// The sequence's first `count` blocks are full and get their names; the partial one becomes one.
void NaiveSimCore::name(Sequence& sequence, uint32_t count) {
  SimRequest& request = sequence.request;
  nameless_ -= sequence.nameless;
  sequence.nameless = 0;
  // What is resident is held before anything is evicted for the rest.
  while (sequence.held.size() < count && sequence.held.size() < request.sequences.size() &&
         blocks_.contains(request.sequences[sequence.held.size()])) {
    hold(request.sequences[sequence.held.size()]);
    sequence.held.push_back(request.sequences[sequence.held.size()]);
  }
  while (sequence.held.size() < count) {
    const size_t at = sequence.held.size();
    if (at == request.sequences.size()) {
      const blocks::LocalHash local = answer_block(request.answer_seed, at);
      request.locals.push_back(local);
      request.sequences.push_back(at == 0 ? blocks::chain(local)
                                          : blocks::chain(request.sequences.back(), local));
    }
    const blocks::SequenceHash hash = request.sequences[at];
    if (blocks_.contains(hash)) {
      hold(hash);
    } else {
      take_block();
      blocks_[hash].holders = 1;
      if (config_.publish_events) {
        kv::BlocksStored stored;
        if (at > 0) {
          stored.parent = blocks::ExternalHash(request.sequences[at - 1].value());
        }
        stored.blocks.push_back({blocks::ExternalHash(hash.value()), request.locals[at]});
        outcome_.events.emplace_back(std::move(stored));
      }
    }
    sequence.held.push_back(hash);
  }
}

TimePoint NaiveSimCore::start(TimePoint now) {
  STATOR_ASSERT(!busy_ && has_work(), "passes are started one after the other, for work");
  outcome_.clear();
  outcome_.start = now;
  shape_ = {};
  budget_ = config_.max_num_batched_tokens;
  preempted_ = false;
  for (const Owned& sequence : running_) {
    sequence->scheduled = 0;
  }
  plan_running();
  plan_waiting();
  for (const Owned& sequence : running_) {
    if (sequence->computed == sequence->length()) {
      ++shape_.decode_requests;
      shape_.context_tokens += sequence->length();
    }
  }
  shape_.kv_tokens = uint64_t{in_use()} * config_.block_size;
  shape_.kv_tokens_max = uint64_t{config_.blocks} * config_.block_size;
  outcome_.end = now + perf::to_duration(timing_.prefill_ms(shape_), config_.speedup);
  if (config_.role != SimRole::kPrefill) {
    outcome_.end +=
        perf::to_duration(timing_.decode_ms(shape_), config_.speedup * config_.decode_speedup);
  }
  outcome_.passes = 1;
  outcome_.prefill_tokens = shape_.prefill_new_tokens;
  busy_ = true;
  return outcome_.end;
}

void NaiveSimCore::plan_running() {
  size_t at = 0;
  while (at < running_.size() && budget_ > 0) {
    Sequence* sequence = running_[at].get();
    const uint32_t tokens = std::min(sequence->length() - sequence->computed, budget_);
    const uint64_t after = uint64_t{sequence->computed} + tokens;
    const uint64_t needed = (after + config_.block_size - 1) / config_.block_size -
                            sequence->held.size() - sequence->nameless;
    while (sequence != nullptr && needed > free_blocks() + idle_.size()) {
      const size_t victim = config_.preemption == SimPreemption::kNewest ? running_.size() - 1 : 0;
      sequence = victim == at ? nullptr : sequence;
      preempt(victim);
      at -= victim < at ? 1 : 0;
    }
    if (sequence != nullptr) {
      schedule(*sequence, tokens);
      ++at;
    }
  }
}

void NaiveSimCore::preempt(size_t position) {
  STATOR_ASSERT(config_.rules == SchedulingRules::kVllm, "room was promised to the last token");
  Owned sequence = std::move(running_[position]);
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(position));
  budget_ += sequence->scheduled;
  release(*sequence);
  sequence->computed = 0;
  sequence->answering = false;
  waiting_.push_front(std::move(sequence));
  preempted_ = true;
  ++outcome_.preemptions;
}

bool NaiveSimCore::never_fits(const Sequence& sequence) const {
  const SimRequest& request = sequence.request;
  const uint64_t tokens = uint64_t{request.prompt_tokens} + request.output_tokens;
  const uint64_t blocks = (tokens + config_.block_size - 1) / config_.block_size;
  return (config_.max_model_len > 0 && request.prompt_tokens >= config_.max_model_len) ||
         blocks > config_.blocks ||
         (!config_.chunked_prefill && !request.prefilled &&
          tokens > config_.max_num_batched_tokens);
}

void NaiveSimCore::plan_waiting() {
  while (!preempted_ && !waiting_.empty() && running_.size() < config_.max_num_seqs) {
    if (never_fits(*waiting_.front())) {
      outcome_.rejected.push_back(waiting_.front()->request.id);
      waiting_.pop_front();
    } else if (!admit()) {
      return;
    }
  }
}

/// Whether everybody running and this one could run to their ends together.
bool NaiveSimCore::can_promise(const Sequence& sequence) const {
  const auto blocks_of = [&](const Sequence& one) {
    const uint64_t tokens = uint64_t{one.request.prompt_tokens} + one.request.output_tokens;
    return (tokens + config_.block_size - 1) / config_.block_size;
  };
  uint64_t blocks = blocks_of(sequence);
  for (const Owned& other : running_) {
    blocks += blocks_of(*other);
  }
  return blocks <= config_.blocks;
}

bool NaiveSimCore::admit() {
  Sequence& sequence = *waiting_.front();
  const std::vector<blocks::SequenceHash>& chain = sequence.request.sequences;
  size_t cached = 0;
  size_t cached_idle = 0;
  // The last token is always computed.
  while (config_.prefix_caching && cached < chain.size() &&
         (cached + 1) * config_.block_size < sequence.length() && blocks_.contains(chain[cached])) {
    cached_idle += blocks_.at(chain[cached]).holders == 0 ? 1 : 0;
    ++cached;
  }
  const auto cached_tokens = static_cast<uint32_t>(cached * config_.block_size);
  const uint32_t before =
      sequence.request.prefilled ? sequence.request.prompt_tokens : cached_tokens;
  const uint32_t tokens = std::min(sequence.length() - before, budget_);
  const uint64_t length = sequence.length();
  const uint64_t needed = (length + config_.block_size - 1) / config_.block_size - cached;
  if (tokens == 0 || (!config_.chunked_prefill && uint64_t{before} + tokens < length) ||
      needed + cached_idle > free_blocks() + idle_.size()) {
    return false;
  }
  if (config_.rules == SchedulingRules::kTrtllm && !can_promise(sequence)) {
    return false;
  }
  running_.push_back(std::move(waiting_.front()));
  waiting_.pop_front();
  for (size_t i = 0; i < cached; ++i) {
    hold(chain[i]);
    sequence.held.push_back(chain[i]);
  }
  sequence.computed = before;
  outcome_.admitted.push_back({sequence.request.id, cached_tokens});
  schedule(sequence, tokens);
  return true;
}

void NaiveSimCore::schedule(Sequence& sequence, uint32_t tokens) {
  const uint32_t prompt = sequence.request.prompt_tokens;
  shape_.add_prompt(std::min(sequence.computed, prompt),
                    std::min(sequence.computed + tokens, prompt));
  sequence.computed += tokens;
  sequence.scheduled = tokens;
  budget_ -= tokens;
  // A block that an answer fills is named when its pass ends, one of a prompt at once.
  const uint32_t full = sequence.computed / config_.block_size;
  if (config_.prefix_caching && !sequence.answering && full > sequence.held.size()) {
    name(sequence, full);
  }
  const uint64_t blocks =
      (uint64_t{sequence.computed} + config_.block_size - 1) / config_.block_size;
  while (sequence.held.size() + sequence.nameless < blocks) {
    take_block();
    ++nameless_;
    ++sequence.nameless;
  }
}

void NaiveSimCore::finish(SimOutcome& outcome) {
  STATOR_ASSERT(busy_, "what was started is finished");
  busy_ = false;
  std::vector<Owned> left;
  for (Owned& sequence : running_) {
    if (sequence->scheduled > 0 && sequence->computed == sequence->length()) {
      emit(*sequence);
      if (sequence->generated == sequence->request.output_tokens) {
        outcome_.finished.push_back(sequence->request.id);
        release(*sequence);
        continue;
      }
    }
    left.push_back(std::move(sequence));
  }
  running_ = std::move(left);
  outcome.clear();
  std::swap(outcome, outcome_);
}

void NaiveSimCore::fail(TimePoint now, SimOutcome& outcome, std::vector<Lost>& lost) {
  outcome.clear();
  outcome.start = outcome.end = now;
  if (busy_) {
    std::swap(outcome.rejected, outcome_.rejected);
  }
  for (const auto& sequence : running_) {
    lost.push_back({sequence->request.id, sequence->generated, sequence->last_token});
  }
  for (const auto& sequence : waiting_) {
    lost.push_back({sequence->request.id, sequence->generated, sequence->last_token});
  }
}

void NaiveSimCore::emit(Sequence& sequence) {
  const uint32_t id = sequence.request.id;
  if (sequence.answering && sequence.computed % config_.block_size == 0) {
    if (config_.prefix_caching) {
      name(sequence, sequence.computed / config_.block_size);
    }
    outcome_.grown.push_back({id, sequence.generated + 1});
  }
  sequence.answering = true;
  sequence.request.prefilled = false;
  ++sequence.generated;
  if (sequence.generated == 1) {
    outcome_.first.push_back(id);
  } else {
    outcome_.gaps.push_back({outcome_.end - sequence.last_token, 1});
  }
  if (sequence.generated == 2) {
    outcome_.second.push_back({id, outcome_.end});
  }
  sequence.last_token = outcome_.end;
}

}  // namespace stator::engine
