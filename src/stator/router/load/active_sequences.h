// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/router/load/load_grid.h"
#include "stator/router/load/load_row.h"
#include "stator/router/load/prefill_queue.h"
#include "stator/router/load/prompt_trie.h"
#include "stator/router/load/worker_rates.h"

namespace stator::router {

/// What a request will cost its worker, as booked when the worker was chosen.
struct Booking {
  LoadSlot slot = 0;
  uint32_t prompt_tokens = 0;
  uint32_t block_size = 16;                        ///< tokens per KV block, > 0
  uint32_t prefill_tokens = 0;                     ///< not cached there: what must be computed
  std::span<const blocks::SequenceHash> prompt;    ///< full blocks; copied
  std::optional<uint32_t> expected_output_tokens;  ///< lets its blocks weigh less towards its end
  Duration predicted_prefill{};                    ///< zero: no prediction, no decay
  bool shares_prefix = true;                       ///< false: its blocks are its own
  WorkerKey worker{};                              ///< whose slot it is, for replicas
  bool announced = true;                           ///< false: of another router
};

/// The load of every worker, from our own bookings: requests, prompt tokens to compute, KV blocks.
/// A pure core, one thread at a time; LoadBook is the thread-safe shell.
///
///            add                first_token                free
///   (none) ───────▶ PREFILL ─────────────────▶ DECODE ────────────▶ (none)
///                      └──────────────── free ──────────────────────▶
///
/// L1  A worker's load is exactly what its live bookings add up to: shared prompt blocks once.
/// L2  When no booking is alive, every number is zero.
/// L3  A slot is reused only when its worker was removed and its last booking has ended.
///
/// Output blocks, and prompt blocks only one request has, weigh 1 − output/expected when the
/// request said how long its answer will be: what is about to be given back weighs little.
/// Source: reference router, active sequences. 100 bytes and 8 bytes a prompt block per request.
class ActiveSequences {
 public:
  struct Ticket {
    uint32_t index = 0;
    friend bool operator==(const Ticket&, const Ticket&) = default;
  };

  LoadSlot add_worker();
  void remove_worker(LoadSlot slot);
  /// Slots in use and free ones; the length of the arrays below.
  size_t slot_count() const { return workers_.size(); }

  Ticket add(const Booking& booking, TimePoint now);
  /// The prompt is no longer work to come. Idempotent; the first time it returns how long that took
  /// since the booking.
  std::optional<Duration> first_token(Ticket ticket, TimePoint now);
  /// The answer is now this long and covers `new_blocks` more KV blocks than when last told.
  /// Returns the time per token since then, once the first token was told.
  std::optional<Duration> output_grew(Ticket ticket, uint32_t output_tokens, uint32_t new_blocks,
                                      TimePoint now);
  /// One more block of output. `weight` (0 … 1): what its output and exclusive blocks count from
  /// now on.
  void add_output_block(Ticket ticket, std::optional<double> weight);
  /// Ends the booking; the ticket is invalid afterwards.
  void free(Ticket ticket, TimePoint now);

  /// Whether some rows shrink as time goes by: else `now` below does not matter.
  bool decays() const { return decaying_ > 0; }
  /// The rows of `slots`, in that order.
  void read(std::span<const LoadSlot> slots, TimePoint now, std::span<LoadRow> rows) const;
  LoadRow row(LoadSlot slot, TimePoint now) const;
  const WorkerRates& rates() const { return rates_; }
  /// To be called before rates() are read: what was learned of workers that had no requests fades.
  void age_rates(TimePoint now);
  /// Leading blocks of the prompt that running requests of each slot hold already; `depths` is
  /// resized to slot_count().
  void find_held(std::span<const blocks::SequenceHash> prompt, std::vector<uint32_t>& depths) const;
  /// Slots for which find_held would say more than 0; appended.
  void find_holders(blocks::SequenceHash first, std::vector<LoadSlot>& slots) const {
    trie_.find_holders(first, slots);
  }

  /// Keeps the grid from now on. Not before a fleet is large: it costs each change a little.
  void keep_grid();
  /// All workers by their load; null when it is not kept, or loads shrink with time.
  const LoadGrid* grid() const { return grid_ && decaying_ == 0 ? &*grid_ : nullptr; }

  int64_t total_requests() const { return total_requests_; }
  size_t trie_nodes() const { return trie_.node_count(); }

 private:
  static constexpr int64_t kWhole = 1'000'000;  // weights are exact integers: sums return to zero

  struct Worker {
    PrefillQueue prefill;
    int64_t blocks = 0;        // unique prompt blocks, and output blocks
    int64_t discount_ppm = 0;  // Σ (1 − weight) · (output + exclusive) of its requests
    int64_t requests = 0;
    bool removed = false;
  };
  struct Request {
    LoadSlot slot = 0;
    PromptTrie::Node leaf = PromptTrie::kNone;
    int64_t own_blocks = 0;               // output, and prompt blocks outside the trie
    int64_t exclusive_blocks = 0;         // prompt blocks in the trie that only it holds
    int64_t discount = 0;                 // 1 − weight, in millionths
    uint32_t expected_output_tokens = 0;  // 0 = not said
    uint32_t tokens_ahead = 0;  // prompt tokens to compute when it was booked, its own included
    uint32_t output_tokens = 0;
    TimePoint last_news{};  // booked, first token, or the last growth
    bool prefilling = false;
    bool started = false;    // has its first token
    bool predicted = false;  // its prefill decays
  };

  void discount(Request& request, int64_t new_discount);
  void apply(std::span<const PromptTrie::Change> changes);
  uint32_t allocate();
  void refresh(LoadSlot slot);
  void end_prefill(Request& request, uint32_t index, TimePoint now);

  std::vector<Worker> workers_;
  std::vector<LoadRow> rows_;  // of workers_, without decay: what a decision reads, in one stream
  size_t decaying_ = 0;        // bookings with a predicted prefill: rows_ overstates those
  std::vector<LoadSlot> free_slots_;
  std::vector<Request> bookings_;
  std::vector<uint32_t> free_bookings_;
  PromptTrie trie_;
  WorkerRates rates_;
  int64_t total_requests_ = 0;
  std::optional<LoadGrid> grid_;
  std::vector<PromptTrie::Change> changes_;  // scratch
};

}  // namespace stator::router
