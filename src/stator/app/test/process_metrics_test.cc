// SPDX-License-Identifier: Apache-2.0
#include "stator/app/process_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

#include "stator/app/version.h"

namespace stator::app {
namespace {

using ::testing::AllOf;
using ::testing::Ge;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::Le;

/// Of a series without labels; NaN if there is none.
double scrape(const Metrics& metrics, const std::string& name) {
  const std::string text = "\n" + metrics.render();
  const size_t at = text.find("\n" + name + " ");
  return at == text.npos ? std::nan("") : std::strtod(&text[at + name.size() + 2], nullptr);
}

TEST(ProcessMetrics, SayWhatTheProcessUses) {
  Metrics metrics;
  add_process_metrics(metrics);

  const double resident = scrape(metrics, "process_resident_memory_bytes");
  EXPECT_THAT(resident, Gt(1 << 20));
  EXPECT_THAT(scrape(metrics, "process_virtual_memory_bytes"), Gt(resident));
  EXPECT_THAT(scrape(metrics, "process_max_fds"), Ge(scrape(metrics, "process_open_fds")));
  EXPECT_THAT(metrics.render(),
              AllOf(HasSubstr("stator_build_info{version=\"" + std::string(version()) + "\"} 1\n"),
                    HasSubstr("# TYPE process_cpu_seconds_total counter\n")));
}

TEST(ProcessMetrics, CountDescriptorsAsTheyAreOpened) {
  Metrics metrics;
  add_process_metrics(metrics);
  const double before = scrape(metrics, "process_open_fds");
  {
    const std::ifstream first("/dev/null");
    const std::ifstream second("/dev/null");
    EXPECT_EQ(scrape(metrics, "process_open_fds"), before + 2);
  }
  EXPECT_EQ(scrape(metrics, "process_open_fds"), before);
}

TEST(ProcessMetrics, TheCpuTimeGrowsWithWork) {
  Metrics metrics;
  add_process_metrics(metrics);
  const double before = scrape(metrics, "process_cpu_seconds_total");
  const std::clock_t until = std::clock() + CLOCKS_PER_SEC / 10;  // CPU time of the process
  while (std::clock() < until) {
  }
  EXPECT_THAT(scrape(metrics, "process_cpu_seconds_total"), Gt(before + 0.05));
}

TEST(ProcessMetrics, TheStartIsBeforeNowAndNotLongAgo) {
  Metrics metrics;
  add_process_metrics(metrics);
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  // The kernel tells the start of the machine in whole seconds.
  EXPECT_THAT(scrape(metrics, "process_start_time_seconds"), AllOf(Le(now + 2), Gt(now - 86'400)));
}

}  // namespace
}  // namespace stator::app
