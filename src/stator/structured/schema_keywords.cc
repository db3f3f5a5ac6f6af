// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/detail/schema_keywords.h"

#include <algorithm>
#include <array>

namespace stator::structured {
namespace {

using enum SchemaRule;
using enum SchemaDomain;
using enum SchemaFeature;

constexpr auto kKeywords = std::to_array<SchemaKeyword>({
    {"$comment", kIgnored},
    {"$defs", kMembers},
    {"$dynamicRef", kRefused, kNone, {}, "use $ref"},
    {"$id", kIgnored},
    {"$recursiveRef", kRefused, kNone, {}, "use $ref: \"#\""},
    {"$ref", kReference, kWhole},
    {"$schema", kIgnored},
    {"additionalItems", kSchema, kNone, kTupleItems},
    {"additionalProperties", kSchema, kObject},
    {"allOf", kList, kWhole},
    {"anyOf", kList, kWhole},
    {"const", kIgnored, kWhole},
    {"contains", kOwnSchema, kArray},
    {"default", kIgnored},
    {"definitions", kMembers},
    {"dependencies", kRefused, kNone, {}, "write the cases as members of anyOf"},
    {"dependentRequired", kRefused, kNone, {}, "write the cases as members of anyOf"},
    {"dependentSchemas", kRefused, kNone, {}, "write the cases as members of anyOf"},
    {"deprecated", kIgnored},
    {"description", kIgnored},
    {"else", kRefused, kNone, {}, "write the cases as members of anyOf"},
    {"enum", kEnum, kWhole},
    {"examples", kIgnored},
    {"exclusiveMaximum", kBound, kNumber},
    {"exclusiveMinimum", kBound, kNumber},
    {"format", kFormat, kString},
    {"if", kRefused, kNone, {}, "write the cases as members of anyOf"},
    {"items", kItems, kArray},
    {"maxContains", kRefused, kNone, {}, "use maxItems"},
    {"maxItems", kCount, kArray},
    {"maxLength", kCount, kString},
    {"maxProperties", kCount, kObject, kPropertyCount},
    {"maximum", kBound, kNumber},
    {"minContains", kOwnCount, kArray},
    {"minItems", kCount, kArray},
    {"minLength", kCount, kString},
    {"minProperties", kCount, kObject, kPropertyCount},
    {"minimum", kBound, kNumber},
    {"multipleOf", kMultiple, kNumber, kMultipleOf},
    {"not", kDenied, kWhole, {}, "say what is allowed, with enum, anyOf or pattern"},
    {"nullable", kRefusedIfTrue, kNone, {}, "it is OpenAPI's; add \"null\" to type"},
    {"oneOf", kList, kWhole},
    {"pattern", kPattern, kString},
    {"patternProperties", kPatternMembers, kObject, kPatternProperties},
    {"prefixItems", kList, kArray},
    {"properties", kMembers, kObject},
    {"propertyNames", kNamesOfMembers, kObject},
    {"readOnly", kIgnored},
    {"required", kNames, kObject},
    {"then", kRefused, kNone, {}, "write the cases as members of anyOf"},
    {"title", kIgnored},
    {"type", kType, kTypes},
    {"unevaluatedItems", kRefusedUnlessTrue, kNone, {}, "use items: false"},
    {"unevaluatedProperties", kRefusedUnlessTrue, kNone, {}, "use additionalProperties: false"},
    {"uniqueItems", kFlag, kArray},
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
    {"color", FormatSupport::kOwn},
    {"date", FormatSupport::kCommon},
    {"date-time", FormatSupport::kCommon},
    {"double", FormatSupport::kAnnotation},
    {"duration", FormatSupport::kUncommon},
    {"email", FormatSupport::kUncommon},
    {"float", FormatSupport::kAnnotation},
    {"host-name", FormatSupport::kOwn},
    {"hostname", FormatSupport::kUncommon},
    {"idn-email", FormatSupport::kOwn},
    {"idn-hostname", FormatSupport::kOwn},
    {"int32", FormatSupport::kAnnotation},
    {"int64", FormatSupport::kAnnotation},
    {"ip-address", FormatSupport::kOwn},
    {"ipv4", FormatSupport::kUncommon},
    {"ipv6", FormatSupport::kUncommon},
    {"iri", FormatSupport::kOwn},
    {"iri-reference", FormatSupport::kOwn},
    {"json-pointer", FormatSupport::kUncommon},
    {"password", FormatSupport::kAnnotation},
    {"phone", FormatSupport::kAnnotation},
    {"regex", FormatSupport::kOwn},
    {"relative-json-pointer", FormatSupport::kUncommon},
    {"style", FormatSupport::kAnnotation},
    {"time", FormatSupport::kCommon},
    {"uint32", FormatSupport::kAnnotation},
    {"uint64", FormatSupport::kAnnotation},
    {"uri", FormatSupport::kUncommon},
    {"uri-reference", FormatSupport::kUncommon},
    {"uri-template", FormatSupport::kUncommon},
    {"utc-millisec", FormatSupport::kAnnotation},
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
  return found != kFormats.end() && found->name == name ? found->support
                                                        : FormatSupport::kAnnotation;
}

}  // namespace stator::structured
