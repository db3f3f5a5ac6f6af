// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "stator/core/result.h"
#include "stator/json/value.h"

namespace stator::perf::detail {

/// Reads fields of one object of a config.json, each by any of the names that models have for it.
/// Errors name the file and the first of the names. Views of its arguments.
class ConfigFields {
 public:
  static constexpr uint64_t kSizeMax = 1ULL << 26;

  ConfigFields(const json::Value& object, std::string_view name) : object_(object), name_(name) {}

  /// Null where it is absent or null.
  const json::Value* find(std::initializer_list<std::string_view> names) const {
    for (const std::string_view field : names) {
      const json::Value* value = object_.find(field);
      if (value != nullptr && !value->is_null()) {
        return value;
      }
    }
    return nullptr;
  }
  bool flag(std::string_view name) const {
    const json::Value* value = find({name});
    return value != nullptr && value->as_bool().value_or(false);
  }
  Result<uint32_t> need(std::initializer_list<std::string_view> names) const {
    STATOR_TRY(const uint32_t number, size(names, 0));
    if (number == 0) {
      return fail(*names.begin(), fmt::format("must be a whole number from 1 to {}", kSizeMax));
    }
    return number;
  }
  /// `fallback` where it is absent; a list of numbers (one per layer) counts as its largest.
  Result<uint32_t> size(std::initializer_list<std::string_view> names, uint32_t fallback) const {
    const json::Value* value = find(names);
    if (value == nullptr) {
      return fallback;
    }
    std::optional<uint64_t> number = value->as_uint64();
    if (value->is_array()) {
      for (const json::Value& element : value->elements()) {
        number = std::max(number.value_or(0), element.as_uint64().value_or(0));
      }
    }
    if (!number || *number > kSizeMax) {
      return fail(*names.begin(), fmt::format("must be a whole number up to {}", kSizeMax));
    }
    return static_cast<uint32_t>(*number);
  }
  /// Of a list with one entry per layer; nothing where there is no such list or it is too short.
  std::optional<uint64_t> at_layer(std::string_view name, uint32_t index) const {
    const json::Value* value = find({name});
    if (value == nullptr || !value->is_array() || index >= value->size()) {
      return {};
    }
    return value->elements()[index].as_uint64();
  }
  /// Whether a list of layers names this one.
  bool lists(std::string_view name, uint64_t layer) const {
    const json::Value* value = find({name});
    return value != nullptr && value->is_array() &&
           std::ranges::any_of(value->elements(),
                               [&](const json::Value& each) { return each.as_uint64() == layer; });
  }
  /// An object in it, with the same error messages.
  ConfigFields object(std::string_view name) const { return {object_.at(name), name_}; }
  Error fail(std::string_view field, std::string_view what) const {
    return Error(Code::kInvalidArgument, fmt::format("'{}': {} {}", name_, field, what));
  }

 private:
  const json::Value& object_;
  std::string_view name_;
};

}  // namespace stator::perf::detail
