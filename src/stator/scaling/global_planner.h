// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/json/value.h"
#include "stator/scaling/connector.h"

namespace stator::scaling {

/// What a pool's planner asks of the global one.
struct ScaleRequest {
  std::string caller_namespace;
  std::string graph;  ///< graph_deployment_name
  std::string kube_namespace;
  PoolTargets targets;
  bool blocking = false;
  std::optional<double> predicted_load;
  std::string pool() const;  ///< the name it is known by: "k8s_namespace/graph"
};
/// kInvalidArgument names the field.
Result<ScaleRequest> parse_scale_request(std::string_view body);
std::string render_json(const ScaleRequest& request);

/// One pool as it is now.
struct PoolNow {
  std::string name;
  uint32_t prefill = 0, decode = 0;
  uint32_t gpus_per_prefill = 1, gpus_per_decode = 1;
  int64_t gpus() const {
    return int64_t{prefill} * gpus_per_prefill + int64_t{decode} * gpus_per_decode;
  }
};

struct GlobalConfig {
  std::set<std::string, std::less<>> managed_namespaces;  ///< empty: all callers
  int64_t max_total_gpus = -1;                            ///< -1: no limit, 0: none at all
  int64_t min_total_gpus = -1;
  double intent_ttl_s = 360;  ///< at least twice the slowest planner's tick
  bool no_operation = false;  ///< approve or refuse, but change nothing
};

/// What is to be done for one request: in that order, so that what shrinks frees GPUs first.
struct GlobalVerdict {
  enum class Kind : uint8_t { kSuccess, kRejected, kError };
  Kind kind = Kind::kError;
  std::string message;
  struct Step {
    std::string pool;
    PoolTargets targets;
    int64_t gpus = 0;  ///< more than now
  };
  std::vector<Step> steps;
};

/// Keeps several pools within one band of GPUs. A request that alone would leave the band is paired
/// with what other pools asked for and have not got, in the opposite direction, smallest first; one
/// that is too large in part. Every request is remembered as an intent, denied ones too. Pure.
///
/// G1  What a verdict approves never takes the total above max_total_gpus; below min_total_gpus at
///     most by one engine, and only in a pair.
class GlobalPlanner {
 public:
  explicit GlobalPlanner(GlobalConfig config) : config_(std::move(config)) {}
  /// `pools` are all pools, the caller's among them.
  GlobalVerdict decide(const ScaleRequest& request, const std::vector<PoolNow>& pools,
                       double now_s);
  const GlobalConfig& config() const { return config_; }
  size_t intents() const { return intents_.size(); }
  static constexpr size_t kIntentsMax = 4096;

 private:
  struct Intent {
    PoolTargets targets;
    double at_s = 0;
  };
  bool fits(int64_t total, int64_t tolerance) const;
  void pair(GlobalVerdict& verdict, const std::vector<PoolNow>& pools, std::string_view own,
            int64_t total) const;

  const GlobalConfig config_;
  std::map<std::string, Intent, std::less<>> intents_;
};

/// {"status","message","current_replicas"} of the pool.
std::string render_json(const GlobalVerdict& verdict, const PoolNow& pool);

}  // namespace stator::scaling
