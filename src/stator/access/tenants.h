// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "stator/access/token_bucket.h"
#include "stator/core/clock.h"
#include "stator/core/keyed_map.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"

namespace stator::access {

/// What a tenant may use; 0 = without limit.
struct TenantLimits {
  double requests_per_minute = 0;
  double tokens_per_minute = 0;  ///< prompt and output
  uint32_t concurrent = 0;       ///< requests under way
  double weight = 1;             ///< of its turns in queues; twice as much gets twice as much
  bool operator==(const TenantLimits&) const = default;
};

/// A file of limits. Immutable.
///
///   acme   requests_per_minute=600 tokens_per_minute=200000 concurrent=32 weight=2
///   *      requests_per_minute=60
class TenantTable {
 public:
  /// kInvalidArgument names the line and the word.
  static Result<TenantTable> parse(std::string_view text);

  bool lists(std::string_view tenant) const { return named_.contains(tenant); }
  /// Those of its line, else those of `*`, else none.
  const TenantLimits& find(std::string_view tenant) const;

 private:
  KeyedMap<TenantLimits> named_;
  TenantLimits others_;
};

/// Which limit a request met, and how long it has to wait.
struct OverBudget {
  std::string_view limit;  ///< "requests_per_minute", …
  Duration wait{};
};

/// What one tenant has used. Thread-safe; each call takes some tens of nanoseconds.
class Tenant {
 public:
  Tenant(std::string name, const TenantLimits& limits);

  /// Takes a request out of its budget, and a place among those under way until leave().
  std::expected<void, OverBudget> enter(TimePoint now);
  void leave();
  /// Prompt or output of a request. May leave the tenant owing.
  void charge_tokens(TimePoint now, uint64_t tokens);
  void set_limits(const TenantLimits& limits);

  const std::string& name() const { return name_; }
  double weight() const;
  /// What is under way and what of the minute's budgets is left, for people.
  struct State {
    TenantLimits limits;
    uint32_t running = 0;
    double requests_left = 0;
    double tokens_left = 0;
    uint64_t refused = 0;
    uint64_t tokens = 0;  ///< charged since the start
  };
  State state(TimePoint now) const;

 private:
  const std::string name_;
  mutable Mutex mutex_;
  TenantLimits limits_ STATOR_GUARDED_BY(mutex_);
  mutable TokenBucket requests_ STATOR_GUARDED_BY(mutex_);
  mutable TokenBucket tokens_ STATOR_GUARDED_BY(mutex_);
  uint32_t running_ STATOR_GUARDED_BY(mutex_) = 0;
  uint64_t refused_ STATOR_GUARDED_BY(mutex_) = 0;
  uint64_t charged_ STATOR_GUARDED_BY(mutex_) = 0;
};

/// A request's place in its tenant's budget; gives it back when it goes. Empty: unlimited.
class TenantLease {
 public:
  TenantLease() = default;
  /// Of a tenant that the request has entered.
  explicit TenantLease(std::shared_ptr<Tenant> tenant) : tenant_(std::move(tenant)) {}
  TenantLease(TenantLease&& other) noexcept = default;
  TenantLease& operator=(TenantLease&& other) noexcept {
    std::swap(tenant_, other.tenant_);
    return *this;
  }
  TenantLease(const TenantLease&) = delete;
  TenantLease& operator=(const TenantLease&) = delete;
  ~TenantLease() {
    if (tenant_ != nullptr) {
      tenant_->leave();
    }
  }
  void charge_tokens(TimePoint now, uint64_t tokens) const {
    if (tenant_ != nullptr) {
      tenant_->charge_tokens(now, tokens);
    }
  }

 private:
  std::shared_ptr<Tenant> tenant_;  // shared with the tenant's other requests
};

}  // namespace stator::access
