// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/frontend/active_request.h"
#include "stator/net/byte_budget.h"
#include "stator/net/compute_pool.h"
#include "stator/net/shard.h"

namespace stator::frontend {

/// Answers that are collected and sent as one body: large ones are written by the compute pool, and
/// when all of them together are beyond their budget the largest are given up. Home loop: the
/// shard's.
///
/// W1  A body that is being written belongs to a request that runs, until forget().
class AnswerBodies {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void on_body(ActiveRequest& active, std::string body) = 0;
  };
  /// `budget` of all shards together; null: unbounded.
  AnswerBodies(net::Shard& shard, net::ComputePool& compute, net::ByteBudget* budget, Owner& owner)
      : shard_(shard), compute_(compute), budget_(budget), owner_(owner) {}

  bool over_budget() const { return budget_ != nullptr && budget_->excess() > 0; }
  /// An answer that is to be given up.
  struct Shed {
    ActiveRequest* active;
    Error error;
  };
  /// Those of `running` that go until the budget holds again. Larger ones of other shards go at
  /// their next sweep.
  std::vector<Shed> choose_to_shed(std::span<ActiveRequest* const> running) const;

  enum class Taken : uint8_t {
    kNothing,  ///< it is quickly written where it is
    kBody,     ///< on_body() follows
  };
  /// An error: the pool has no room.
  Result<Taken> take(ActiveRequest& active);
  void forget(const ActiveRequest& active);
  /// Looks for bodies whose message was lost to a full inbox; once a second or so.
  void sweep();

 private:
  struct Body {
    std::string text;
    std::atomic<bool> done{false};
  };
  struct Writing {
    ActiveRequest* active = nullptr;
    std::shared_ptr<Body> body;  // shared with the pool's task
  };
  void on_written(uint64_t id);

  net::Shard& shard_;
  net::ComputePool& compute_;
  net::ByteBudget* const budget_;
  Owner& owner_;
  FlatMap<uint64_t, Writing> writing_;  // at most one per running request
  uint64_t last_id_ = 0;
};

}  // namespace stator::frontend
