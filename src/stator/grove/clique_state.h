// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "stator/grove/layout.h"

namespace stator::grove {

/// The pods of a clique, counted. Terminating pods and those that are over do not count.
struct CliqueState {
  const CliqueInstance* instance = nullptr;
  const json::Value* stored = nullptr;  ///< the PodClique; null: not made yet
  std::vector<const json::Value*> pods;
  std::vector<const json::Value*> leaving;  ///< terminating or over
  int64_t ready = 0;
  int64_t scheduled = 0;
  int64_t gated = 0;
  int64_t updated = 0;   ///< of the template's hash
  int64_t failed = 0;    ///< scheduled, and with a container that ended with an error
  int64_t starting = 0;  ///< scheduled, started, not ready yet
  bool is_new = false;   ///< start_anew() was called: what its status says is over

  /// All its pods leave.
  void start_anew();

  bool is_updating() const { return updated < static_cast<int64_t>(pods.size()); }
  /// Below minAvailable with pods that were scheduled once: false while it starts for the first
  /// time.
  bool is_breached() const;
  bool was_scheduled() const;
  bool is_available() const { return ready >= instance->min_available; }
};

std::map<std::string, CliqueState> count_pods(const Layout& layout, const SetView& view);

}  // namespace stator::grove
