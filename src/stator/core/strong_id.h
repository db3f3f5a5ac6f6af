// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace stator {

/// An integer that is an identity: explicit to make, explicit to read, comparable with its own
/// kind, no arithmetic, no conversion either way, so a WorkerId and a BlockHash cannot be mixed up.
///
///   using WorkerId = StrongId<struct WorkerTag, uint64_t>;
///   WorkerId id(7);  id.value() == 7;   id == BlockHash(7);  // does not compile
template <typename Tag, typename Value>
class StrongId {
 public:
  using ValueType = Value;
  constexpr StrongId() noexcept = default;
  constexpr explicit StrongId(Value value) noexcept : value_(value) {}
  constexpr Value value() const noexcept { return value_; }
  friend constexpr auto operator<=>(StrongId, StrongId) noexcept = default;

  template <typename H>
  friend H AbslHashValue(H state,
                         StrongId id) {  // NOLINT(readability-identifier-naming): absl's hook
    return H::combine(std::move(state), id.value_);
  }

 private:
  Value value_{};
};

template <typename Tag, typename Value>
std::string to_string(StrongId<Tag, Value> id) {
  return std::to_string(id.value());
}

}  // namespace stator

template <typename Tag, typename Value>
struct std::hash<stator::StrongId<Tag, Value>> {
  size_t operator()(stator::StrongId<Tag, Value> id) const noexcept {
    return std::hash<Value>{}(id.value());
  }
};
