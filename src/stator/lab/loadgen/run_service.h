// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/lab/loadgen/load_loop_service.h"
#include "stator/lab/loadgen/measure.h"
#include "stator/lab/loadgen/verdict.h"

namespace stator::loadgen {

/// What a dashboard shows of a run in progress: sums over its threads.
struct LiveView {
  double elapsed_s = 0;
  uint64_t sent = 0;
  uint64_t answered = 0;
  uint64_t failed = 0;
  uint64_t chunks = 0;
  uint64_t in_flight = 0;
  uint64_t backlog = 0;
  uint64_t latency_ns = 0;
  uint64_t first_ns = 0;
  uint64_t firsts = 0;
  double busy_share = 0;  ///< of the busiest thread, since the start
};

/// Called about four times a second on the thread that called run_load; it waits itself (that is
/// its way to watch for signals) and returns false to end the run.
using OnTick = std::function<bool(const LiveView& view)>;

struct RunPlan {
  LoopOptions loop;
  uint32_t threads = 1;
  MeasureOptions measure;
  Address address;
  const detail::TlsSettings* tls = nullptr;  ///< owned by the caller
};

struct RunResult {
  Figures figures;
  ClientFigures client;
  std::vector<std::string> client_bound;  ///< see judge_client
  bool interrupted = false;
  bool log_full = false;
  bool gave_up = false;
  double offered_per_s = 0;  ///< the rate of an open loop, else 0
  /// Answers in the second half of an open loop over requests due in it, but for chance (1 = the
  /// server keeps up).
  double keep_up = 1;
};

/// Raises the soft limit of open files and checks that `connections` fit. kInvalidArgument with the
/// `ulimit` to change.
Status check_descriptors(uint64_t connections);

/// Runs one load to its end: starts the threads, joins them, measures. Blocking; any thread.
RunResult run_load(const RunPlan& plan, const Workload& workload, const RequestBuilder& builder,
                   const Clock& clock, const OnTick& on_tick);

}  // namespace stator::loadgen
