// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "stator/core/clock.h"
#include "stator/json/value.h"
#include "stator/kube/client.h"
#include "stator/net/thread.h"

namespace stator::discovery {

/// The readiness gate of a worker's pod that waits until a frontend knows the worker.
inline constexpr std::string_view kRoutable = "stator.dev/routable";

/// Whether a pod (with its spec.readinessGates) has that gate.
bool is_gated(const json::Value& pod);
/// Of such a pod: whether a frontend has opened the gate.
bool is_routable(const json::Value& pod);
/// What opens it: an object for a server-side apply of the pod's status.
json::Value routable_mark(const json::Value& pod, const std::string& now);

/// Opens the gates of pods, on a thread of its own: an API server that is away holds up nobody. A
/// pod is marked once, again after a failure a second later; at most one entry for each pod.
/// Thread-safe. Destroyed after client.stop().
class RoutableMarks {
 public:
  RoutableMarks(kube::Client& client, const Clock& clock);
  RoutableMarks(const RoutableMarks&) = delete;
  RoutableMarks& operator=(const RoutableMarks&) = delete;
  ~RoutableMarks();
  void add(const json::Value& pod);

 private:
  void run();

  kube::Client& client_;
  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::map<std::string, json::Value> waiting_;  ///< by the pod's uid
  net::Thread thread_;                          // last: starts when all else is there
};

}  // namespace stator::discovery
