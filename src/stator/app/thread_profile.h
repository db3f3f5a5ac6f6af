// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "stator/core/clock.h"

namespace stator::app {

/// CPU time of a thread of this process since it began, in milliseconds.
struct ThreadTime {
  std::string name;  ///< "shard-0", "engine", …
  double user_ms = 0;
  double system_ms = 0;
};

/// By the kernel's thread id. Empty where /proc cannot be read. Any thread.
std::map<int, ThreadTime> read_thread_times();

/// One thread's line of /proc/PID/stat; an empty name for what is none.
ThreadTime parse_thread_stat(const std::string& line, double ms_per_tick);

/// What each thread used between two readings that are `passed` apart, the busiest first:
/// {"seconds":…,"cpu_cores":…,"threads":[{"name":…,"id":…,"user_ms":…,"system_ms":…,"share":…}]};
/// a share of 1 is a thread that never slept. Threads that ended meanwhile are left out.
std::string render_thread_profile(const std::map<int, ThreadTime>& before,
                                  const std::map<int, ThreadTime>& after, Duration passed);

}  // namespace stator::app
