// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "stator/core/ids.h"
#include "stator/router/load_lease.h"

namespace stator::router {

struct RouteRequest;

/// What a router elsewhere has chosen, and booked there; or only what is to be weighed.
struct Advice {
  bool chosen = true;          ///< false: no worker is named, `shared_blocks` is all
  uint32_t shared_blocks = 0;  ///< of the prompt's first, every worker can load so many
  WorkerKey worker;
  uint32_t overlap_blocks = 0;             ///< cached there, as far as it knows
  std::unique_ptr<RemoteBooking> booking;  ///< ends with the request
};

/// A router or a cache elsewhere that is asked for every request which does not name its worker.
/// Its word is advice: a worker that is not here, or that must not be used, leads to a decision of
/// our own, as does silence. Thread-safe.
class Advisor {
 public:
  using Answer = std::move_only_function<void(std::optional<Advice>)>;

  virtual ~Advisor() = default;
  /// `answer` is called once: soon on another thread, or, where nothing is asked, before this
  /// returns. Nothing: decide yourself. What is needed of `request` is copied.
  virtual void advise(const RouteRequest& request, Answer answer) = 0;
};

}  // namespace stator::router
