// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/core/random.h"
#include "stator/inference/sampling.h"

namespace stator::continuity {

/// How an attempt ended without finishing.
enum class Loss : uint8_t {
  kRefused,    ///< the worker took nothing: it is full, or draining
  kHandedOff,  ///< a draining worker gave back what it had begun, all its tokens sent
  kFailed,     ///< the worker lives, but could not go on or broke the protocol
  kStalled,    ///< the worker said nothing for too long
  kVanished,   ///< the connection broke with the request in flight
};

/// Whether a request may go on elsewhere.
enum class Replay : uint8_t {
  kNever,             ///< the client named the worker
  kBeforeFirstToken,  ///< the engine cannot take up what another one began
  kAlways,
};

struct JournalLimits {
  uint32_t migrations_max = 3;  ///< attempts lost by a worker's fault, after which it is given up
  uint32_t refusals_max = 8;    ///< refusals and hand-offs, which are nobody's fault
  uint32_t tokens_max = 0;      ///< prompt and output beyond this are not replayed; 0 = no limit
};

/// One choice's output as the client has it, and what to do when its worker is lost. With this the
/// token stream does not depend on which workers lived: what was accepted is never asked for again,
/// and what was not is generated anew from everything accepted. A pure core: plain state, no I/O,
/// clock or lock.
///
///   journal.take(attempt, offset, tokens)  → accept, drop or distrust
///   journal.lose(loss, worker)             → resubmit prompt + output(), finish here, or give up
///
/// J1  Accepted offsets are contiguous from 0; tokens enter the journal before anybody above sees
///     them.
/// J2  Attempt numbers only grow; output of an earlier attempt is never accepted.
/// J3  After finish() or a step other than kResubmit nothing is accepted any more.
/// J4  At most migrations_max + refusals_max + 1 attempts are made.
class Journal {
 public:
  struct Spec {
    uint32_t prompt_tokens = 0;
    const inference::StopConditions* stop = nullptr;  ///< outlives the journal
    Replay replay = Replay::kAlways;
    JournalLimits limits;
  };
  Journal() = default;
  explicit Journal(const Spec& spec) : spec_(spec) {}

  enum class Verdict : uint8_t {
    kAccepted,
    kStale,   ///< of an attempt that was given up, or known already
    kBroken,  ///< a gap, or other tokens than before at the same offsets: the attempt is worthless
  };
  struct Taken {
    Verdict verdict = Verdict::kStale;
    uint32_t skip = 0;  ///< so many of the tokens were known; the rest has been appended
  };
  /// O(tokens). An empty delta at the current end is accepted: it may carry a finish.
  Taken take(Attempt attempt, uint32_t offset, std::span<const TokenId> tokens);
  /// The choice has ended; whatever comes is stale.
  void finish() { ended_ = true; }

  enum class Step : uint8_t {
    kResubmit,      ///< as the attempt that attempt() is now, avoiding avoided()
    kFinishLength,  ///< nothing is left to generate: it only lacked its last word
    kFinishStop,    ///< the same: the last token ended it
    kGiveUp,        ///< tell the client; exhausted() says whether it was the limit
  };
  /// The current attempt is lost at `worker`. O(1) but for the list of workers.
  Step lose(Loss loss, WorkerKey worker);

  /// Appends tokens of our own to what was accepted, for a next attempt to go on from them; the
  /// current one is over, by nobody's fault. kResubmit, or how the choice ends here.
  Step interject(std::span<const TokenId> tokens);

  /// A worker that could not be asked: the next decision should not name it again.
  void avoid(WorkerKey worker) { avoided_.push_back(worker); }
  /// Nobody else is left: those that failed may be asked again.
  void forgive() { avoided_.clear(); }

  Attempt attempt() const { return attempt_; }
  std::span<const TokenId> output() const { return output_; }
  uint32_t generated() const { return static_cast<uint32_t>(output_.size()); }
  /// Nothing was accepted of the current attempt yet.
  bool attempt_is_fresh() const { return generated() == attempt_begin_; }
  std::span<const WorkerKey> avoided() const { return avoided_; }
  /// Resubmissions that were a worker's fault.
  uint32_t migrations() const { return migrations_; }
  /// Refusals and hand-offs.
  uint32_t refusals() const { return refusals_; }
  /// Given up because of a limit, not because it cannot be replayed at all.
  bool exhausted() const { return exhausted_; }
  /// Given up, or about to be, because of JournalLimits::tokens_max.
  bool too_long() const;
  /// Different workers that vanished with this choice in flight.
  uint32_t workers_killed() const { return static_cast<uint32_t>(killed_.size()); }

 private:
  bool replayable() const;
  Step finished_here() const;
  Step give_up(bool exhausted);
  void note_killed(WorkerKey worker);

  Spec spec_;
  std::vector<TokenId> output_;     // 4 bytes per token, at most the context
  std::vector<WorkerKey> avoided_;  // J4 bounds it and the next one
  std::vector<WorkerKey> killed_;
  Attempt attempt_;
  uint32_t attempt_begin_ = 0;  // generated() when it began
  uint32_t migrations_ = 0;
  uint32_t refusals_ = 0;
  bool ended_ = false;
  bool exhausted_ = false;
};

/// How long to wait before the n-th resubmission (from 1): none before the first, then a random
/// part of 25 ms · 2ⁿ, at most 1 s, so that many that failed together do not return together.
Duration migration_backoff(uint32_t nth, Random& random);

}  // namespace stator::continuity
