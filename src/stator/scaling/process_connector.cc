// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <vector>

#include "stator/core/log.h"
#include "stator/engine/adapters/supervisor.h"
#include "stator/io/child_process.h"
#include "stator/scaling/connector.h"

namespace stator::scaling {
namespace {

using engine::adapters::RestartPolicy;

/// C1  A child is in children_ from its start until it was waited for.
/// C2  Children that are not draining are `wanted` many, or will be when `start_at_` has come.
class ProcessConnector final : public Connector {
 public:
  ProcessConnector(ProcessOptions options, const Clock& clock, Metrics& metrics)
      : options_(std::move(options)),
        clock_(clock),
        started_(metrics.counter("stator_planner_processes_started_total",
                                 "worker processes that were started")),
        failed_(metrics.counter("stator_planner_processes_failed_total",
                                "worker processes that ended by themselves")) {}
  ~ProcessConnector() override { stop(); }

  std::string_view name() const override { return "process"; }

  Result<PoolCounts> counts() override {
    poll();
    PoolCounts out;
    out.wanted.decode = pools_[0].wanted;
    if (!options_.prefill_command.empty()) {
      out.wanted.prefill = pools_[1].wanted;
    }
    return out;
  }

  Status set(const PoolTargets& targets, std::string_view reason) override {
    const uint64_t all = uint64_t{targets.decode.value_or(pools_[0].wanted)} +
                         targets.prefill.value_or(pools_[1].wanted);
    if (all > options_.processes_max) {
      return Error(Code::kInvalidArgument,
                   fmt::format("{} worker processes are wanted, at most {} are started", all,
                               options_.processes_max));
    }
    if (targets.prefill.value_or(0) > 0 && options_.prefill_command.empty()) {
      return Error(Code::kInvalidArgument, "there is no command for workers of the prefill pool");
    }
    pools_[0].wanted = targets.decode.value_or(pools_[0].wanted);
    pools_[1].wanted = targets.prefill.value_or(pools_[1].wanted);
    log::info("planner", "worker processes wanted",
              {{"workers", pools_[0].wanted}, {"prefill", pools_[1].wanted}, {"reason", reason}});
    poll();
    return {};
  }

  void poll() override {
    reap();
    const TimePoint now = clock_.now();
    for (Child& child : children_) {
      if (child.draining && !child.killed && now - child.told_at > options_.stop_timeout) {
        log::warn("planner", "a worker did not end in time and is killed", {{"pid", child.pid}});
        kill(-child.pid, SIGKILL);
        child.killed = true;
      }
    }
    for (size_t pool = 0; pool < 2 && !stopped_; ++pool) {
      size_t alive = count(pool);
      while (alive > pools_[pool].wanted) {
        drain_youngest(pool);
        --alive;
      }
      while (alive < pools_[pool].wanted && now >= pools_[pool].start_at) {
        if (!start(pool)) {
          break;
        }
        ++alive;
      }
    }
  }

  void stop() override {
    if (std::exchange(stopped_, true)) {
      return;
    }
    for (Child& child : children_) {
      tell_to_end(child);
    }
    const TimePoint end = clock_.now() + options_.stop_timeout;
    while (!children_.empty()) {
      reap();
      if (!children_.empty() && clock_.now() >= end) {
        for (const Child& child : children_) {
          kill(-child.pid, SIGKILL);
        }
      }
      ::poll(nullptr, 0, kLook_ms);
    }
  }

 private:
  static constexpr int kLook_ms = 10;
  struct Child {
    pid_t pid = 0;
    size_t pool = 0;
    TimePoint started{};
    bool draining = false, killed = false;
    TimePoint told_at{};
  };
  struct Pool {
    uint32_t wanted = 0;
    RestartPolicy policy{RestartPolicy::Config{}};
    TimePoint start_at{};  // not before
  };

  size_t count(size_t pool) const {
    return static_cast<size_t>(std::ranges::count_if(
        children_, [&](const Child& each) { return each.pool == pool && !each.draining; }));
  }

  bool start(size_t pool) {
    const auto pid = io::start_child(pool == 0 ? options_.command : options_.prefill_command);
    const TimePoint now = clock_.now();
    if (!pid) {
      log::error("planner", pid.error().message());
      pools_[pool].start_at = now + pools_[pool].policy.on_exit({});
      return false;
    }
    started_.add();
    children_.push_back({.pid = *pid, .pool = pool, .started = now});
    log::info("planner", "worker started", {{"pid", *pid}});
    return true;
  }

  void tell_to_end(Child& child) {
    if (!std::exchange(child.draining, true)) {
      child.told_at = clock_.now();
      kill(child.pid, SIGTERM);
    }
  }

  void drain_youngest(size_t pool) {
    for (auto it = children_.rbegin(); it != children_.rend(); ++it) {
      if (it->pool == pool && !it->draining) {
        log::info("planner", "worker drains", {{"pid", it->pid}});
        tell_to_end(*it);
        return;
      }
    }
  }

  void reap() {
    for (auto it = children_.begin(); it != children_.end();) {
      int status = 0;
      const pid_t got = waitpid(it->pid, &status, WNOHANG);
      if (got == 0 || (got < 0 && errno == EINTR)) {
        ++it;
        continue;
      }
      if (!it->draining) {
        failed_.add();
        const TimePoint now = clock_.now();
        const Duration pause = pools_[it->pool].policy.on_exit(now - it->started);
        pools_[it->pool].start_at = now + pause;
        log::warn("planner", "a worker ended by itself; it is started again",
                  {{"pid", it->pid},
                   {"status", WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status)},
                   {"after_s", std::chrono::duration<double>(pause).count()}});
      }
      it = children_.erase(it);
    }
  }

  const ProcessOptions options_;
  const Clock& clock_;
  Counter started_, failed_;
  Pool pools_[2];  // all or decode; prefill
  std::vector<Child> children_;
  bool stopped_ = false;
};

}  // namespace

std::unique_ptr<Connector> make_process_connector(ProcessOptions options, const Clock& clock,
                                                  Metrics& metrics) {
  return std::make_unique<ProcessConnector>(std::move(options), clock, metrics);
}

}  // namespace stator::scaling
