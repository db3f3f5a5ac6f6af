// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/structural_tag.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/structured/detail/tag_reader.h"
#include "stator/structured/json_schema.h"

namespace stator::structured {
namespace {

// Triggers are tried one after another for each tag.
constexpr size_t kTagStringsMax = 256;

}  // namespace

Outcome<StructuralTag> TagReader::read() {
  const JsonIndex format = tree_.find(0, "format");
  const bool good = format != kNoJson ? read_format(format, "format") : read_structures();
  if (!good) {
    return std::move(*refusal_);
  }
  return StructuralTag{.text = std::string(tree_.root().raw),
                       .features = features_,
                       .has_format = format != kNoJson};
}

bool TagReader::require(JsonIndex object, const std::string& field, std::string_view name,
                        JsonType type, JsonIndex& member) {
  member = tree_.find(object, name);
  const std::string path = field.empty() ? std::string(name) : fmt::format("{}.{}", field, name);
  if (member == kNoJson) {
    return fail(path, fmt::format("is required and must be {}", describe(type)));
  }
  return tree_[member].type == type || fail(path, fmt::format("must be {}, not {}", describe(type),
                                                              describe(tree_[member].type)));
}

bool TagReader::optional_flag(JsonIndex object, const std::string& field, std::string_view name) {
  const JsonIndex member = tree_.find(object, name);
  return member == kNoJson || tree_[member].type == JsonType::kBool ||
         fail(fmt::format("{}.{}", field, name),
              fmt::format("must be a boolean, not {}", describe(tree_[member].type)));
}

bool TagReader::read_strings(JsonIndex list, const std::string& field,
                             std::vector<std::string_view>& out) {
  for (const JsonIndex item : tree_.children(list)) {
    if (tree_[item].type != JsonType::kString || tree_[item].text.empty()) {
      return fail(fmt::format("{}[{}]", field, out.size()), "must be a non-empty string");
    }
    out.push_back(tree_[item].text);
  }
  if (out.size() > kTagStringsMax) {
    return fail(field, fmt::format("has more than {} strings", kTagStringsMax));
  }
  return !out.empty() || fail(field, "must not be empty");
}

bool TagReader::read_schema(JsonIndex schema, const std::string& field) {
  if (tree_[schema].type == JsonType::kBool && tree_[schema].boolean) {
    return true;
  }
  auto features = check_json_schema(tree_[schema].raw);
  if (!features.has_value()) {
    return fail(field, std::move(features.error()));
  }
  features_.merge(*features);
  return true;
}

bool TagReader::read_structures() {
  JsonIndex triggers_at = kNoJson;
  JsonIndex structures = kNoJson;
  Triggers triggers;
  if (!require(0, "", "triggers", JsonType::kArray, triggers_at) ||
      !read_strings(triggers_at, "triggers", triggers) ||
      !require(0, "", "structures", JsonType::kArray, structures)) {
    return false;
  }
  size_t index = 0;
  for (const JsonIndex structure : tree_.children(structures)) {
    if (!read_structure(structure, fmt::format("structures[{}]", index++), triggers)) {
      return false;
    }
  }
  return index > 0 || fail("structures", "must not be empty");
}

bool TagReader::read_structure(JsonIndex structure, const std::string& field,
                               const Triggers& triggers) {
  if (tree_[structure].type != JsonType::kObject) {
    return fail(field, fmt::format("must be an object, not {}", describe(tree_[structure].type)));
  }
  JsonIndex begin = kNoJson;
  JsonIndex schema = kNoJson;
  JsonIndex end = kNoJson;
  return require(structure, field, "begin", JsonType::kString, begin) &&
         check_trigger(field + ".begin", tree_[begin].text, triggers) &&
         require(structure, field, "end", JsonType::kString, end) &&
         require(structure, field, "schema", JsonType::kObject, schema) &&
         read_schema(schema, field + ".schema");
}

bool TagReader::check_trigger(const std::string& field, std::string_view begin,
                              const Triggers& triggers) {
  const bool known = std::ranges::any_of(
      triggers, [begin](std::string_view trigger) { return begin.starts_with(trigger); });
  return known || fail(field, "must begin with one of the triggers");
}

Outcome<StructuralTag> read_structural_tag(std::string_view json) {
  STATOR_TRY(const JsonTree tree, JsonTree::parse(json));
  if (tree.root().type != JsonType::kObject) {
    return refuse(fmt::format("must be an object, not {}", describe(tree.root().type)));
  }
  const JsonIndex type = tree.find(0, "type");
  if (type == kNoJson || tree[type].text != "structural_tag") {
    return Refusal{Code::kInvalidArgument, "type", "must be \"structural_tag\""};
  }
  return TagReader(tree).read();
}

}  // namespace stator::structured
