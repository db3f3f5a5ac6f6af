// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace stator::structured {

/// Parts of JSON Schema that some engines enforce and others would silently ignore. What nobody
/// enforces is refused on arrival and has no entry here.
enum class SchemaFeature : uint8_t {
  kMultipleOf,
  kPatternProperties,
  kPropertyCount,   ///< minProperties, maxProperties
  kAllOf,           ///< with more than one member
  kNumberBounds,    ///< minimum … on a type that is not "integer"
  kUncommonFormat,  ///< a `format` other than date, time, date-time, uuid
  kOpenPattern,     ///< `pattern` without ^ and $
  kSiblings,        ///< keywords that decoders look at alone, beside others (check_siblings())
  kTupleItems,      ///< a list as `items`, and additionalItems
};
inline constexpr uint8_t kSchemaFeatureCount = 9;

/// The keyword, for messages.
std::string_view keyword(SchemaFeature feature);

/// A set of them.
class SchemaFeatures {
 public:
  constexpr SchemaFeatures() = default;
  constexpr SchemaFeatures with(SchemaFeature feature) const {
    SchemaFeatures out = *this;
    out.bits_ |= bit(feature);
    return out;
  }
  constexpr SchemaFeatures without(SchemaFeatures other) const {
    SchemaFeatures out = *this;
    out.bits_ &= ~other.bits_;
    return out;
  }
  constexpr void merge(SchemaFeatures other) { bits_ |= other.bits_; }
  constexpr bool has(SchemaFeature feature) const { return (bits_ & bit(feature)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  static constexpr SchemaFeatures all() {
    SchemaFeatures out;
    out.bits_ = (1U << kSchemaFeatureCount) - 1U;
    return out;
  }
  friend constexpr bool operator==(SchemaFeatures, SchemaFeatures) = default;

 private:
  static constexpr uint32_t bit(SchemaFeature feature) {
    return 1U << static_cast<uint32_t>(feature);
  }
  uint32_t bits_ = 0;
};

}  // namespace stator::structured
