// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/random.h"
#include "stator/router/cost.h"
#include "stator/router/receipt.h"

namespace stator::router {

/// What a policy may look at. `eligible` holds at least one index into `candidates`.
struct PolicyInput {
  std::span<ReceiptCandidate> candidates;  ///< a policy may write `cost`
  std::span<const size_t> eligible;
  CostRequest request;
};

struct Choice {
  size_t candidate = 0;
  std::string_view reason;  ///< static text for the receipt
};

/// Chooses among eligible workers. One object per router; it may keep state (a round-robin cursor).
/// To add one: a class here or in a file of its own, and a row in make_policy's table.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  /// Whether the router should look the prompt's blocks up in the index for this policy.
  virtual bool needs_overlap() const { return false; }
  virtual Choice choose(const PolicyInput& input, Random& random) = 0;
};

/// Names accepted by make_policy, in the order they are documented.
std::vector<std::string> policy_names();

/// Null for an unknown name.
std::unique_ptr<Policy> make_policy(std::string_view name, const CostConfig& cost);

}  // namespace stator::router
