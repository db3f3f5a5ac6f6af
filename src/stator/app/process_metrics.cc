// SPDX-License-Identifier: Apache-2.0
#include "stator/app/process_metrics.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "stator/app/version.h"
#include "stator/core/random.h"

namespace stator::app {
namespace {

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Field of /proc/self/statm: 0 = virtual memory, 1 = resident.
double memory_bytes(int field) {
  std::ifstream statm("/proc/self/statm");
  double pages = 0;
  for (int i = 0; i <= field; ++i) {
    statm >> pages;
  }
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

/// Linux 6.2 and later say the number as the folder's size; before, names are counted.
double open_descriptors() {
  struct stat folder{};
  if (::stat("/proc/self/fd", &folder) == 0 && folder.st_size > 0) {
    return static_cast<double>(folder.st_size);
  }
  std::error_code failed;
  std::filesystem::directory_iterator names("/proc/self/fd", failed);
  double count = -1;  // the one that reads the folder
  for (; !failed && names != std::filesystem::directory_iterator(); names.increment(failed)) {
    ++count;
  }
  return std::max(count, 0.0);
}

double descriptors_max() {
  rlimit limit{};
  const bool bounded = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return bounded ? static_cast<double>(limit.rlim_cur) : std::numeric_limits<double>::infinity();
}

/// Unix time at which the machine started.
double boot_seconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  while (file >> name && name != "btime") {
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  double seconds = 0;
  file >> seconds;
  return seconds;
}

/// Unix time. The kernel tells it as ticks since the machine started.
double start_seconds() {
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(text.rfind(')') + 1));  // a name may contain spaces
  std::string field;
  constexpr int kStartTime = 20;  // of the fields behind the name
  for (int i = 0; i < kStartTime; ++i) {
    fields >> field;
  }
  return boot_seconds() +
         std::strtod(field.c_str(), nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

void label_fleet_metrics(Metrics& metrics, const Settings& settings) {
  const std::string space = settings.spaces.shown();
  std::string plain = space;  // as the planner asks of component families
  std::ranges::replace(plain, '-', '_');
  const MetricLabels component = {{"dynamo_namespace", plain}, {"dynamo_component", "frontend"}};
  metrics.label_all(settings.frontend.metrics_prefix + "_", {{"dynamo_namespace", space}});
  metrics.label_all("dynamo_component_router_", component);
  metrics.label_all("dynamo_component_kv_cache_event", component);
  metrics.label_all("dynamo_request_plane_", component);
  MetricLabels router = component;
  router.emplace_back("router_id", fmt::format("{:x}", Random::from_entropy().next()));
  metrics.label_all("dynamo_router_overhead_", router);
}

void add_process_metrics(Metrics& metrics) {
  metrics
      .gauge("stator_build_info", "1, with the version as a label",
             {{"version", std::string(version())}})
      .set(1);
  metrics.gauge("process_start_time_seconds", "Unix time at which the process started")
      .set(start_seconds());
  metrics.counter_callback("process_cpu_seconds_total", "user and system CPU time used", {},
                           &cpu_seconds);
  metrics.gauge_callback("process_resident_memory_bytes", "memory in RAM", {},
                         [] { return memory_bytes(1); });
  metrics.gauge_callback("process_virtual_memory_bytes", "address space in use", {},
                         [] { return memory_bytes(0); });
  metrics.gauge_callback("process_open_fds", "open file descriptors", {}, &open_descriptors);
  metrics.gauge_callback("process_max_fds", "open file descriptors at most", {}, &descriptors_max);
}

}  // namespace stator::app
