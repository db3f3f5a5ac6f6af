// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stator/lab/loadgen/measure.h"
#include "stator/lab/loadgen/records.h"

namespace stator::loadgen {

/// How busy the generator was, over all threads: the worst of each.
struct ClientFigures {
  uint32_t threads = 0;
  double busy_share = 0;
  double starved_share = 0;
  double cpu_s = 0;          ///< of work
  double waiting_cpu_s = 0;  ///< spent awake for sends due within microseconds
  double cpu_us_per_request = 0;
  double send_delay_p99_ms = 0;
  double turn_p99_ms = 0;    ///< how long it did not look at its sockets
  double wake_delay_ms = 0;  ///< mean time it waited for a core when something had arrived
  uint64_t connections = 0;  ///< opened
  uint64_t reconnects = 0;
  uint64_t held_back = 0;
};

// A client is the bottleneck from here on. At 85 % busy a queue of its own work already waits about
// as long as the work takes; below 1 ms or a tenth of the latency its delays, both at p99, do not
// change what is reported.
// A thread that waits for a core has something to read and cannot: it adds to what it measures.
inline constexpr double kBusyShareMax = 0.85;
inline constexpr double kStarvedShareMax = 0.5;
inline constexpr double kWakeDelayMsMin = 0.5;
inline constexpr double kWakeDelayShareMax = 0.05;  // of the median latency
inline constexpr double kDelayMsMin = 1;
inline constexpr double kDelayShareMax = 0.1;

/// Why the figures of a run say more about the generator than about the server; empty when they may
/// be published. `figures` gives send delays and latencies.
std::vector<std::string> judge_client(const ClientFigures& client, const Figures& figures);

}  // namespace stator::loadgen
