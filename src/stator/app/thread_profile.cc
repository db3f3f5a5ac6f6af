// SPDX-License-Identifier: Apache-2.0
#include "stator/app/thread_profile.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "stator/json/writer.h"

namespace stator::app {

ThreadTime parse_thread_stat(const std::string& line, double ms_per_tick) {
  // "17 (a name) S …": the name may have anything in it, so its end is the last ')'.
  const size_t open = line.find('(');
  const size_t close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) {
    return {};
  }
  std::istringstream fields(line.substr(close + 1));
  std::string skipped;
  constexpr int kBeforeTimes = 11;  // of proc(5): state … cmajflt
  for (int i = 0; i < kBeforeTimes; ++i) {
    fields >> skipped;
  }
  double user = 0;
  double system = 0;
  if (!(fields >> user >> system)) {
    return {};
  }
  return {.name = line.substr(open + 1, close - open - 1),
          .user_ms = user * ms_per_tick,
          .system_ms = system * ms_per_tick};
}

std::map<int, ThreadTime> read_thread_times() {
  const double ms_per_tick = 1000.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  std::map<int, ThreadTime> out;
  std::error_code failed;
  std::filesystem::directory_iterator threads("/proc/self/task", failed);
  for (; !failed && threads != std::filesystem::directory_iterator(); threads.increment(failed)) {
    const std::string name = threads->path().filename().string();
    int id = 0;
    std::from_chars(name.data(), name.data() + name.size(), id);
    std::ifstream file(threads->path() / "stat");
    std::string line;
    if (std::getline(file, line)) {
      out[id] = parse_thread_stat(line, ms_per_tick);
    }
  }
  return out;
}

std::string render_thread_profile(const std::map<int, ThreadTime>& before,
                                  const std::map<int, ThreadTime>& after, Duration passed) {
  struct Row {
    int id;
    ThreadTime used;
    double all() const { return used.user_ms + used.system_ms; }
  };
  std::vector<Row> rows;
  double total = 0;
  for (const auto& [id, now] : after) {
    const auto then = before.find(id);
    Row row{id, now};
    if (then != before.end()) {
      row.used.user_ms -= then->second.user_ms;
      row.used.system_ms -= then->second.system_ms;
    }
    total += row.all();
    rows.push_back(std::move(row));
  }
  std::ranges::sort(rows, std::ranges::greater(), &Row::all);
  const double ms = std::max(std::chrono::duration<double, std::milli>(passed).count(), 1.0);
  std::string body;
  json::Writer json(body);
  json.begin_object().key("seconds").value(ms / 1000).key("cpu_cores").value(total / ms);
  json.key("threads").begin_array();
  for (const Row& row : rows) {
    json.begin_object().key("name").value(row.used.name).key("id").value(row.id);
    json.key("user_ms").value(row.used.user_ms).key("system_ms").value(row.used.system_ms);
    json.key("share").value(row.all() / ms).end_object();
  }
  json.end_array().end_object();
  return body;
}

}  // namespace stator::app
