// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/structured/detail/json_tree.h"
#include "stator/structured/structural_tag.h"

namespace stator::structured {

/// Reads structural tags. Field names in refusals are paths below the tag:
/// "format.tags[0].content".
class TagReader {
 public:
  explicit TagReader(const JsonTree& tree) : tree_(tree) {}

  Outcome<StructuralTag> read();

 private:
  using Triggers = std::vector<std::string_view>;
  enum class Unit : uint8_t { kText, kToken };  // of what sets something off

  bool fail(std::string field, std::string text) {
    refusal_ = Refusal{Code::kInvalidArgument, std::move(field), std::move(text)};
    return false;
  }
  bool fail(const std::string& field, Refusal inner) {
    refusal_ = std::move(inner).in_field(field);
    return false;
  }

  // The member `name` of `object`, which must have this type.
  bool require(JsonIndex object, const std::string& field, std::string_view name, JsonType type,
               JsonIndex& member);
  bool optional_flag(JsonIndex object, const std::string& field, std::string_view name);
  bool read_strings(JsonIndex list, const std::string& field, std::vector<std::string_view>& out);
  bool read_schema(JsonIndex schema, const std::string& field);
  bool read_structures();
  bool read_structure(JsonIndex structure, const std::string& field, const Triggers& triggers);
  bool check_trigger(const std::string& field, std::string_view begin, const Triggers& triggers);

  // structural_format.cc
  bool read_format(JsonIndex format, const std::string& field);
  bool read_schema_format(JsonIndex format, const std::string& field);
  bool read_text_format(JsonIndex format, const std::string& field, std::string_view type);
  bool read_elements(JsonIndex format, const std::string& field);
  bool read_content(JsonIndex format, const std::string& field);
  bool read_repeat(JsonIndex format, const std::string& field);
  bool read_dispatch(JsonIndex format, const std::string& field, Unit unit);
  bool read_tag(JsonIndex tag, const std::string& field);
  bool read_tag_end(JsonIndex tag, const std::string& field);
  bool read_tags(JsonIndex format, const std::string& field, const Triggers* triggers);
  bool read_triggered(JsonIndex format, const std::string& field);
  bool read_token_triggered(JsonIndex format, const std::string& field);
  bool read_token(JsonIndex token, const std::string& field);
  bool read_token_format(JsonIndex object, const std::string& field);
  bool optional_tokens(JsonIndex object, const std::string& field, std::string_view name);
  bool optional_strings(JsonIndex object, const std::string& field, std::string_view name);
  bool whole_number(JsonIndex object, const std::string& field, std::string_view name,
                    double& value);

  const JsonTree& tree_;
  SchemaFeatures features_;
  std::optional<Refusal> refusal_;
};

}  // namespace stator::structured
