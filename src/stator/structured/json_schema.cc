// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "stator/core/assert.h"
#include "stator/structured/detail/json_tree.h"
#include "stator/structured/detail/schema_graph.h"
#include "stator/structured/detail/schema_keywords.h"
#include "stator/structured/detail/schema_siblings.h"
#include "stator/structured/regex.h"
#include "stator/structured/rewrite_schema.h"

namespace stator::structured {
namespace {

// Counts above are refused: decoders keep them in 32 bits.
constexpr double kCountMax = INT32_MAX;

/// `true`, or nothing but that keys are strings: what zod's z.record writes.
bool takes_every_key(const JsonTree& tree, JsonIndex schema) {
  const JsonNode& node = tree[schema];
  if (node.type == JsonType::kBool) {
    return node.boolean;
  }
  if (node.type != JsonType::kObject) {
    return false;
  }
  for (const JsonIndex value : tree.children(schema)) {
    const JsonNode& member = tree[value];
    if (member.key != "type" || member.type != JsonType::kString || member.text != "string") {
      return false;
    }
  }
  return true;
}

/// Walks the schemas of one document, breadth first, without recursion.
class SchemaReader {
 public:
  /// `watched`: features whose first place is wanted.
  SchemaReader(const JsonTree& tree, SchemaFeatures watched)
      : tree_(tree), watched_(watched), numbers_(tree.size(), kNoJson) {}

  Outcome<SchemaFeatures> read() {
    add_schema(0);
    for (size_t i = 0; i < schemas_.size(); ++i) {
      if (!read_schema(schemas_[i])) {
        return std::move(*refusal_);
      }
    }
    if (!check_graph()) {
      return std::move(*refusal_);
    }
    return features_;
  }

  const std::string& watched_place() const { return watched_place_; }
  /// The values of all $ref.
  const std::vector<JsonIndex>& references() const { return references_; }

 private:
  bool fail(JsonIndex at, std::string_view why) {
    refusal_ = refuse_at(tree_.pointer(at), why);
    return false;
  }
  bool must_be(JsonIndex at, std::string_view expected) {
    return fail(at, fmt::format("must be {}, not {}", expected, describe(tree_[at].type)));
  }

  void note(SchemaFeature feature, JsonIndex at) {
    features_ = features_.with(feature);
    if (watched_.has(feature) && watched_place_.empty()) {
      watched_place_ = tree_.pointer(at);
    }
  }

  void add_schema(JsonIndex at) {
    if (numbers_[at] == kNoJson) {
      numbers_[at] = static_cast<uint32_t>(schemas_.size());
      schemas_.push_back(at);
    }
  }

  bool read_schema(JsonIndex schema) {
    if (tree_[schema].type != JsonType::kObject) {
      return true;  // `true`
    }
    for (const JsonIndex member : tree_.children(schema)) {
      const SchemaKeyword* keyword = find_schema_keyword(tree_[member].key);
      if (keyword != nullptr && !read_keyword(*keyword, schema, member)) {
        return false;
      }
    }
    const auto complaint = check_siblings(tree_, schema);
    if (complaint && complaint->only_others) {
      note(SchemaFeature::kSiblings, complaint->at);
      return true;
    }
    return !complaint || fail(complaint->at, complaint->why);
  }

  bool read_keyword(const SchemaKeyword& keyword, JsonIndex schema, JsonIndex value);
  bool read_type(JsonIndex value);
  bool read_schema_at(JsonIndex value, bool may_be_false);
  bool read_members(const SchemaKeyword& keyword, JsonIndex value);
  bool read_denied(JsonIndex value);
  bool read_own(SchemaRule rule, JsonIndex value);
  bool read_list(JsonIndex value);
  bool read_items(JsonIndex value);
  bool read_names(JsonIndex value);
  bool read_enum(JsonIndex value);
  bool read_count(JsonIndex value);
  bool read_bound(JsonIndex schema, JsonIndex value);
  bool read_multiple(JsonIndex value);
  bool read_pattern(JsonIndex value);
  bool read_format(JsonIndex value);
  bool read_reference(JsonIndex value);
  bool check_regex_at(JsonIndex at, std::string_view pattern);
  bool check_graph();

  bool has(JsonIndex schema, std::string_view key) const {
    return tree_.find(schema, key) != kNoJson;
  }
  void collect_needs(SchemaGraph& graph, JsonIndex schema) const;
  void collect_part_needs(SchemaGraph& graph, JsonIndex schema) const;

  const JsonTree& tree_;
  SchemaFeatures features_;
  SchemaFeatures watched_;
  std::string watched_place_;
  std::vector<JsonIndex> schemas_;  // in order of discovery; doubles as the queue
  std::vector<uint32_t> numbers_;   // by JsonIndex: place in schemas_
  std::vector<JsonIndex> references_;
  std::optional<Refusal> refusal_;
};

bool SchemaReader::read_keyword(const SchemaKeyword& keyword, JsonIndex schema, JsonIndex value) {
  if (keyword.feature) {
    note(*keyword.feature, value);
  }
  switch (keyword.rule) {
    case SchemaRule::kIgnored:
      return true;
    case SchemaRule::kType:
      return read_type(value);
    case SchemaRule::kEnum:
      return read_enum(value);
    case SchemaRule::kMembers:
    case SchemaRule::kPatternMembers:
      return read_members(keyword, value);
    case SchemaRule::kSchema:
      return read_schema_at(value, true);
    case SchemaRule::kItems:
      return read_items(value);
    case SchemaRule::kList:
      if (keyword.name == "allOf" && tree_[value].child_count > 1) {
        note(SchemaFeature::kAllOf, value);
      }
      return read_list(value);
    case SchemaRule::kNames:
      return read_names(value);
    case SchemaRule::kCount:
      return read_count(value);
    case SchemaRule::kBound:
      return read_bound(schema, value);
    case SchemaRule::kMultiple:
      return read_multiple(value);
    case SchemaRule::kPattern:
      return read_pattern(value);
    case SchemaRule::kFormat:
      return read_format(value);
    case SchemaRule::kReference:
      return read_reference(value);
    case SchemaRule::kFlag:
    case SchemaRule::kOwnSchema:
    case SchemaRule::kOwnCount:
      return read_own(keyword.rule, value);
    case SchemaRule::kDenied:
      if (read_denied(value) || refusal_) {
        return !refusal_;
      }
      break;
    case SchemaRule::kRefusedIfTrue:
      if (tree_[value].type == JsonType::kBool && !tree_[value].boolean) {
        return true;
      }
      break;
    case SchemaRule::kRefusedUnlessTrue:
      if (tree_[value].type == JsonType::kBool && tree_[value].boolean) {
        return true;
      }
      break;
    case SchemaRule::kNamesOfMembers:
      return takes_every_key(tree_, value) || read_own(SchemaRule::kOwnSchema, value);
    case SchemaRule::kRefused:
      break;
  }
  return fail(value, fmt::format("{} is not supported: {}", keyword.name, keyword.advice));
}

bool SchemaReader::read_type(JsonIndex value) {
  const auto known = [this](JsonIndex name) {
    return tree_[name].type == JsonType::kString && type_named(tree_[name].text) != 0;
  };
  constexpr std::string_view kExpected =
      "must be object, array, string, number, integer, boolean, null, or a list of them";
  if (tree_[value].type != JsonType::kArray) {
    return known(value) || fail(value, kExpected);
  }
  for (const JsonIndex name : tree_.children(value)) {
    if (!known(name)) {
      return fail(name, kExpected);
    }
  }
  return tree_[value].child_count > 0 || fail(value, "must name at least one type");
}

bool SchemaReader::read_schema_at(JsonIndex value, bool may_be_false) {
  const JsonNode& node = tree_[value];
  if (node.type == JsonType::kBool) {
    if (node.boolean) {
      add_schema(value);
      return true;
    }
    return may_be_false || fail(value, "false matches nothing: remove it");
  }
  if (node.type != JsonType::kObject) {
    return must_be(value, "a schema (an object or a boolean)");
  }
  add_schema(value);
  return true;
}

/// What our own engines alone enforce.
bool SchemaReader::read_own(SchemaRule rule, JsonIndex value) {
  if (rule != SchemaRule::kFlag || tree_[value].boolean) {
    note(SchemaFeature::kSiblings, value);
  }
  switch (rule) {
    case SchemaRule::kFlag:
      return tree_[value].type == JsonType::kBool || must_be(value, "a boolean");
    case SchemaRule::kOwnCount:
      return read_count(value);
    default:
      return read_schema_at(value, false);
  }
}

/// {"enum": […]} or {"pattern": …}: what rewrite_schema() leaves of `not`.
bool SchemaReader::read_denied(JsonIndex value) {
  const JsonIndex list = tree_.find(value, "enum");
  const JsonIndex pattern = tree_.find(value, "pattern");
  if (tree_[value].child_count != 1 || (list == kNoJson && pattern == kNoJson)) {
    return false;
  }
  note(SchemaFeature::kSiblings, value);
  return list != kNoJson ? read_enum(list) : read_pattern(pattern);
}

bool SchemaReader::read_members(const SchemaKeyword& keyword, JsonIndex value) {
  if (tree_[value].type != JsonType::kObject) {
    return must_be(value, "an object");
  }
  for (const JsonIndex member : tree_.children(value)) {
    if (keyword.rule == SchemaRule::kPatternMembers && !check_regex_at(member, tree_[member].key)) {
      return false;
    }
    const bool is_false = tree_[member].type == JsonType::kBool && !tree_[member].boolean;
    if (is_false && keyword.domain == SchemaDomain::kObject) {
      note(SchemaFeature::kSiblings, member);
    }
    if (!read_schema_at(member, keyword.domain == SchemaDomain::kObject)) {
      return false;
    }
  }
  return true;
}

bool SchemaReader::read_list(JsonIndex value) {
  if (tree_[value].type != JsonType::kArray) {
    return must_be(value, "an array of schemas");
  }
  for (const JsonIndex member : tree_.children(value)) {
    if (!read_schema_at(member, false)) {
      return false;
    }
  }
  if (tree_[value].child_count == 0 && tree_[value].key == "prefixItems") {
    note(SchemaFeature::kSiblings, value);
    return true;
  }
  return tree_[value].child_count > 0 || fail(value, "must not be empty");
}

bool SchemaReader::read_items(JsonIndex value) {
  if (tree_[value].type == JsonType::kArray) {
    note(SchemaFeature::kTupleItems, value);
    return read_list(value);
  }
  return read_schema_at(value, true);
}

bool SchemaReader::read_names(JsonIndex value) {
  if (tree_[value].type != JsonType::kArray) {
    return must_be(value, "an array of strings");
  }
  for (const JsonIndex name : tree_.children(value)) {
    if (tree_[name].type != JsonType::kString) {
      return must_be(name, "a string");
    }
  }
  return true;
}

bool SchemaReader::read_enum(JsonIndex value) {
  if (tree_[value].type != JsonType::kArray) {
    return must_be(value, "an array");
  }
  return tree_[value].child_count > 0 || fail(value, "must not be empty: no value fits");
}

bool SchemaReader::read_count(JsonIndex value) {
  const JsonNode& node = tree_[value];
  const bool whole = node.type == JsonType::kNumber && std::floor(node.number) == node.number &&
                     node.number >= 0 && node.number <= kCountMax;
  if (whole && node.raw.find_first_not_of("0123456789") != std::string_view::npos) {
    note(SchemaFeature::kSiblings, value);  // 2.0: not every engine reads it as 2
  }
  return whole || fail(value, "must be a whole number from 0 to 2147483647");
}

bool SchemaReader::read_bound(JsonIndex schema, JsonIndex value) {
  if (tree_[value].type != JsonType::kNumber) {
    return must_be(value, "a number");
  }
  if ((types_of(tree_, schema) & kNumberType) != 0) {
    note(SchemaFeature::kNumberBounds, value);
  }
  return true;
}

bool SchemaReader::read_multiple(JsonIndex value) {
  return (tree_[value].type == JsonType::kNumber && tree_[value].number > 0) ||
         fail(value, "must be a number above 0");
}

bool SchemaReader::check_regex_at(JsonIndex at, std::string_view pattern) {
  const auto facts = check_regex(pattern);
  if (!facts.has_value()) {
    return fail(at, "the pattern " + facts.error().text);
  }
  if (!facts->anchored) {
    note(SchemaFeature::kOpenPattern, at);
  }
  return true;
}

bool SchemaReader::read_pattern(JsonIndex value) {
  if (tree_[value].type != JsonType::kString) {
    return must_be(value, "a string");
  }
  return check_regex_at(value, tree_[value].text);
}

bool SchemaReader::read_format(JsonIndex value) {
  if (tree_[value].type != JsonType::kString) {
    return must_be(value, "a string");
  }
  switch (classify_format(tree_[value].text)) {
    case FormatSupport::kOwn:
      note(SchemaFeature::kSiblings, value);
      return true;
    case FormatSupport::kUncommon:
      note(SchemaFeature::kUncommonFormat, value);
      return true;
    case FormatSupport::kCommon:
    case FormatSupport::kAnnotation:
      break;
  }
  return true;
}

bool SchemaReader::read_reference(JsonIndex value) {
  if (tree_[value].type != JsonType::kString) {
    return must_be(value, "a string");
  }
  const std::string_view reference = tree_[value].text;
  if (reference != "#" && !reference.starts_with("#/")) {
    return fail(value,
                "only references into the same document are supported: write #/$defs/NAME, and "
                "put the definition there");
  }
  if (reference.find('%') != std::string_view::npos) {
    return fail(value, "escaped names are not understood: name the definition without / ~ %");
  }
  if (reference.find('~') != std::string_view::npos) {
    note(SchemaFeature::kSiblings, value);
  }
  for (JsonIndex above = tree_[value].parent; above != 0; above = tree_[above].parent) {
    const JsonIndex id = tree_.find(above, "$id");
    if (id != kNoJson && !tree_[id].text.starts_with('#')) {
      return fail(value,
                  "is relative to the $id of a part, which decoders do not know: leave it out");
    }
  }
  const JsonIndex target = tree_.resolve(0, reference.substr(1));
  if (target == kNoJson) {
    return fail(value, "refers to nothing: define it under $defs");
  }
  if (tree_[target].type != JsonType::kObject) {
    return fail(value, "does not refer to a schema");
  }
  for (JsonIndex above = tree_[target].parent; above != kNoJson; above = tree_[above].parent) {
    if (tree_[above].type == JsonType::kArray) {
      note(SchemaFeature::kSiblings, value);  // others want it under $defs
    }
  }
  references_.push_back(value);
  add_schema(target);
  return true;
}

bool SchemaReader::check_graph() {
  SchemaGraph graph(static_cast<uint32_t>(schemas_.size()));
  for (const JsonIndex schema : schemas_) {
    if (tree_[schema].type == JsonType::kObject) {
      collect_needs(graph, schema);
    }
  }
  if (const auto loop = graph.find_loop()) {
    return fail(schemas_[*loop],
                "refers to itself without a value in between: put the reference into properties "
                "or items");
  }
  if (const auto endless = graph.find_endless()) {
    return fail(schemas_[*endless],
                "every value of it contains another one, without end: do not require the "
                "recursive property, or allow null");
  }
  return true;
}

void SchemaReader::collect_needs(SchemaGraph& graph, JsonIndex schema) const {
  const uint32_t number = numbers_[schema];
  if (const JsonIndex reference = tree_.find(schema, "$ref"); reference != kNoJson) {
    const JsonIndex target = tree_.resolve(0, tree_[reference].text.substr(1));
    graph.need_one_of(number, {numbers_[target]}, true);
  }
  for (const std::string_view keyword : {"anyOf", "oneOf"}) {
    if (const JsonIndex list = tree_.find(schema, keyword); list != kNoJson) {
      std::vector<uint32_t> members;
      for (const JsonIndex member : tree_.children(list)) {
        members.push_back(numbers_[member]);
      }
      graph.need_one_of(number, members, true);
    }
  }
  if (const JsonIndex list = tree_.find(schema, "allOf"); list != kNoJson) {
    for (const JsonIndex member : tree_.children(list)) {
      graph.need_one_of(number, {numbers_[member]}, true);
    }
  }
  if (!has(schema, "enum") && !has(schema, "const")) {
    collect_part_needs(graph, schema);
  }
}

// What each value of the schema contains, if the schema leaves it no way out.
void SchemaReader::collect_part_needs(SchemaGraph& graph, JsonIndex schema) const {
  const uint32_t number = numbers_[schema];
  const auto need = [&](JsonIndex part) {
    if (part != kNoJson && numbers_[part] != kNoJson) {
      graph.need_one_of(number, {numbers_[part]}, false);
    }
  };
  const SchemaTypes allowed = types_of(tree_, schema);
  const JsonIndex required = tree_.find(schema, "required");
  if (allowed == kObjectType && required != kNoJson) {
    const JsonIndex properties = tree_.find(schema, "properties");
    for (const JsonIndex name : tree_.children(required)) {
      need(properties == kNoJson ? kNoJson : tree_.find(properties, tree_[name].text));
    }
  }
  const JsonIndex least = tree_.find(schema, "minItems");
  if (allowed == kArrayType && least != kNoJson) {
    double left = tree_[least].number;
    if (const JsonIndex prefix = tuple_of(tree_, schema); prefix != kNoJson) {
      for (const JsonIndex item : tree_.children(prefix)) {
        if (left > 0) {
          need(item);
          --left;
        }
      }
    }
    if (left > 0) {
      need(rest_of(tree_, schema));
    }
  }
}

}  // namespace

namespace {

struct Read {
  SchemaFeatures features;
  std::string rewritten;  ///< empty: accepted as it is
  std::string place;      ///< of the watched feature
};

Outcome<Read> read_as_it_is(std::string_view text, SchemaFeatures watched) {
  STATOR_TRY(const JsonTree tree, JsonTree::parse(text));
  if (tree.root().type != JsonType::kObject) {
    return refuse(fmt::format("must be an object, not {}", describe(tree.root().type)));
  }
  SchemaReader reader(tree, watched);
  STATOR_TRY(const SchemaFeatures features, reader.read());
  return Read{.features = features, .rewritten = {}, .place = reader.watched_place()};
}

/// What cannot be taken as it is may be once it is rewritten: by our own engines only.
Outcome<Read> read_schema_text(std::string_view text, SchemaFeatures watched) {
  auto plain = read_as_it_is(text, watched);
  if (plain.has_value()) {
    return plain;
  }
  if (!JsonTree::parse(text).has_value()) {
    return plain;
  }
  STATOR_TRY(auto rewritten, rewrite_schema(text));
  if (!rewritten) {
    return plain;
  }
  STATOR_TRY(Read out, read_as_it_is(rewritten->text, watched));
  out.features = out.features.with(SchemaFeature::kSiblings);
  if (watched.has(SchemaFeature::kSiblings)) {
    out.place = rewritten->first_place;
  }
  out.rewritten = std::move(rewritten->text);
  return out;
}

}  // namespace

Outcome<SchemaFeatures> check_json_schema(std::string_view text) {
  STATOR_TRY(const Read read, read_schema_text(text, {}));
  return read.features;
}

std::string own_form(std::string_view text) {
  auto rewritten = rewrite_schema(text);
  if (!rewritten.has_value() || !*rewritten) {
    return {};
  }
  // What other engines take, too, stays as it is where the rewritten form says less.
  return read_as_it_is((*rewritten)->text, {}).has_value() ? std::move((*rewritten)->text)
                                                           : std::string();
}

std::string find_schema_feature(std::string_view text, SchemaFeatures features) {
  auto read = read_schema_text(text, features);
  return read.has_value() ? std::move(read->place) : std::string();
}

RebasedSchema rebase_schema(std::string_view text, std::string_view prefix) {
  const auto read = read_schema_text(text, {});
  STATOR_ASSERT(read.has_value(), "the schema was checked on arrival");
  if (!read->rewritten.empty()) {
    text = read->rewritten;
  }
  const auto tree = JsonTree::parse(text);
  STATOR_ASSERT(tree.has_value(), "the schema was checked on arrival");
  SchemaReader reader(*tree, {});
  STATOR_ASSERT(reader.read().has_value(), "the schema was checked on arrival");
  std::vector<JsonIndex> references = reader.references();
  std::ranges::sort(references);  // a tree's indices are in the order of its text
  RebasedSchema out{.text = {}, .has_references = !references.empty()};
  size_t copied = 0;
  for (const JsonIndex reference : references) {
    const JsonNode& node = (*tree)[reference];
    const auto begin = static_cast<size_t>(node.raw.data() - text.data());
    out.text.append(text, copied, begin - copied);
    append_json_string(out.text, fmt::format("#{}{}", prefix, node.text.substr(1)));
    copied = begin + node.raw.size();
  }
  out.text.append(text, copied);
  return out;
}

}  // namespace stator::structured
