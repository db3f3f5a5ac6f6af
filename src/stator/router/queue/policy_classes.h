// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/json/value.h"
#include "stator/router/queue/request_queue.h"
#include "stator/router/router.h"

namespace stator::router {

/// A class of requests: a queue of its own, and a share of what the workers have.
struct PolicyClass {
  std::string name;
  std::string family;  ///< empty: reached by its name only
  std::string bucket;  ///< of prompts by their uncached length; empty with `family`
  QueueOrder order = QueueOrder::kFcfs;
  uint32_t quantum = 2048;  ///< uncached prompt tokens per turn
  BusyThresholds wait;  ///< its requests wait while every worker is beyond it; unset: they do not
  ClassLimits per_worker;  ///< times the workers that may be given work
};

/// The classes of a router, as the reference's YAML says them (--router-policy-config):
///
///   default_policy_family: cached
///   uncached_isl_buckets: [{min_tokens: 0, bucket: short}, {min_tokens: 4096, bucket: long}]
///   policy_classes:
///     - {name: cached-short, policy_family: cached, cache_bucket: short, queue_policy: wspt,
///        quantum: 2048, prefill_busy_threshold_frac: 16, request_queue_limit_per_worker: 64}
///     - …
///   models: {other-model: {default_policy_family: …, …}}
///
/// P1  Every family has one class for every bucket, so that each request has a class.
struct PolicyConfig {
  struct Bucket {
    uint64_t min_tokens = 0;
    std::string name;
  };
  std::string default_family;
  std::vector<Bucket> buckets;  ///< the first from 0, ascending
  std::vector<PolicyClass> classes;
  std::map<std::string, std::shared_ptr<const PolicyConfig>, std::less<>> models;

  /// The class for a prompt of which so many tokens are cached nowhere. `wish` (the client's
  /// x-dynamo-meta-policy-class) is a class or a family; others count as the default family.
  const PolicyClass& choose(std::string_view wish, uint64_t uncached_tokens) const;
};

/// Errors name the member that is wrong and what it may be.
Result<std::shared_ptr<const PolicyConfig>> parse_policy_config(const json::Value& document);

}  // namespace stator::router
