// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/result.h"
#include "stator/lab/simulator/trace_source.h"

namespace stator::simulator {

struct ArrivalsConfig {
  double speedup = 1;  ///< the trace's times are divided by it; delays of sessions are not
  uint32_t concurrency =
      0;  ///< closed loop: so many requests at once, first times ignored; 0 = open
};

/// When which request of a trace comes. In an open loop at its time; in a closed one as soon as
/// there is room. The turns of a session follow each other: the next one comes its delay after the
/// end of the one before (or as much later as the trace has them apart). A request with `wait_for`
/// comes its delay after the last of those has ended.
///
/// One request is read ahead, unless the trace has sessions or graphs: then it is read whole when
/// the first of them shows up, and only requests that follow nobody need to be in any order. A pure
/// core.
class Arrivals {
 public:
  /// `trace` outlives the object.
  Arrivals(TraceSource& trace, const ArrivalsConfig& config) : trace_(trace), config_(config) {}

  /// Before anything else. Errors are the trace's.
  Status start() { return read(); }
  /// When the next request may come, `now` at the earliest; nothing if none can come before another
  /// one ends.
  std::optional<TimePoint> next_time(TimePoint now, uint64_t in_flight) const;
  bool is_due(TimePoint now, uint64_t in_flight) const { return next_time(now, in_flight) == now; }
  /// The request that is due.
  Status take(TimePoint now, TraceRequest& request);
  /// A request has ended, one way or another. `session` may be empty.
  void on_end(const std::string& request_id, const std::string& session, TimePoint now);

 private:
  struct Session {
    std::deque<TraceRequest> turns;  // to come
    Duration last_arrival{};         // in the trace, of the last turn that came
    uint32_t next_turn = 1;
  };

  /// A request that waits for others.
  struct Waiting {
    TraceRequest request;
    uint32_t missing = 0;  // that have not ended
  };

  Status read();
  Status read_all();
  Error fail(const TraceRequest& request, std::string_view field, std::string_view what) const;
  Status link_graph();
  void end_turn(const std::string& session, TimePoint now);
  Duration scale(Duration time) const;

  TraceSource& trace_;
  const ArrivalsConfig config_;
  std::optional<TraceRequest> next_;
  bool has_all_ = false;
  std::deque<TraceRequest> firsts_;  // in the order of arrivals, when everything was read
  FlatMap<std::string, Session> sessions_;
  std::deque<Waiting> waiting_;
  FlatMap<std::string, std::vector<uint32_t>> followers_;  // by request id: into waiting_
  std::multimap<TimePoint, TraceRequest> turns_;  // that follow others, whose time is known
};

}  // namespace stator::simulator
