// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/detail/schema_keywords.h"

#include <algorithm>
#include <array>

namespace stator::structured {
namespace {

using enum SchemaRule;
using enum SchemaFeature;

constexpr auto kKeywords = std::to_array<SchemaKeyword>({
    {"$comment", kIgnored},
    {"$defs", kMembers},
    {"$dynamicRef", kRefused, {}, "use $ref"},
    {"$id", kIgnored},
    {"$recursiveRef", kRefused, {}, "use $ref: \"#\""},
    {"$ref", kReference},
    {"$schema", kIgnored},
    {"additionalItems", kRefused, {}, "name it items, and the tuple prefixItems"},
    {"additionalProperties", SchemaRule::kSchema},
    {"allOf", kList},
    {"anyOf", kList},
    {"const", kIgnored},
    {"contains", kRefused, {}, "describe all items with items, or a tuple with prefixItems"},
    {"default", kIgnored},
    {"definitions", kMembers},
    {"dependencies", kRefused, {}, "write the cases as members of anyOf"},
    {"dependentRequired", kRefused, {}, "write the cases as members of anyOf"},
    {"dependentSchemas", kRefused, {}, "write the cases as members of anyOf"},
    {"deprecated", kIgnored},
    {"description", kIgnored},
    {"else", kRefused, {}, "write the cases as members of anyOf"},
    {"enum", kEnum},
    {"examples", kIgnored},
    {"exclusiveMaximum", kBound},
    {"exclusiveMinimum", kBound},
    {"format", kFormat},
    {"if", kRefused, {}, "write the cases as members of anyOf"},
    {"items", kItems},
    {"maxContains", kRefused, {}, "use maxItems"},
    {"maxItems", kCount},
    {"maxLength", kCount},
    {"maxProperties", kCount, kPropertyCount},
    {"maximum", kBound},
    {"minContains", kRefused, {}, "use minItems"},
    {"minItems", kCount},
    {"minLength", kCount},
    {"minProperties", kCount, kPropertyCount},
    {"minimum", kBound},
    {"multipleOf", kMultiple, kMultipleOf},
    {"not", kRefused, {}, "say what is allowed, with enum, anyOf or pattern"},
    {"nullable", kRefusedIfTrue, {}, "it is OpenAPI's; add \"null\" to type"},
    {"oneOf", kList},
    {"pattern", kPattern},
    {"patternProperties", kPatternMembers, kPatternProperties},
    {"prefixItems", kList},
    {"properties", kMembers},
    {"propertyNames", kRefused, {}, "use patternProperties with additionalProperties: false"},
    {"readOnly", kIgnored},
    {"required", kNames},
    {"then", kRefused, {}, "write the cases as members of anyOf"},
    {"title", kIgnored},
    {"type", kType},
    {"unevaluatedItems", kRefusedUnlessTrue, {}, "use items: false"},
    {"unevaluatedProperties", kRefusedUnlessTrue, {}, "use additionalProperties: false"},
    {"uniqueItems", kRefusedIfTrue, {}, "check the items after generation"},
    {"writeOnly", kIgnored},
});
static_assert(std::ranges::is_sorted(kKeywords, {}, &SchemaKeyword::name));

struct Format {
  std::string_view name;
  FormatSupport support;
};

constexpr auto kFormats = std::to_array<Format>({
    {"binary", FormatSupport::kAnnotation},
    {"byte", FormatSupport::kAnnotation},
    {"date", FormatSupport::kCommon},
    {"date-time", FormatSupport::kCommon},
    {"double", FormatSupport::kAnnotation},
    {"duration", FormatSupport::kUncommon},
    {"email", FormatSupport::kUncommon},
    {"float", FormatSupport::kAnnotation},
    {"hostname", FormatSupport::kUncommon},
    {"int32", FormatSupport::kAnnotation},
    {"int64", FormatSupport::kAnnotation},
    {"ipv4", FormatSupport::kUncommon},
    {"ipv6", FormatSupport::kUncommon},
    {"json-pointer", FormatSupport::kUncommon},
    {"password", FormatSupport::kAnnotation},
    {"relative-json-pointer", FormatSupport::kUncommon},
    {"time", FormatSupport::kCommon},
    {"uint32", FormatSupport::kAnnotation},
    {"uint64", FormatSupport::kAnnotation},
    {"uri", FormatSupport::kUncommon},
    {"uri-reference", FormatSupport::kUncommon},
    {"uri-template", FormatSupport::kUncommon},
    {"uuid", FormatSupport::kCommon},
});
static_assert(std::ranges::is_sorted(kFormats, {}, &Format::name));

}  // namespace

const SchemaKeyword* find_schema_keyword(std::string_view name) {
  const auto found = std::ranges::lower_bound(kKeywords, name, {}, &SchemaKeyword::name);
  return found != kKeywords.end() && found->name == name ? &*found : nullptr;
}

FormatSupport classify_format(std::string_view name) {
  const auto found = std::ranges::lower_bound(kFormats, name, {}, &Format::name);
  return found != kFormats.end() && found->name == name ? found->support : FormatSupport::kUnknown;
}

}  // namespace stator::structured
