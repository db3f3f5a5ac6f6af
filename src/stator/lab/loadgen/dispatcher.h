// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <queue>
#include <vector>

#include "stator/lab/loadgen/arrivals.h"
#include "stator/lab/loadgen/workload.h"

namespace stator::loadgen {

enum class LoadMode : uint8_t {
  kClosed,  ///< a fixed number of users, each asks again when answered
  kOpen,    ///< sessions arrive whether or not the server keeps up
  kTrace,   ///< sessions arrive when the workload says
};

struct DispatchOptions {
  LoadMode mode = LoadMode::kClosed;
  uint32_t concurrency = 1;        ///< closed: users of all threads together
  Duration ramp{};                 ///< closed: the users start evenly in this time
  ArrivalOptions arrivals;         ///< open
  uint64_t requests_max = 0;       ///< of all threads together; 0 = no limit
  Duration duration{};             ///< nothing is due at or after it; 0 = no limit
  uint32_t in_flight_max = 1024;   ///< open and trace, of this thread
  uint32_t backlog_max = 100'000;  ///< due but not sent because of in_flight_max, of this thread
  uint32_t share = 0;              ///< which of `shares` equal parts of the load is this one's
  uint32_t shares = 1;
};

/// One request to be sent.
struct Launch {
  uint64_t session = 0;
  uint32_t turn = 0;
  Duration due{};        ///< when it was meant to be sent, from the start of the run
  Duration sendable{};   ///< the same, or later when in_flight_max held it back
  bool dropped = false;  ///< the backlog was full: it counts as failed and is not sent
};

/// Decides which request is sent when; one per thread, without clock or I/O.
///
/// D1  Every arrival of the schedule is launched or dropped, exactly once and in order of its time.
/// D2  At most in_flight_max requests are launched and not finished; at most backlog_max wait.
/// D3  A session has one request in flight; turn k + 1 is due `delay` after turn k was answered. A
///     session whose turn failed ends there.
class Dispatcher {
 public:
  /// `workload` must outlive it.
  Dispatcher(const Workload& workload, const DispatchOptions& options);

  /// When take() may have something; nothing while only an answer can change that.
  std::optional<Duration> next_due();
  std::optional<Launch> take(Duration now);
  enum class Outcome : uint8_t { kAnswered, kFailed };
  void finished(uint64_t session, uint32_t turn, Outcome outcome, Duration now);
  /// Nothing is in flight and nothing will be launched any more.
  bool done();
  /// No further launch but those that wait in the backlog, which are returned by take() as dropped.
  void stop() { stopped_ = true; }

  uint32_t in_flight() const { return in_flight_; }
  size_t backlog() const { return ready_.size(); }
  /// The session that the next new arrival on this thread will be; for preparing its request.
  uint64_t next_session() const { return next_session_; }
  bool has_next_session() const;
  /// Launches that had to wait because of in_flight_max.
  uint64_t held_back() const { return held_back_; }

 private:
  struct Pending {
    Duration due;
    uint64_t sequence;  // keeps equal times in order
    uint64_t session;
    uint32_t turn;
    bool is_new;  // the session is chosen at launch
    bool operator>(const Pending& other) const {
      return due != other.due ? due > other.due : sequence > other.sequence;
    }
  };

  std::optional<Duration> next_arrival();
  void collect_due(Duration now);
  void add_ready(Launch launch, bool may_drop);
  void drop_idle_users();
  bool may_start(Duration due) const;
  uint64_t take_session();

  const Workload& workload_;
  const DispatchOptions options_;
  const uint64_t requests_max_;  // of this share
  ArrivalSchedule schedule_;
  uint64_t scheduled_ = 0;  // arrivals drawn from schedule_, of all shares
  std::optional<Duration> arrival_;
  uint32_t next_slot_;
  uint64_t next_session_;
  uint64_t sequence_ = 0;
  uint64_t committed_ = 0;  // launched, dropped or in ready_
  uint32_t in_flight_ = 0;
  uint64_t held_back_ = 0;
  Duration unblocked_at_{};
  bool stopped_ = false;
  std::priority_queue<Pending, std::vector<Pending>, std::greater<>> pending_;
  std::deque<Launch> ready_;
};

}  // namespace stator::loadgen
