// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <condition_variable>
#include <functional>
#include <list>
#include <vector>

#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/kv_events/detail/zmq_link.h"
#include "stator/kv_events/zmq_sources.h"
#include "stator/net/thread.h"

namespace stator::kv_events {
namespace {

using detail::ZmqLink;

using Links = std::vector<std::unique_ptr<ZmqLink>>;

class Service final : public ZmqSources {
 public:
  Service(int wake_fd, const Clock& clock, Metrics& metrics)
      : clock_(clock),
        metrics_(metrics),
        wake_fd_(wake_fd),
        thread_("zmq-sources", [this] { run(); }) {}
  ~Service() override {
    on_thread([this] { stopping_ = true; });
    thread_.join();
    ::close(wake_fd_);
  }

  Result<std::unique_ptr<Subscription>> subscribe(const ZmqSourceConfig& config,
                                                  EngineBatchListener& listener) override;
  /// Their sockets are closed on the thread that used them.
  void remove(Links& links) {
    on_thread([&] {
      for (const auto& link : links) {
        std::erase(active_, link.get());
      }
      links.clear();
    });
  }

 private:
  void run();
  void poll_once();
  /// Runs `work` on the thread and waits for it.
  void on_thread(const std::function<void()>& work);
  void run_work();
  void wake() const {
    const uint64_t one = 1;
    // It cannot fail but by a counter at its limit, and then the thread is awake.
    [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof(one));
  }

  const Clock& clock_;
  detail::ZmqMetrics metrics_;
  zmq::context_t context_;
  const int wake_fd_;

  Mutex mutex_;
  std::condition_variable_any done_;
  std::list<const std::function<void()>*> work_ STATOR_GUARDED_BY(mutex_);  // bounded by callers

  // Of the thread.
  std::vector<ZmqLink*> active_;
  bool stopping_ = false;

  net::Thread thread_;
};

class LiveSubscription final : public ZmqSources::Subscription {
 public:
  LiveSubscription(Service& service, Links links) : service_(service), links_(std::move(links)) {}
  ~LiveSubscription() override { service_.remove(links_); }

 private:
  Service& service_;
  Links links_;
};

void Service::on_thread(const std::function<void()>& work) {
  MutexLock lock(mutex_);
  work_.push_back(&work);
  wake();
  done_.wait(lock, [&]() STATOR_REQUIRES(mutex_) {
    return std::ranges::find(work_, &work) == work_.end();
  });
}

void Service::run_work() {
  const MutexLock lock(mutex_);
  for (const auto* work : work_) {
    (*work)();
  }
  work_.clear();
  done_.notify_all();
}

Result<std::unique_ptr<ZmqSources::Subscription>> Service::subscribe(
    const ZmqSourceConfig& config, EngineBatchListener& listener) {
  struct Addresses {
    std::string live;
    std::string replay;
  };
  std::vector<Addresses> addresses(config.dp_ranks);
  for (uint32_t rank = 0; rank < config.dp_ranks; ++rank) {
    STATOR_TRY(addresses[rank].live, rank_endpoint(config.endpoint, rank));
    if (!config.replay_endpoint.empty()) {
      STATOR_TRY(addresses[rank].replay, rank_endpoint(config.replay_endpoint, rank));
    }
  }
  Links links;
  std::string problem;
  on_thread([&] {
    try {
      for (uint32_t rank = 0; rank < config.dp_ranks; ++rank) {
        links.push_back(std::make_unique<ZmqLink>(context_, config, rank, listener, metrics_));
        links.back()->open(addresses[rank].live, addresses[rank].replay);
      }
      for (const auto& link : links) {
        active_.push_back(link.get());
      }
    } catch (const zmq::error_t& error) {
      problem = error.what();
    }
  });
  if (!problem.empty()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("cannot subscribe to events at '{}': {}", config.endpoint, problem));
  }
  return std::make_unique<LiveSubscription>(*this, std::move(links));
}

void Service::run() {
  while (!stopping_) {
    try {
      poll_once();
    } catch (const zmq::error_t& error) {
      log::error("events", "ZeroMQ failed; going on", {{"error", error.what()}});
    }
  }
}

void Service::poll_once() {
  std::vector<zmq::pollitem_t> items{{nullptr, wake_fd_, ZMQ_POLLIN, 0}};
  std::optional<TimePoint> deadline;
  for (ZmqLink* link : active_) {
    link->add_poll_items(items);
    if (const auto due = link->deadline()) {
      deadline = std::min(deadline.value_or(*due), *due);
    }
  }
  std::chrono::milliseconds timeout(-1);
  if (deadline) {
    timeout = std::max(std::chrono::milliseconds(0),
                       std::chrono::ceil<std::chrono::milliseconds>(*deadline - clock_.now()));
  }
  zmq::poll(items, timeout);
  const TimePoint now = clock_.now();
  for (ZmqLink* link : active_) {
    link->on_ready(now);
    link->on_time(now);
  }
  if ((items.front().revents & ZMQ_POLLIN) != 0) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t read = ::read(wake_fd_, &count, sizeof(count));
    run_work();
  }
}

}  // namespace

Result<std::string> rank_endpoint(std::string_view endpoint, uint32_t rank) {
  if (rank == 0) {
    return std::string(endpoint);
  }
  if (!endpoint.starts_with("tcp://")) {
    return fmt::format("{}_dp{}", endpoint, rank);
  }
  const size_t colon = endpoint.rfind(':');
  const std::string_view digits = endpoint.substr(colon + 1);
  uint32_t port = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (parsed.ec != std::errc() || parsed.ptr != digits.data() + digits.size() || port == 0 ||
      port + uint64_t{rank} > 65'535) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("event endpoint '{}' needs a port from 1 with room for rank {}: a rank "
                    "is found at port + rank",
                    endpoint, rank));
  }
  return fmt::format("{}{}", endpoint.substr(0, colon + 1), port + rank);
}

Result<std::unique_ptr<ZmqSources>> ZmqSources::start(const Clock& clock, Metrics& metrics) {
  const int wake_fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd < 0) {
    return Error(Code::kInternal, "cannot make an eventfd: the limit of open files is reached");
  }
  return std::make_unique<Service>(wake_fd, clock, metrics);
}

}  // namespace stator::kv_events
