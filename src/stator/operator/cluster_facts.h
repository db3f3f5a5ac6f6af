// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "stator/core/clock.h"
#include "stator/kube/client.h"
#include "stator/operator/graph.h"

namespace stator::op {

/// Which APIs a cluster serves, seen anew at most every 2 s: what is installed later is noticed.
/// Thread-safe.
class ClusterFacts {
 public:
  ClusterFacts(kube::Client& client, Environment base, const Clock& clock)
      : client_(client), base_(std::move(base)), clock_(clock) {}

  /// What the administrator chose, with what the cluster offers now. A server that does not answer
  /// leaves it as it was.
  Environment environment();
  /// The name by which the API server knows this process; empty while it does not say.
  std::string user();

 private:
  kube::Client& client_;
  const Environment base_;
  const Clock& clock_;
  std::mutex mutex_;
  std::set<std::string> groups_;
  bool known_ = false;
  TimePoint looked_{};
  std::string user_;
};

}  // namespace stator::op
