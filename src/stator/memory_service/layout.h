// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"

namespace stator::memory_service {

/// A piece of memory that the service owns.
struct Allocation {
  uint64_t id = 0;
  uint64_t bytes = 0;         ///< asked for
  uint64_t mapped_bytes = 0;  ///< in whole pages
  std::string tag;            ///< "weights", "kv_cache", …
  uint32_t slot = 0;          ///< order of allocation
};
/// Where a client finds what: a tensor's name → a place in an allocation.
struct Place {
  uint64_t allocation = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string about;  ///< the client's own: dtype, shape, …
  friend bool operator==(const Place&, const Place&) = default;
};

/// What lies in the service's memory. Owns the memfds. One thread.
class Layout {
 public:
  static constexpr size_t kAllocationsMax = 65'536;
  static constexpr size_t kPlacesMax = size_t{1} << 20;
  static constexpr size_t kTextMax = 4096;

  explicit Layout(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  /// kOverloaded: it does not fit now. kInvalidArgument: it never will.
  Result<Allocation> allocate(uint64_t bytes, const std::string& tag);
  Status free(uint64_t id);
  /// The memfd, −1 for an unknown id; the layout's.
  int descriptor(uint64_t id) const;
  std::vector<Allocation> list() const;
  uint64_t bytes() const { return bytes_; }

  Status put(const std::string& key, Place place);
  std::optional<Place> get(const std::string& key) const;
  bool erase(const std::string& key);
  std::vector<std::string> keys() const;

  /// kInvalidArgument, and which key: it points at what is freed or beyond its end.
  Status check() const;
  /// Of slots, sizes, tags and places: clients that see an equal one may map what they mapped
  /// before.
  uint64_t hash() const;
  void clear();

 private:
  struct Held {
    Allocation facts;
    io::FileDescriptor memory;
  };
  const uint64_t bytes_max_;
  uint64_t bytes_ = 0;
  uint64_t last_id_ = 0;
  uint32_t last_slot_ = 0;
  std::map<uint64_t, Held> held_;
  std::map<std::string, Place> places_;
};

}  // namespace stator::memory_service
