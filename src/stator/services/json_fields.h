// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/json/value.h"

namespace stator::services {

/// Typed access to one JSON object from outside. Null counts as absent. Errors are kInvalidArgument
/// and name the field; unknown fields are ignored. Whole numbers may be signed or unsigned: hashes
/// are reinterpreted bitwise, as other services send them.
class Fields {
 public:
  /// Nobody has as many ranks; beyond are ids that ended up in the wrong field.
  static constexpr uint32_t kRankMax = 16'383;

  /// The text must be one JSON object; an empty text counts as {}.
  static Result<Fields> parse(std::string_view text);
  /// A view of a part of another object, which must outlive it.
  explicit Fields(const json::Value& object, std::string where = {});

  bool has(std::string_view name) const;
  Result<std::string> text(std::string_view name) const;
  Result<std::string> text_or(std::string_view name, std::string_view fallback) const;
  Result<uint64_t> number(std::string_view name, uint64_t max = kNumberMax) const;
  Result<uint64_t> number_or(std::string_view name, uint64_t fallback,
                             uint64_t max = kNumberMax) const;
  /// "dp_rank", a data-parallel rank; absent: none.
  Result<std::optional<uint32_t>> rank() const;
  Result<std::optional<double>> real(std::string_view name, double min, double max) const;
  Result<std::optional<bool>> flag(std::string_view name) const;
  /// Whole numbers in an array; absent: empty.
  Result<std::vector<uint64_t>> hashes(std::string_view name) const;
  Result<std::vector<TokenId>> tokens(std::string_view name) const;
  Result<std::vector<std::string>> texts(std::string_view name) const;
  /// Null when absent.
  Result<const json::Value*> object(std::string_view name) const;
  Result<const json::Value*> array(std::string_view name) const;

  const json::Value& raw() const { return *object_; }
  Error wrong(std::string_view name, std::string_view expected) const;

 private:
  static constexpr uint64_t kNumberMax = std::numeric_limits<uint64_t>::max();
  const json::Value* find(std::string_view name) const;

  std::shared_ptr<const json::Value> owned_;  // shared by copies; null for a view
  const json::Value* object_;
  std::string where_;
};

/// A whole number however it is spelled; negative ones reinterpreted bitwise.
std::optional<uint64_t> as_hash(const json::Value& value);

}  // namespace stator::services
