// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "stator/continuity/journal.h"
#include "stator/core/clock.h"
#include "stator/core/random.h"
#include "stator/core/result.h"
#include "stator/request/action.h"

namespace stator::request {

/// What of the configuration decides over lost workers.
struct RecoveryLimits {
  uint32_t poison_workers = 0;  ///< so many dead workers end a request; 0: none do
  Duration migration_wait{};    ///< what has lost a worker waits so long for another one
  Duration accept_timeout{};    ///< for these three zero is never
  Duration stream_idle_timeout{};
  Duration stall_timeout{};
};

class Recovery;

/// A place in the budget of second and later moves under way; gives it back when it goes.
class RetryPlace {
 public:
  RetryPlace() noexcept = default;
  RetryPlace(RetryPlace&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
  RetryPlace& operator=(RetryPlace&& other) noexcept;
  ~RetryPlace() { release(); }
  void release() noexcept;
  bool empty() const noexcept { return owner_ == nullptr; }

 private:
  friend class Recovery;
  explicit RetryPlace(Recovery& owner) noexcept : owner_(&owner) {}
  Recovery* owner_ = nullptr;
};

/// What a shard does for choices that lose their worker: when they go elsewhere, and whether. A
/// pure core: the time comes in, what to do comes out. It outlives the choices.
///
/// V1  At most max(10, a fifth of what runs) choices are on their second move or later at once, so
///     that many which lose one worker after the other do not drown those that are left.
class Recovery {
 public:
  Recovery(const RecoveryLimits& limits, Random& random) : limits_(limits), random_(random) {}
  Recovery(const Recovery&) = delete;
  Recovery& operator=(const Recovery&) = delete;

  /// Requests that run here; the budget is a part of them.
  void set_running(size_t requests) { running_ = requests; }

  /// What comes after the loss of the current attempt.
  continuity::Journal::Step judge(continuity::Journal& journal, continuity::Loss loss,
                                  WorkerKey culprit) const;
  /// How long it waits before the next attempt.
  Duration backoff(const continuity::Journal& journal, continuity::Loss loss, bool moving);
  /// Whether workers have died under it too often.
  bool is_poison(const continuity::Journal& journal) const;
  /// An empty place where none is needed: first moves are free. None: the budget is spent.
  std::optional<RetryPlace> take_place(const continuity::Journal& journal);
  /// Whether what lost its worker then still waits for another one.
  bool has_patience(const std::optional<LostWorker>& lost, TimePoint now) const;

  /// What is known of an attempt at a worker.
  struct Signs {
    WorkerId worker;
    TimePoint submitted;
    TimePoint last_token;            ///< zero: none yet
    std::optional<TimePoint> heard;  ///< of the worker, whatever it was
    bool accepted = false;
    bool fresh = true;  ///< no token of this attempt
  };
  /// Why the worker has to be given up, if it has. A worker that talks may still have forgotten one
  /// request, so the request's own silence counts, too.
  std::optional<std::string> stalled(const Signs& signs, TimePoint now) const;
  /// The same for a prompt at a prefill worker, asked then.
  bool prompt_stalled(TimePoint asked, std::optional<TimePoint> heard, TimePoint now) const;

 private:
  friend class RetryPlace;
  const RecoveryLimits limits_;
  Random& random_;
  size_t running_ = 0;
  size_t moving_ = 0;  // places taken
};

/// For the log of moves. Static text.
std::string_view describe(continuity::Loss loss);

}  // namespace stator::request
