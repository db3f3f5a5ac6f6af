// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/schema_features.h"

namespace stator::structured {

std::string_view keyword(SchemaFeature feature) {
  switch (feature) {
    case SchemaFeature::kMultipleOf:
      return "multipleOf";
    case SchemaFeature::kPatternProperties:
      return "patternProperties";
    case SchemaFeature::kPropertyCount:
      return "minProperties and maxProperties";
    case SchemaFeature::kAllOf:
      return "allOf with several members";
    case SchemaFeature::kNumberBounds:
      return "bounds of a number that is not an integer";
    case SchemaFeature::kUncommonFormat:
      return "this format";
    case SchemaFeature::kOpenPattern:
      return "a pattern without ^ and $ at its ends";
    case SchemaFeature::kSiblings:
      return "this keyword together with those beside it";
    case SchemaFeature::kTupleItems:
      return "a tuple in its old spelling (it is prefixItems now)";
  }
  return "this keyword";
}

}  // namespace stator::structured
