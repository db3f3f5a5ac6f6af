// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/json/value.h"

namespace stator::kube {

/// Cuts what a server sends into JSON values, as soon as each is whole: lines of a watch, or the
/// elements of "items" of a list, so that a list of any length takes the memory of one element.
/// Bytes may come in any pieces. Pure; one thread.
class ObjectSplitter {
 public:
  enum class Mode : uint8_t {
    kValues,  ///< values one behind the other
    kItems,   ///< one object with an array "items"; the rest of it is kept as `envelope`
  };
  using OnObject = std::function<Status(std::string_view text)>;

  explicit ObjectSplitter(Mode mode, size_t object_bytes_max = size_t{16} << 20)
      : mode_(mode), object_bytes_max_(object_bytes_max) {}

  /// kTooLarge for an object beyond the bound; whatever `on_object` returns.
  Status feed(std::string_view bytes, const OnObject& on_object);
  /// kItems: the object around the items, with an empty array in their place.
  const std::string& envelope() const { return envelope_; }

 private:
  Status take(char c, const OnObject& on_object);
  Status take_text(std::string_view text);
  Status check_size() const;

  Mode mode_;
  size_t object_bytes_max_;
  std::string current_;
  std::string envelope_;
  std::string key_;  ///< the last string at depth 1, to know "items"
  int depth_ = 0;
  int items_depth_ = 0;  ///< depth inside the array of items, 0 outside
  bool in_string_ = false;
  bool escaped_ = false;
};

/// A line of a watch.
struct WatchEvent {
  std::string type;  ///< ADDED, MODIFIED, DELETED, BOOKMARK, ERROR
  json::Value object;
};
Result<WatchEvent> parse_watch_event(std::string_view text);
/// The same of what was parsed already.
Result<WatchEvent> to_watch_event(json::Value line);

}  // namespace stator::kube
