// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stator/json/value.h"

namespace stator::op {

/// Collects the first violation of an object's rules.
class FieldCheck {
 public:
  bool ok() const { return !what_; }
  const std::string& what() const { return *what_; }

  /// "path: Invalid value: v: why"
  void invalid(std::string_view path, const json::Value& value, std::string_view why);
  void required(std::string_view path, std::string_view why = "");
  void forbidden(std::string_view path, std::string_view why);
  void unsupported(std::string_view path, std::string_view value,
                   std::span<const std::string_view> allowed);

  /// Kinds of a member, if it is there; "path.key" is named.
  const json::Value* object(const json::Value& parent, std::string_view path, std::string_view key);
  const json::Value* array(const json::Value& parent, std::string_view path, std::string_view key);
  std::optional<std::string_view> string(const json::Value& parent, std::string_view path,
                                         std::string_view key);
  std::optional<int64_t> integer(const json::Value& parent, std::string_view path,
                                 std::string_view key);
  std::optional<bool> boolean(const json::Value& parent, std::string_view path,
                              std::string_view key);
  /// An integer of at least `min`, and of at most what Kubernetes stores in such fields.
  std::optional<int64_t> at_least(const json::Value& parent, std::string_view path,
                                  std::string_view key, int64_t min);
  /// A number above 0, fractions included.
  void above_zero(const json::Value& parent, std::string_view path, std::string_view key);
  /// A string that is one of these.
  void one_of(const json::Value& parent, std::string_view path, std::string_view key,
              std::span<const std::string_view> allowed);
  /// Strings only: labels, annotations.
  void string_map(const json::Value& parent, std::string_view path, std::string_view key);

 private:
  void set(std::string what);
  const json::Value* of_kind(const json::Value& parent, std::string_view path, std::string_view key,
                             json::Kind kind);
  std::optional<std::string> what_;
};

}  // namespace stator::op
