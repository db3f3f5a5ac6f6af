// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/engine/adapters/supervisor.h"
#include "stator/io/child_process.h"
#include "stator/net/thread.h"

namespace stator::engine::adapters {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kLogTarget = "engine";
constexpr size_t kLineBytesMax = 4096;  // longer lines are cut into pieces
constexpr Duration kLook = 100ms;

int milliseconds(Duration time) {
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(time).count());
}

/// Cuts what a process writes into lines.
class LineLog {
 public:
  void add(std::string_view bytes) {
    for (const char c : bytes) {
      if (c == '\n' || line_.size() >= kLineBytesMax) {
        flush();
      }
      if (c != '\n' && c != '\r') {
        line_ += c;
      }
    }
  }
  void flush() {
    if (!line_.empty()) {
      log::info(kLogTarget, line_);
      line_.clear();
    }
  }

 private:
  std::string line_;
};

std::string describe_exit(int status) {
  return WIFSIGNALED(status) ? fmt::format("killed by signal {}", WTERMSIG(status))
                             : fmt::format("status {}", WEXITSTATUS(status));
}

/// P1  The child, if there is one, is the leader of its own process group.
/// P2  Only the thread starts, reads and reaps; stop() only asks it to.
class SupervisorService final : public Supervisor {
 public:
  SupervisorService(SupervisorConfig config, Clock& clock, Metrics& metrics)
      : config_(std::move(config)),
        clock_(clock),
        restarts_total_(metrics.counter("stator_engine_process_restarts_total",
                                        "times the launched engine was started again")),
        policy_(config_.restart) {}
  ~SupervisorService() override { stop(); }

  Status open() {
    STATOR_CHECK(spawn());
    thread_ = net::Thread("supervisor", [this] { run(); });
    return {};
  }
  void stop() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      wake_.notify_all();
    }
    thread_.join();
  }
  uint32_t restarts() const override { return restarts_; }
  int pid() const override { return pid_; }

 private:
  Status spawn();
  void run();
  void watch();
  bool reap(int flags);
  void end_child();
  void read_output(Duration wait);
  bool stopping() const {
    const MutexLock lock(mutex_);
    return stopping_;
  }
  bool wait_for_restart(Duration delay);

  const SupervisorConfig config_;
  Clock& clock_;
  Counter restarts_total_;
  RestartPolicy policy_;
  LineLog output_;
  int pipe_ = -1;
  TimePoint started_{};
  std::atomic<int> pid_ = 0;
  std::atomic<uint32_t> restarts_ = 0;
  mutable Mutex mutex_;
  std::condition_variable_any wake_;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  net::Thread thread_;
};

Status SupervisorService::spawn() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return Error(Code::kIo, fmt::format("no pipe for the engine: {}", std::strerror(errno)));
  }
  auto child = io::start_child(config_.command, ends[1]);
  close(ends[1]);
  if (!child) {
    close(ends[0]);
    return std::move(child.error());
  }
  if (pipe_ >= 0) {
    close(pipe_);
  }
  pipe_ = ends[0];
  pid_ = *child;
  started_ = clock_.now();
  log::info(kLogTarget, "started", {{"command", config_.command.front()}, {"pid", *child}});
  return {};
}

void SupervisorService::run() {
  while (true) {
    watch();
    if (stopping()) {
      end_child();
      break;
    }
    const Duration delay = policy_.on_exit(clock_.now() - started_);
    if (!wait_for_restart(delay)) {
      break;
    }
    ++restarts_;
    restarts_total_.add();
    if (Status again = spawn(); !again) {
      log::error(kLogTarget, again.error().message());
      started_ = clock_.now();
    }
  }
  if (pipe_ >= 0) {
    close(std::exchange(pipe_, -1));
  }
}

/// Until the child ended or stop() was called.
void SupervisorService::watch() {
  while (pid_ != 0 && !stopping()) {
    read_output(kLook);
    reap(WNOHANG);
  }
}

bool SupervisorService::reap(int flags) {
  int status = 0;
  const int child = pid_;
  if (child == 0 || waitpid(child, &status, flags) != child) {
    return false;
  }
  read_output(Duration::zero());
  output_.flush();
  pid_ = 0;
  kill(-child, SIGKILL);  // what it left behind in its group
  log::warn(kLogTarget, "the engine process ended", {{"how", describe_exit(status)}});
  return true;
}

void SupervisorService::end_child() {
  const int child = pid_;
  if (child == 0) {
    return;
  }
  kill(-child, SIGTERM);
  const TimePoint deadline = clock_.now() + config_.stop_timeout;
  while (clock_.now() < deadline) {
    read_output(kLook);
    if (reap(WNOHANG)) {
      return;
    }
  }
  log::warn(kLogTarget, "the engine process does not end: killing it", {{"pid", child}});
  kill(-child, SIGKILL);
  reap(0);
}

void SupervisorService::read_output(Duration wait) {
  pollfd ready{.fd = pipe_, .events = POLLIN, .revents = 0};
  Duration left = wait;
  while (poll(&ready, 1, milliseconds(left)) > 0) {
    std::array<char, 4096> bytes;
    const ssize_t count = read(pipe_, bytes.data(), bytes.size());
    if (count <= 0) {
      // Closed by the child: it is ending, or runs silently.
      MutexLock lock(mutex_);
      if (!stopping_ && left > Duration::zero()) {
        wake_.wait_for(lock, left);
      }
      return;
    }
    output_.add({bytes.data(), static_cast<size_t>(count)});
    left = Duration::zero();
  }
}

bool SupervisorService::wait_for_restart(Duration delay) {
  const TimePoint until = clock_.now() + delay;
  log::info(kLogTarget, "starting the engine again after a pause",
            {{"pause_ms", std::chrono::duration_cast<std::chrono::milliseconds>(delay).count()}});
  MutexLock lock(mutex_);
  while (!stopping_) {
    const Duration left = until - clock_.now();
    if (left <= Duration::zero()) {
      return true;
    }
    wake_.wait_for(lock, left);
  }
  return false;
}

}  // namespace

Duration RestartPolicy::on_exit(Duration ran) {
  if (ran >= config_.steady) {
    next_ = config_.first;
  }
  return std::exchange(next_, std::min(next_ * 2, config_.longest));
}

Result<std::unique_ptr<Supervisor>> Supervisor::start(SupervisorConfig config, Clock& clock,
                                                      Metrics& metrics) {
  if (config.command.empty()) {
    return Error(Code::kInvalidArgument, "--launch needs the engine's command after --");
  }
  auto service = std::make_unique<SupervisorService>(std::move(config), clock, metrics);
  STATOR_CHECK(service->open());
  return service;
}

}  // namespace stator::engine::adapters
