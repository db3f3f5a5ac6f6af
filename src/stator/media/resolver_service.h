// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/media/address_rules.h"
#include "stator/net/thread.h"

namespace stator::media {

/// Looks names of hosts up, on threads of its own, because the system's resolver blocks: at most
/// kThreads at once, the rest waits in order; `drop` takes one out that does not run yet. The queue
/// is bounded by whoever posts. Destruction waits for what runs, as long as the system's resolver
/// takes.
class Resolver {
 public:
  static constexpr size_t kThreads = 4;
  static constexpr size_t kAddressesMax = 32;

  struct Answer {
    uint64_t id = 0;
    Result<std::vector<IpAddress>> addresses;  ///< of the first kAddressesMax, at least one
  };
  using Lookup = std::function<Result<std::vector<IpAddress>>(const std::string& host)>;

  /// `on_answer` is called by the threads whenever take_answers() has something. `lookup` replaces
  /// the system's resolver, in tests.
  explicit Resolver(std::function<void()> on_answer, Lookup lookup = {});
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;
  ~Resolver();

  void post(uint64_t id, std::string host);
  void drop(uint64_t id);
  std::vector<Answer> take_answers();

 private:
  void run();

  const std::function<void()> on_answer_;
  const Lookup lookup_;
  Mutex mutex_;
  std::condition_variable_any wake_;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  std::deque<std::pair<uint64_t, std::string>> queue_ STATOR_GUARDED_BY(mutex_);
  std::vector<Answer> answers_ STATOR_GUARDED_BY(mutex_);
  std::vector<net::Thread> threads_;
};

}  // namespace stator::media
