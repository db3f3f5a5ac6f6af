// SPDX-License-Identifier: Apache-2.0
// What the scheduler tells of itself.
#include "stator/engine/core/scheduler.h"

namespace stator::engine {

LoadReport Scheduler::load() const {
  const uint32_t kept = kept_.empty() ? 0 : kept_.idle_blocks(pool_);
  return {.kv_used_blocks = pool_.used_blocks() - kept,
          .kv_cached_blocks = pool_.cached_blocks() + kept,
          .kv_total_blocks = pool_.total_blocks(),
          .running = running_count_,
          .waiting = waiting_count(),
          .prefix_hit_tokens = totals_.prefix_hit_tokens,
          .prefix_query_tokens = totals_.prefix_query_tokens,
          .preemptions = totals_.preemptions};
}

PassWork Scheduler::planned_work() const {
  PassWork work;
  Spread lengths;
  Spread contexts;
  for (const SequenceSlice& slice : plan_.slices) {
    const bool decodes =
        slice.start >= slice.prompt_tokens && slice.start + 1 == slice.tokens.size();
    if (decodes) {
      ++work.decode_requests;
      work.decode_kv_tokens += slice.tokens.size();
      contexts.add(static_cast<double>(slice.tokens.size()));
    } else {
      ++work.prefill_requests;
      work.prefill_tokens += slice.count;
      work.prefill_kv_tokens += slice.start;
      lengths.add(slice.prompt_tokens);
    }
  }
  work.prefill_length_var = lengths.variance();
  work.decode_kv_var = contexts.variance();
  return work;
}

PassQueue Scheduler::queue() const {
  PassQueue queue;
  Spread lengths;
  Spread contexts;
  for (const Sequence* sequence : waiting_) {
    if (sequence->preempted) {
      ++queue.decode_requests;
      queue.decode_kv_tokens += sequence->tokens.size();
      contexts.add(static_cast<double>(sequence->tokens.size()));
    } else {
      ++queue.prefill_requests;
      queue.prefill_tokens += sequence->prompt_tokens;
      lengths.add(sequence->prompt_tokens);
    }
  }
  queue.prefill_length_var = lengths.variance();
  queue.decode_kv_var = contexts.variance();
  return queue;
}

}  // namespace stator::engine
