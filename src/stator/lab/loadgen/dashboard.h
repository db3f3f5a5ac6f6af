// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <string>

#include "stator/lab/loadgen/bench_service.h"

namespace stator::loadgen {

/// Turns what a run says about itself into text: a few lines to be drawn over each other on a
/// terminal, or one line per second for a log. Rates are of the time since the last text.
class Dashboard {
 public:
  static constexpr size_t kColumns = 60;  ///< of the throughput's history

  /// Lines, each ended by a newline; always kLines of them.
  static constexpr int kLines = 6;
  std::string draw_frame(const BenchProgress& progress, const LiveView& view);
  std::string draw_line(const BenchProgress& progress, const LiveView& view);

 private:
  struct Rates {
    double requests_per_s = 0;
    double chunks_per_s = 0;
    double first_ms = 0;    ///< mean time to first token
    double latency_ms = 0;  ///< mean
  };
  Rates advance(const LiveView& view);

  LiveView last_;
  std::deque<double> history_;
};

}  // namespace stator::loadgen
