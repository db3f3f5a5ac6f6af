// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <thread>

namespace stator::net {

/// A named thread that is joined by its owner's destructor: the only way Stator starts a thread.
/// `body` must return by itself when its owner asks it to (its own stop flag or queue).
class Thread {
 public:
  Thread() = default;
  Thread(std::string name, std::function<void()> body);
  Thread(Thread&& other) noexcept = default;
  /// Joins what it held before.
  Thread& operator=(Thread&& other) noexcept;
  Thread(const Thread&) = delete;
  Thread& operator=(const Thread&) = delete;
  ~Thread();

  void join();
  bool joinable() const { return thread_.joinable(); }

 private:
  std::thread thread_;
};

}  // namespace stator::net
