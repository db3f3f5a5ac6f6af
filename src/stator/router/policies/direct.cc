// SPDX-License-Identifier: Apache-2.0
#include "stator/router/policy.h"

namespace stator::router {
namespace {

/// The caller names the worker; the router has already narrowed the eligible ones to it.
class DirectPolicy final : public Policy {
 public:
  bool needs_pin() const override { return true; }
  Choice choose(const PolicyInput&, Random&) override { return {0, "named by the request"}; }
};

}  // namespace

extern const PolicyInfo kDirectPolicy;
const PolicyInfo kDirectPolicy = {"direct", make<DirectPolicy>};

}  // namespace stator::router
