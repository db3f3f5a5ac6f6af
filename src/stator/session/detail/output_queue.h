// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/engine/api/engine.h"

namespace stator::session::detail {

/// What waits to be sent to one session, and which requests it has in flight. Plain state; the
/// owner locks.
///
/// Q1  Steps merge while they wait: a slow reader gets fewer, larger messages.
/// Q2  Beyond `bytes_max` of waiting steps every request with a word still to be said fails
///     (kOverloaded), what waited is dropped, and the queue accepts no more of them.
/// Q3  Per request, order is kept and the terminal word comes once.
class OutputQueue {
 public:
  explicit OutputQueue(size_t bytes_max) : bytes_max_(bytes_max) {}

  struct Accepted {
    inference::RequestKey key;
  };
  struct Rejected {
    inference::Failure failure;
  };
  struct Welcome {};
  struct Draining {};
  using Message = std::variant<Welcome, Accepted, Rejected, engine::LoadReport, Draining,
                               inference::StepOutput>;

  /// False if the key is in flight already. `expires`: when the request is late, if ever.
  bool begin(inference::RequestKey key, std::optional<TimePoint> expires);
  /// False if it was not in flight.
  bool forget(inference::RequestKey key) { return in_flight_.erase(key) > 0; }
  size_t in_flight() const { return in_flight_.size(); }

  void push(Welcome message) { control_.push_back(message); }
  void push(Accepted message) { control_.push_back(message); }
  void push(Rejected message) { control_.push_back(std::move(message)); }
  void push(Draining message) { control_.push_back(message); }
  void push(const engine::LoadReport& load) { load_ = load; }
  /// Drops what is not in flight. Returns the requests to cancel in the engine, if this was too
  /// much.
  std::vector<inference::RequestKey> push(inference::StepOutput step);
  /// Fails requests past their time; the same return.
  std::vector<inference::RequestKey> expire(TimePoint now);

  size_t control_count() const { return control_.size(); }
  /// Messages that pop() has still to hand out.
  size_t waiting() const { return control_.size() + steps_.size() + (load_ ? 1 : 0); }
  size_t step_bytes() const { return step_bytes_; }
  /// The next message to send.
  std::optional<Message> pop();
  void clear();

 private:
  struct Request {
    std::optional<TimePoint> expires;
  };
  std::vector<inference::RequestKey> overflow();

  /// A message stays well below the protocol's limits on entries and bytes.
  static constexpr size_t kMessageEntries = 16 * 1024;
  static constexpr size_t kMessageBytes = size_t{2} * 1024 * 1024;

  const size_t bytes_max_;
  FlatMap<inference::RequestKey, Request> in_flight_;
  std::deque<Message> control_;
  std::optional<engine::LoadReport> load_;
  std::deque<inference::StepOutput> steps_;
  size_t step_bytes_ = 0;
};

}  // namespace stator::session::detail
