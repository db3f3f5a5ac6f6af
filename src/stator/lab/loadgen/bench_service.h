// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/lab/loadgen/bench_config.h"
#include "stator/lab/loadgen/report.h"

namespace stator::loadgen {

/// Which of several runs is going on, for a dashboard.
struct BenchProgress {
  size_t run = 1;   ///< from 1
  size_t runs = 0;  ///< 0 = not known beforehand
  double rate = 0;  ///< of a step of a sweep
};
using OnBenchTick = std::function<bool(const BenchProgress& progress, const LiveView& view)>;

/// Everything `stator bench` does but reading flags and printing: asks the server for its model if
/// none is given, makes the workload, runs, repeats or sweeps. Blocking. Errors: kInvalidArgument,
/// kNotFound (files), kUnavailable (no request was answered; the message has the first failure).
Result<Report> run_bench(const BenchConfig& config, const Clock& clock, const OnBenchTick& on_tick);

}  // namespace stator::loadgen
