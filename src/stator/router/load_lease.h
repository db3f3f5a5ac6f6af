// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/router/load/active_sequences.h"
#include "stator/router/session_table.h"

namespace stator::router {

class LoadLease;

/// The same request's place in another router's books; the destructor gives it back.
class RemoteBooking {
 public:
  virtual ~RemoteBooking() = default;
  virtual void prefill_completed() noexcept = 0;
};

/// What a LoadBook observes of the requests booked in it; default-made ones observe nothing.
struct LoadInstruments {
  Histogram first_token_seconds;  ///< from the booking
  Histogram inter_token_seconds;
  Histogram output_tokens;  ///< per booking
};

/// Told of every booking that other routers should know. Thread-safe; called without a lock.
class LoadAnnouncer {
 public:
  virtual ~LoadAnnouncer() = default;
  /// Returns the number that names it below; 0 = nobody is told.
  virtual uint64_t booked(const Booking& booking) = 0;
  virtual void prefill_completed(uint64_t number) = 0;
  virtual void freed(uint64_t number) = 0;
};

/// ActiveSequences for all shards: a lock and a clock around the core. Thread-safe; shared by the
/// router and by every lease, so that streams may outlive the router. The clock outlives both.
class LoadBook : public std::enable_shared_from_this<LoadBook> {
 public:
  static std::shared_ptr<LoadBook> make(const Clock& clock, LoadInstruments instruments = {});

  /// Before the first booking.
  void announce_to(std::shared_ptr<LoadAnnouncer> announcer) { announcer_ = std::move(announcer); }

  LoadSlot add_worker();
  void remove_worker(LoadSlot slot);

  /// Books and returns what gives it back.
  LoadLease take(const Booking& booking);

  /// The rows of `slots` in that order, as they are now.
  void read(std::span<const LoadSlot> slots, std::span<LoadRow> rows) const;
  /// Leading blocks of the prompt that requests on each slot hold already.
  void read_held(std::span<const blocks::SequenceHash> prompt, std::vector<uint32_t>& depths) const;
  /// See ActiveSequences::age_rates.
  void age_rates();
  void read_rates(std::span<const LoadSlot> slots, std::span<WorkerRates::Rates> rates) const;
  WorkerRates::Rates rates_of(LoadSlot slot) const;
  TimePoint now() const { return clock_.now(); }
  /// For what looks at many workers at once: `look(const ActiveSequences&)` under the lock.
  template <typename Look>
  void inspect(Look&& look) const {
    const MutexLock lock(mutex_);
    look(core_);
  }
  /// See ActiveSequences::keep_grid.
  void keep_grid();
  /// Requests booked by live leases; 0 when idle.
  int64_t total_requests() const;

  /// Called on whichever thread ended a booking or its prefill, without a lock held, while
  /// `set_watched(true)`: somebody waits for capacity. May be called once more after it was reset,
  /// so it must not rely on its owner being there.
  void set_listener(std::function<void()> listener);
  void set_watched(bool watched) { watched_.store(watched, std::memory_order_seq_cst); }

 private:
  friend class LoadLease;
  LoadBook(const Clock& clock, LoadInstruments instruments)
      : clock_(clock), instruments_(instruments) {}
  void first_token(ActiveSequences::Ticket ticket, uint64_t announced) noexcept;
  void output_grew(ActiveSequences::Ticket ticket, uint32_t tokens, uint32_t new_blocks) noexcept;
  void output_block(ActiveSequences::Ticket ticket, std::optional<double> weight) noexcept;
  void free(ActiveSequences::Ticket ticket, uint32_t output_tokens, uint64_t announced) noexcept;
  void tell() noexcept;

  const Clock& clock_;
  const LoadInstruments instruments_;
  std::shared_ptr<LoadAnnouncer> announcer_;  // shared by the books of a process; may be null
  std::atomic<bool> watched_{false};
  mutable Mutex mutex_;
  ActiveSequences core_ STATOR_GUARDED_BY(mutex_);
  // Shared with a call under way, which runs without the lock.
  std::shared_ptr<const std::function<void()>> listener_ STATOR_GUARDED_BY(mutex_);
};

/// One request's share of a worker's load: taken at selection, lives in the response stream, given
/// back by the destructor however the stream ends. Counting is ownership, so a stream that breaks,
/// is cancelled, retried or dropped cannot leak load. Move-only; use on one thread at a time.
class LoadLease {
 public:
  LoadLease() noexcept = default;
  LoadLease(LoadLease&& other) noexcept;
  LoadLease& operator=(LoadLease&& other) noexcept;
  LoadLease(const LoadLease&) = delete;
  LoadLease& operator=(const LoadLease&) = delete;
  ~LoadLease();

  /// The first output token arrived: the prompt is no longer work to come. Idempotent.
  void mark_prefill_completed() noexcept;
  /// So many more output tokens; the worker's blocks follow when they fill one. Takes the lock only
  /// then.
  void add_output_tokens(uint32_t count) noexcept;
  /// One more block of output, for callers that count in blocks; `weight` (0 … 1) is what its
  /// output and its own prompt blocks count from now on.
  void add_output_block(std::optional<double> weight) noexcept;
  /// Keeps the request's session bound while the lease lives.
  void hold_session(std::shared_ptr<SessionBinding> session) noexcept {
    session_ = std::move(session);
  }
  /// Ends this booking elsewhere when the lease ends.
  void hold_remote(std::unique_ptr<RemoteBooking> booking) noexcept {
    remote_ = std::move(booking);
  }
  /// The worker failed the request: its session, if any, chooses anew.
  void mark_failed() noexcept;
  /// Gives everything back now; the lease is empty afterwards.
  void release() noexcept;
  bool empty() const noexcept { return book_ == nullptr; }

 private:
  friend class LoadBook;
  LoadLease(std::shared_ptr<LoadBook> book, ActiveSequences::Ticket ticket,
            const Booking& booking) noexcept;
  void take_over(LoadLease& other) noexcept;
  uint32_t blocks_of(uint32_t output_tokens) const noexcept;

  std::shared_ptr<LoadBook> book_;           // shared: see LoadBook
  std::shared_ptr<SessionBinding> session_;  // shared with the table of sessions
  std::unique_ptr<RemoteBooking> remote_;    // null: booked here only
  ActiveSequences::Ticket ticket_;
  uint32_t prompt_tokens_ = 0;
  uint32_t block_size_ = 1;
  uint32_t output_tokens_ = 0;
  uint64_t announced_ = 0;  // the number that replicas know it by; 0 = they do not
  bool prefilling_ = false;
};

}  // namespace stator::router
