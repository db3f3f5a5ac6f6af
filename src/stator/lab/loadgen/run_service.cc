// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/run_service.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "stator/net/thread.h"

namespace stator::loadgen {
namespace {

constexpr uint64_t kOtherDescriptors = 64;
// Threads start a little before the load, so that all are ready and some requests are written.
constexpr Duration kHeadStart = std::chrono::milliseconds(50);

LiveView look(const std::vector<LiveCounters>& counters, Duration elapsed) {
  LiveView view;
  view.elapsed_s = std::chrono::duration<double>(elapsed).count();
  const auto get = [](const std::atomic<uint64_t>& field) {
    return field.load(std::memory_order_relaxed);
  };
  for (const LiveCounters& counter : counters) {
    view.sent += get(counter.sent);
    view.answered += get(counter.answered);
    view.failed += get(counter.failed);
    view.chunks += get(counter.chunks);
    view.in_flight += get(counter.in_flight);
    view.backlog += get(counter.backlog);
    view.latency_ns += get(counter.latency_ns);
    view.first_ns += get(counter.first_ns);
    view.firsts += get(counter.firsts);
    const double busy = static_cast<double>(get(counter.busy_ns)) /
                        std::max(1.0, static_cast<double>(elapsed.count()));
    view.busy_share = std::max(view.busy_share, busy);
  }
  return view;
}

LoopOptions options_of_thread(const RunPlan& plan, uint32_t thread) {
  LoopOptions options = plan.loop;
  options.dispatch.share = thread;
  options.dispatch.shares = plan.threads;
  options.dispatch.in_flight_max = std::max(1U, options.dispatch.in_flight_max / plan.threads);
  options.dispatch.backlog_max = std::max(1U, options.dispatch.backlog_max / plan.threads);
  options.records_max = std::max<uint64_t>(1, options.records_max / plan.threads);
  return options;
}

ClientFigures add_up(const std::vector<ThreadResult>& results) {
  ClientFigures client;
  client.threads = static_cast<uint32_t>(results.size());
  uint64_t requests = 0;
  for (const ThreadResult& result : results) {
    const ClientLoad& load = result.client;
    client.busy_share = std::max(client.busy_share, load.busy_share);
    client.starved_share = std::max(client.starved_share, load.starved_share);
    client.wake_delay_ms = std::max(client.wake_delay_ms, load.wake_delay_ms);
    client.cpu_s += load.cpu_s;
    client.waiting_cpu_s += load.waiting_cpu_s;
    client.turn_p99_ms = std::max(client.turn_p99_ms, load.turns.percentile(99) * 1e-6);
    client.connections += load.connections;
    client.reconnects += load.reconnects;
    client.held_back += load.held_back;
    requests += result.records.size();
  }
  client.cpu_us_per_request =
      client.cpu_s * 1e6 / static_cast<double>(std::max<uint64_t>(1, requests));
  return client;
}

double measure_keep_up(const RecordLog& records, const DispatchOptions& dispatch) {
  if (dispatch.mode != LoadMode::kOpen || dispatch.duration <= Duration{}) {
    return 1;
  }
  const int64_t end = dispatch.duration.count();
  const int64_t half = end / 2;
  uint64_t due = 0;
  uint64_t answered = 0;
  records.for_each([&](const Record& record) {
    due += record.due >= half && record.due < end ? 1 : 0;
    answered += record.outcome == Outcome::kOk && record.last >= half && record.last < end ? 1 : 0;
  });
  // How many are in flight at the two ends of the half is chance; it evens out in long runs.
  const double slack = std::sqrt(static_cast<double>(due));
  return due == 0
             ? 1
             : std::min(1.0, (static_cast<double>(answered) + slack) / static_cast<double>(due));
}

RunResult sum_up(const RunPlan& plan, std::vector<ThreadResult> results) {
  RunResult out;
  out.client = add_up(results);
  ThreadResult all = std::move(results.front());
  for (size_t i = 1; i < results.size(); ++i) {
    all.records.take_all(std::move(results[i].records));
    all.gaps.merge(std::move(results[i].gaps));
    for (const auto& [text, count] : results[i].errors) {
      all.errors[text] += count;
    }
    all.log_full = all.log_full || results[i].log_full;
    all.gave_up = all.gave_up || results[i].gave_up;
  }
  out.figures = measure(all.records, all.gaps, plan.measure);
  out.figures.errors = std::move(all.errors);
  out.log_full = all.log_full;
  out.gave_up = all.gave_up;
  if (const Metric* delay = out.figures.find("send_delay")) {
    out.client.send_delay_p99_ms = delay->values.p99;
  }
  out.client_bound = judge_client(out.client, out.figures);
  out.keep_up = measure_keep_up(all.records, plan.loop.dispatch);
  if (plan.loop.dispatch.mode == LoadMode::kOpen) {
    out.offered_per_s = plan.loop.dispatch.arrivals.rate_per_s;
  }
  return out;
}

}  // namespace

Status check_descriptors(uint64_t connections) {
  rlimit limit = {};
  const uint64_t needed = connections + kOtherDescriptors;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return {};
  }
  if (limit.rlim_max < needed) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} connections need {} open files, this shell allows {}: raise it "
                             "with `ulimit -Hn {}` as root, or lower --concurrency or "
                             "--in-flight-max",
                             connections, needed, limit.rlim_max, needed));
  }
  if (limit.rlim_cur < needed) {
    limit.rlim_cur = needed;
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
      return Error(Code::kInvalidArgument,
                   fmt::format("cannot open {} files: run `ulimit -n {}` first", needed, needed));
    }
  }
  return {};
}

RunResult run_load(const RunPlan& plan, const Workload& workload, const RequestBuilder& builder,
                   const Clock& clock, const OnTick& on_tick) {
  std::vector<LiveCounters> live(plan.threads);
  std::vector<ThreadResult> results(plan.threads);
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> running{plan.threads};
  const TimePoint start = clock.now() + kHeadStart;
  bool interrupted = false;
  {
    std::vector<net::Thread> threads;
    for (uint32_t i = 0; i < plan.threads; ++i) {
      threads.emplace_back(fmt::format("load-{}", i), [&, i] {
        LoadLoop loop(options_of_thread(plan, i), workload, builder, plan.address, plan.tls);
        results[i] = loop.run(clock, start, stop, live[i]);
        running.fetch_sub(1, std::memory_order_release);
      });
    }
    while (running.load(std::memory_order_acquire) > 0) {
      if (!on_tick(look(live, clock.now() - start))) {
        interrupted = running.load(std::memory_order_acquire) > 0;
        stop = true;
        break;
      }
    }
  }  // joins
  RunResult out = sum_up(plan, std::move(results));
  out.interrupted = interrupted;
  return out;
}

}  // namespace stator::loadgen
