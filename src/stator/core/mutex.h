// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

// Clang's thread-safety analysis: a field marked STATOR_GUARDED_BY(mu_) may only be touched while
// mu_ is held, checked at compile time.
#define STATOR_GUARDED_BY(mu) __attribute__((guarded_by(mu)))
#define STATOR_REQUIRES(mu) __attribute__((requires_capability(mu)))
#define STATOR_EXCLUDES(mu) __attribute__((locks_excluded(mu)))

namespace stator {

/// std::mutex with the annotations libstdc++ lacks.
class __attribute__((capability("mutex"))) Mutex {
 public:
  void lock() __attribute__((acquire_capability())) { mutex_.lock(); }
  void unlock() __attribute__((release_capability())) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// Holds a Mutex for a scope. BasicLockable, so std::condition_variable_any can wait on it.
class __attribute__((scoped_lockable)) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) __attribute__((acquire_capability(mutex))) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() __attribute__((release_capability())) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  void lock() __attribute__((acquire_capability())) { mutex_.lock(); }
  void unlock() __attribute__((release_capability())) { mutex_.unlock(); }

 private:
  Mutex& mutex_;
};

}  // namespace stator
