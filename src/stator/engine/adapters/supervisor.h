// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"

namespace stator::engine::adapters {

/// When a process that ended is started again: after `first`, then twice as long each time up to
/// `longest`; one that ran for `steady` starts from `first` again. Pure.
class RestartPolicy {
 public:
  struct Config {
    Duration first = std::chrono::seconds(1);
    Duration longest = std::chrono::seconds(30);
    Duration steady = std::chrono::seconds(60);
  };
  explicit RestartPolicy(Config config) : config_(config), next_(config.first) {}

  /// How long to wait after a process ended that ran for `ran`.
  Duration on_exit(Duration ran);

 private:
  Config config_;
  Duration next_;
};

/// A program to be kept running.
struct SupervisorConfig {
  std::vector<std::string> command;  ///< program, looked up in PATH, and its arguments
  RestartPolicy::Config restart;
  Duration stop_timeout = std::chrono::seconds(30);  ///< from SIGTERM to SIGKILL
};

/// Runs an engine server as a child process: its output goes line by line into our log (target
/// "engine"), it is started again when it ends, and stop() ends its whole process group. Its health
/// is the adapter's business. If this process is killed outright, the child stays behind.
///
/// Thread-safe; one thread of its own. `clock` and `metrics` outlive it.
class Supervisor {
 public:
  /// kInvalidArgument for an empty command, kNotFound or kIo when it cannot be started at all.
  static Result<std::unique_ptr<Supervisor>> start(SupervisorConfig config, Clock& clock,
                                                   Metrics& metrics);
  /// Stops.
  virtual ~Supervisor() = default;
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// SIGTERM, then SIGKILL after the timeout; returns when the child is gone. Idempotent.
  virtual void stop() = 0;
  virtual uint32_t restarts() const = 0;
  /// Of the child now; 0 while there is none.
  virtual int pid() const = 0;

 protected:
  Supervisor() = default;
};

}  // namespace stator::engine::adapters
