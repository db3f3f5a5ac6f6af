// SPDX-License-Identifier: Apache-2.0
#include "stator/net/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>

#include "stator/net/detail/socket.h"

namespace stator::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// Of the descriptor that ends waits.
constexpr EventLoop::Key kWakeKey = 0;

uint32_t to_epoll(EventLoop::Interest interest) {
  uint32_t events = 0;
  events |= interest.read ? EPOLLIN | EPOLLRDHUP : 0U;
  events |= interest.write ? uint32_t{EPOLLOUT} : 0U;
  events |= interest.trigger == EventLoop::Trigger::kEdge ? uint32_t{EPOLLET} : 0U;
  return events;
}

Ready to_ready(uint32_t events) {
  const bool broken = (events & (EPOLLHUP | EPOLLERR)) != 0;
  return {.readable = (events & EPOLLIN) != 0,
          .writable = (events & EPOLLOUT) != 0,
          .ended = broken || (events & EPOLLRDHUP) != 0,
          .broken = broken};
}

}  // namespace

EventLoop::EventLoop()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  // Edge-triggered: every write is reported, and nobody has to read.
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.u64 = kWakeKey}};
  if (epoll_.open() && wake_.open() &&
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    epoll_.reset();
  }
}

EventLoop::~EventLoop() {
  // By index: a handler that goes may take others with it.
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (ReadyHandler* const handler = slots_[i].handler) {
      handler->on_loop_end();
    }
  }
}

Status EventLoop::opened() const {
  if (epoll_.open() && wake_.open()) {
    return {};
  }
  return Error(Code::kIo, "no descriptors for an event loop: raise ulimit -n");
}

ReadyHandler* EventLoop::find(Key key) const {
  const auto index = static_cast<uint32_t>(key);
  const auto generation = static_cast<uint32_t>(key >> 32);
  return index < slots_.size() && slots_[index].generation == generation ? slots_[index].handler
                                                                         : nullptr;
}

Result<EventLoop::Key> EventLoop::add(int fd, Interest interest, ReadyHandler& handler) {
  if (first_free_ == 0) {
    slots_.emplace_back();
    first_free_ = static_cast<uint32_t>(slots_.size());
  }
  const uint32_t index = first_free_ - 1;
  Slot& slot = slots_[index];
  const Key key = (uint64_t{slot.generation} << 32) | index;
  epoll_event event{.events = to_epoll(interest), .data = {.u64 = key}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    return Error(Code::kIo, "watching a descriptor: " + detail::error_text(errno));
  }
  first_free_ = slot.next_free;
  slot.handler = &handler;
  return key;
}

void EventLoop::change(Key key, int fd, Interest interest) {
  epoll_event event{.events = to_epoll(interest), .data = {.u64 = key}};
  static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event));
}

void EventLoop::remove(Key key, int shared_fd) {
  if (find(key) == nullptr) {
    return;
  }
  if (shared_fd >= 0) {
    epoll_event ignored{};
    static_cast<void>(::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, shared_fd, &ignored));
  }
  const auto index = static_cast<uint32_t>(key);
  Slot& slot = slots_[index];
  slot.handler = nullptr;
  if (++slot.generation == 0) {
    slot.generation = 1;  // no key is kNoKey
  }
  slot.next_free = first_free_;
  first_free_ = index + 1;
}

void EventLoop::call_again(Key key) {
  again_.push_back(key);
}

int EventLoop::wait_for_kernel(Duration wait_max) {
  std::array<epoll_event, kEventsPerTurn> ready;  // NOLINT: the kernel fills what is read
  const nanoseconds wait = wait_max;
  int count = 0;
  if (wait % milliseconds(1) == nanoseconds::zero()) {
    count = ::epoll_wait(epoll_.get(), ready.data(), static_cast<int>(ready.size()),
                         static_cast<int>(wait / milliseconds(1)));
  } else {
    const timespec timeout{.tv_sec = wait / seconds(1), .tv_nsec = (wait % seconds(1)).count()};
    count = ::epoll_pwait2(epoll_.get(), ready.data(), static_cast<int>(ready.size()), &timeout,
                           nullptr);
  }
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = ready[static_cast<size_t>(i)];
    if (event.data.u64 != kWakeKey) {
      events_.push_back({event.data.u64, to_ready(event.events)});
    }
  }
  return count;
}

size_t EventLoop::wait(Duration wait_max) {
  events_.clear();
  next_event_ = 0;
  for (const Key key : std::exchange(again_, {})) {
    events_.push_back({key, {.readable = true}});
  }
  State awake = State::kAwake;
  const bool may_wait = events_.empty() && wait_max > Duration::zero() &&
                        state_.compare_exchange_strong(awake, State::kWaiting);
  wait_for_kernel(may_wait ? wait_max : Duration::zero());
  // What was to be heard by the wake-up is looked at by the caller after this: L3.
  state_.store(State::kAwake);
  return events_.size();
}

bool EventLoop::handle_next() {
  while (next_event_ < events_.size()) {
    const Event event = events_[next_event_++];
    if (ReadyHandler* const handler = find(event.key)) {
      handler->on_ready(event.ready);
      return true;
    }
  }
  return false;
}

size_t EventLoop::turn(Duration wait_max) {
  const size_t count = wait(wait_max);
  while (handle_next()) {
  }
  return count;
}

void EventLoop::wake() noexcept {
  if (state_.exchange(State::kWoken) == State::kWaiting) {
    const uint64_t one = 1;
    static_cast<void>(::write(wake_.get(), &one, sizeof(one)));
  }
}

}  // namespace stator::net
