// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/cluster_facts.h"

namespace stator::op {
namespace {

using namespace std::chrono_literals;

constexpr Duration kAge = 2s;

}  // namespace

Environment ClusterFacts::environment() {
  const std::lock_guard lock(mutex_);
  const TimePoint now = clock_.now();
  if (!known_ || now - looked_ > kAge) {
    looked_ = now;
    if (const auto listed = client_.get_path("/apis")) {
      known_ = true;
      groups_.clear();
      for (const json::Value& group : listed->at("groups").elements()) {
        groups_.emplace(group.text_at({"name"}));
      }
    }
  }
  Environment environment = base_;
  if (!known_) {
    return environment;
  }
  environment.serves_grove = groups_.contains("grove.io");
  environment.has_grove = base_.has_grove && environment.serves_grove;
  environment.has_lws = groups_.contains("leaderworkerset.x-k8s.io");
  environment.has_inference_pool = groups_.contains("inference.networking.k8s.io");
  environment.has_gateway = base_.has_gateway && groups_.contains("gateway.networking.k8s.io");
  environment.has_kai = groups_.contains("scheduling.run.ai");
  environment.has_volcano = groups_.contains("scheduling.volcano.sh");
  return environment;
}

std::string ClusterFacts::user() {
  const std::lock_guard lock(mutex_);
  if (user_.empty()) {
    json::Value review = json::Value::object();
    review["apiVersion"] = "authentication.k8s.io/v1";
    review["kind"] = "SelfSubjectReview";
    const kube::Resource resource{"authentication.k8s.io", "v1", "selfsubjectreviews",
                                  "SelfSubjectReview", false};
    if (const auto answer = client_.create(resource, review)) {
      user_ = answer->text_at({"status", "userInfo", "username"});
    }
  }
  return user_;
}

}  // namespace stator::op
