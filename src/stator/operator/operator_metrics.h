// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/json/value.h"
#include "stator/kube/object.h"

namespace stator::op {

/// What dashboards of operators of these kinds ask for: dynamo_operator_reconcile_*,
/// dynamo_operator_resources_total, dynamo_operator_webhook_*. Of more than kNamespacesMax
/// namespaces the later ones are counted together, as "other". Thread-safe.
class OperatorMetrics {
 public:
  static constexpr size_t kNamespacesMax = 256;

  explicit OperatorMetrics(Metrics& metrics) : metrics_(metrics) {}

  void on_reconciled(std::string_view kind, std::string_view space, const Status& outcome,
                     Duration took);
  void on_reviewed(std::string_view kind, std::string_view operation, bool allowed, Duration took);
  /// An object as it is now; null: it is gone.
  void on_object(std::string_view kind, const kube::ObjectName& name, const json::Value* object);

 private:
  std::string label_of_space(std::string_view space) STATOR_REQUIRES(mutex_);
  void add(std::string_view kind, const std::string& space, const std::string& status, int64_t by)
      STATOR_REQUIRES(mutex_);

  Metrics& metrics_;
  Mutex mutex_;
  std::set<std::string, std::less<>> spaces_ STATOR_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, kube::ObjectName>, std::string> status_ STATOR_GUARDED_BY(mutex_);
  std::map<std::tuple<std::string, std::string, std::string>, int64_t> counts_
      STATOR_GUARDED_BY(mutex_);
};

/// What an object of ours is at, in one word: a graph's state, a request's or checkpoint's phase,
/// ready or not_ready.
std::string status_word(const json::Value& object);

}  // namespace stator::op
