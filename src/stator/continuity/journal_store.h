// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/result.h"

namespace stator::continuity {

/// Names a stream to whoever holds its copy. 128 random bits: a guess opens nothing.
struct StreamId {
  uint64_t high = 0;
  uint64_t low = 0;
  friend auto operator<=>(const StreamId&, const StreamId&) = default;
  template <typename H>
  friend H AbslHashValue(
      H state, const StreamId& id) {  // NOLINT(readability-identifier-naming): absl's hook
    return H::combine(std::move(state), id.high, id.low);
  }
};

/// Copies of the journals of other frontends' streams, as parts whose meaning is their owner's. A
/// pure core: no I/O, clock or lock.
///
/// H1  bytes() is the sum over all parts, with a fixed charge for each, and at most bytes_max.
/// H2  A copy is whole: it has all parts from the first on, or it is not here.
class JournalStore {
 public:
  struct Limits {
    uint64_t bytes_max = 256ULL << 20;         ///< beyond: nothing more is taken
    Duration keep = std::chrono::seconds(60);  ///< after a copy's last part
  };
  explicit JournalStore(const Limits& limits) : limits_(limits) {}

  enum class Place : uint8_t { kBegin, kEnd };
  /// kOverloaded: no room; what was there of the stream is gone, too (H2). kNotFound: kEnd of a
  /// stream that is not here. kAlreadyExists: kBegin of one that is.
  Status append(StreamId stream, Place place, std::string part, TimePoint now);
  /// Empty when it is not here.
  std::vector<std::string> read(StreamId stream) const;
  /// Forgets the copies that got nothing for longer than `keep`.
  void expire(TimePoint now);

  uint64_t bytes() const { return bytes_; }
  size_t streams() const { return copies_.size(); }

 private:
  struct Copy {
    std::vector<std::string> parts;
    uint64_t bytes = 0;
    TimePoint last{};
  };
  void drop(StreamId stream);

  const Limits limits_;
  FlatMap<StreamId, Copy> copies_;
  std::set<std::pair<TimePoint, StreamId>> by_age_;  // of all copies, by their last part
  uint64_t bytes_ = 0;
};

}  // namespace stator::continuity
